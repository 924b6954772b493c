"""gyre's real clusters: the proxy that harnesses talk to, and the engines behind it."""
