"""Trajectories: from recorded model calls to training samples."""
