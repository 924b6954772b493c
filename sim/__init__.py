"""gyre's simulated cluster: SimPy for control, a compiled serving model, hardware profiles and bounds."""
