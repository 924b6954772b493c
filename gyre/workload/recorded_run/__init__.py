"""A finished run as it was recorded: its journal, and the model calls of its executions."""
