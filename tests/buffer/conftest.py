"""Lets tests of the buffer use the made-up executions of the tests of trajectories."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.with_name("trajectory")))  # stored_executions
