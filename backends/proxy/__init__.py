"""The proxy: unmodified harnesses in, exact tokens out."""
