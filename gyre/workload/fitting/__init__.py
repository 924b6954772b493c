"""Profiles fitted to traces, and how well they fit."""

from __future__ import annotations

from .fit import fit_profile
from .goodness import Goodness, goodness_of_fit

__all__ = ["Goodness", "fit_profile", "goodness_of_fit"]
