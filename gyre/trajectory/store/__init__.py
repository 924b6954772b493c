"""Executions' trees on disk."""

from .checked_file import DamagedFileError, MissingFileError
from .problem import Problem
from .store import TrajectoryStore

__all__ = ["DamagedFileError", "MissingFileError", "Problem", "TrajectoryStore"]
