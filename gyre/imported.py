"""Objects of a user's own modules, by name."""

from __future__ import annotations

import importlib
from operator import attrgetter

from .errors import InputError


def imported(name: str, what: str) -> object:
    """Return what `name`, written module:attribute, stands for; `what` begins the message where that fails.

    Raises:
        InputError: the module cannot be imported, or has no such attribute.
    """
    module, _, attribute = name.partition(":")
    try:
        found: object = attrgetter(attribute)(importlib.import_module(module))
    except Exception as error:  # a user's module may fail in any way
        raise InputError(f"{what} cannot be loaded: {type(error).__name__}: {error}") from error
    return found
