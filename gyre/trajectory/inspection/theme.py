"""Colours of roles, on light and on dark ground.

A role has one hue: full where tokens are trained, hatched where they were sampled and are not trained, pale where they
are context. Roles stay apart for readers with red-green blindness, as a test holds.
"""

from __future__ import annotations

from typing import Final

from ...pages import GROUND
from ...role import Role

_ROLES: Final[dict[Role, tuple[str, str]]] = {  # (light ground, dark ground)
    Role.MAIN: ("#2b6cb0", "#5a9bdc"),
    Role.MAIN_SUMMARY: ("#6d1fb8", "#b041f5"),
    Role.SUB_AGENT: ("#dd7a0d", "#f0a03c"),
    Role.SUB_AGENT_SUMMARY: ("#8a0f14", "#d0413f"),
    Role.SIDE: ("#1c7a52", "#1bae8f"),
}
_PALE: Final = (0.24, 0.32)  # of the full colour, on a light and on a dark panel
_MIDDLE: Final = 0.5


def role_colour(role: Role) -> str:
    """Return the token of a role's full colour."""
    return f"${role.value}"


def pale_colour(role: Role) -> str:
    """Return the token of a role's pale colour."""
    return f"${role.value}_pale"


def middle_colour(role: Role) -> str:
    """Return the token of the colour between a role's full and pale ones."""
    return f"${role.value}_middle"


def palette(dark: bool) -> dict[str, str]:
    """Return colours by token name, without the `$`."""
    ground = {name: pair[dark] for name, pair in GROUND.items()}
    full = {role.value: pair[dark] for role, pair in _ROLES.items()}
    tints = {
        f"{name}_{tint}": _mixed(colour, ground["panel"], share)
        for name, colour in full.items()
        for tint, share in (("pale", _PALE[dark]), ("middle", _MIDDLE))
    }
    return ground | full | tints


def _mixed(colour: str, ground: str, share: float) -> str:
    parts = [
        round(share * int(colour[at : at + 2], 16) + (1 - share) * int(ground[at : at + 2], 16)) for at in (1, 3, 5)
    ]
    return "#" + "".join(f"{part:02x}" for part in parts)
