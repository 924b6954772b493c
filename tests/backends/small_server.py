"""Flags of SGLang for tests."""

# What a server needs to be small: KV for some tens of thousands of tokens, and a core left to the tests.
SMALL_SERVER = ("--mem-fraction-static=0.5", "--max-total-tokens=32768", "--max-running-requests=16")
