"""A run from its settings: cells, proxy, evaluator, trainer and scheduler put together on real machines."""
