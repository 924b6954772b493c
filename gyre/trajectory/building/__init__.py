"""Builds the tree of an execution's calls: in one go or call by call, in any order, with one result."""

from __future__ import annotations

from .builder import TreeBuilder, build_tree

__all__ = ["TreeBuilder", "build_tree"]
