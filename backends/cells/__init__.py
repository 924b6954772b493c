"""Cells of a real run: an engine and a trainer on the same GPUs, and the moves between them."""
