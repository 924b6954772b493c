"""The executions of groups, on disk and within a bound in memory, until their last update."""

from .group_file import GroupProblem
from .storage import GroupStorage

__all__ = ["GroupProblem", "GroupStorage"]
