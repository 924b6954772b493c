"""Errors that a user can mend."""

from __future__ import annotations


class InputError(ValueError):
    """Something the user gave cannot be used. The message is one line: the file, the field and the remedy.

    The command line prints it and exits with code 2.
    """
