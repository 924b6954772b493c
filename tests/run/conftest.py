"""Helpers beside the tests, and those of the proxy, are imported by their names."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.with_name("backends"))]
