"""Scores by rules: checks of what an execution left and how it came there, declared in a file."""

from __future__ import annotations

from .evaluator import RuleEvaluator
from .rule_set import RuleSet, load_rules

__all__ = ["RuleEvaluator", "RuleSet", "load_rules"]
