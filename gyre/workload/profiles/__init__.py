"""Profiles: the parameters of generated workloads, and what is drawn from them."""

from __future__ import annotations

from .profile import Profile, load_profile, parse_profile, profile_names
from .toml_text import profile_toml

__all__ = ["Profile", "load_profile", "parse_profile", "profile_names", "profile_toml"]
