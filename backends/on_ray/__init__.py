"""Cells on the nodes of a Ray cluster: one placement group for a run, one actor for each cell."""
