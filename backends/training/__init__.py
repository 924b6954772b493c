"""Training inside a cell, and the elastic step in which cells share one update."""
