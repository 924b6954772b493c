"""Real runs: the driver of the one controller, the ports that it works through, and how a run is taken up again."""
