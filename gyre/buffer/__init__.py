"""Groups that are ready for training: which may wait, which a step takes, which are dropped."""
