"""gyre's real clusters: drivers of the same controller on GPUs. None is here yet; `gyre.sim` is the first driver."""
