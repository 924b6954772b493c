"""gyre: elastic scheduling of online RL for LLM agents with hour-long rollouts."""

__version__ = "0.1.0"
