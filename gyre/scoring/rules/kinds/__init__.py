"""The kinds of rules, by the name that a rules file gives them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ..rule import Rule
from .command import CommandRule
from .file import FileRule
from .json_schema import JsonSchemaRule
from .limit import LimitRule
from .python import PythonRule
from .regex import RegexRule
from .sql import SqlRule

__all__ = [
    "KINDS",
    "CommandRule",
    "FileRule",
    "JsonSchemaRule",
    "LimitRule",
    "PythonRule",
    "RegexRule",
    "SqlRule",
]

KINDS: Final[Mapping[str, type[Rule]]] = MappingProxyType(
    {
        "command": CommandRule,
        "regex": RegexRule,
        "json_schema": JsonSchemaRule,
        "sql": SqlRule,
        "file": FileRule,
        "limit": LimitRule,
        "python": PythonRule,
    }
)
