"""Stands in for SGLang in processes that have this folder on their path: its server is scripted."""
