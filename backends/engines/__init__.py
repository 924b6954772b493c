"""Engines that sample tokens: one interface, SGLang and a scripted double behind it, and a pool that routes to them."""
