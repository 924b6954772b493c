"""Scheduling policies and the one registry of them."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from ..errors import InputError
from ..imported import imported
from .async_ import Async, AsyncSettings
from .base import Dispatch, Move, Policy, PolicySettings, move_all
from .colocate import Colocate
from .elastic import Elastic, ElasticSettings

__all__ = [
    "POLICIES",
    "Async",
    "AsyncSettings",
    "Colocate",
    "Dispatch",
    "Elastic",
    "ElasticSettings",
    "Move",
    "Policy",
    "PolicySettings",
    "find_policy",
    "move_all",
]

POLICIES: Final[dict[str, type[Policy]]] = {kind.name: kind for kind in (Colocate, Async, Elastic)}
ENTRY_POINT_GROUP: Final = "gyre.policies"


def find_policy(name: str) -> type[Policy]:
    """Return a policy class by its name, by an entry point in group `gyre.policies`, or by `module:Class`.

    Raises:
        InputError: there is no such policy, or it is no subclass of `Policy`.
    """
    if name in POLICIES:
        return POLICIES[name]
    found = next(iter(entry_points(group=ENTRY_POINT_GROUP, name=name)), None)
    if found is None and ":" not in name:
        raise InputError(f"no policy {name!r}: choose one of {', '.join(POLICIES)}, or give your own as module:Class")
    kind = imported(found.value if found is not None else name, f"policy {name!r}")
    if not (isinstance(kind, type) and issubclass(kind, Policy)):
        raise InputError(f"policy {name!r} is no subclass of gyre.policies.Policy")
    return kind
