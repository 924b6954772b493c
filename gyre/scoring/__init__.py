"""Scores of executions: evaluators that run apart, rules, and what is kept of an execution that ended badly."""
