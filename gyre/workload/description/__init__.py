"""A trace in numbers: the quantities that are described, fitted and compared."""

from __future__ import annotations

from .describe import Description, Distribution, describe, distributions_of
from .samples import Samples, samples

__all__ = ["Description", "Distribution", "Samples", "describe", "distributions_of", "samples"]
