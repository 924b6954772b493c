"""Bundled workload profiles: data only, read through `gyre.workload.profiles`."""
