"""Reading JSON that others wrote: every surprise becomes a BadRequestError that names the field."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..wire import BadRequestError


def kind(value: object) -> str:
    """Return what JSON calls the kind of `value`."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"


class Fields:
    """A JSON object and where in the body it stands. Null and absent are the same."""

    __slots__ = ("_index", "_key", "_parent", "_values")

    def __init__(self, values: object, key: str = "", parent: Fields | None = None, index: int = -1) -> None:
        """`index`: its place, where `key` is that of a list."""
        self._parent = parent
        self._key = key
        self._index = index
        if not (type(values) is dict or isinstance(values, Mapping)):
            raise BadRequestError(f"{self.path()} must be an object, not {kind(values)}")
        self._values: Mapping[str, Any] = values

    def path(self, key: str = "") -> str:
        """Return the place of a field, or of the object, as in messages[3].content."""
        above = self._parent.path(self._key) if self._parent is not None else self._key
        if self._index >= 0:
            above = f"{above}[{self._index}]"
        if not key:
            return above or "the body"
        return f"{above}.{key}" if above else key

    def wrong(self, key: str, expected: str) -> BadRequestError:
        """Return the error of a field that is not what was expected."""
        value = self._values.get(key)
        if value is None:
            return BadRequestError(f"{self.path(key)} is missing: expected {expected}")
        got = repr(value) if isinstance(value, str) and len(value) <= 40 else kind(value)
        return BadRequestError(f"{self.path(key)} must be {expected}, not {got}")

    def get(self, key: str) -> Any:
        """Return whatever stands there, or None."""
        return self._values.get(key)

    def text(self, key: str, default: str = "") -> str:
        """Return a string."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def needed(self, key: str) -> str:
        """Return a string that must be there and not be empty."""
        value = self._values.get(key)
        if not isinstance(value, str) or not value:
            raise self.wrong(key, "a string that is not empty")
        return value

    def count(self, key: str) -> int | None:
        """Return a whole number."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise self.wrong(key, "a whole number")
        return int(value)

    def require_numbers(self, *keys: str) -> None:
        """Check fields whose values are not used: what is no number there is a mistake that a client must hear of.

        Raises:
            BadRequestError: one is something else.
        """
        for key in keys:
            value = self._values.get(key)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise self.wrong(key, "a number")

    def limit(self, key: str) -> int | None:
        """Return a number of tokens, 1 or more; 0 and less, by which some mean "no limit", are none."""
        value = self.count(key)
        return value if value is not None and value > 0 else None

    def flag(self, key: str, default: bool) -> bool:
        """Return a boolean."""
        value = self._values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def mapping(self, key: str) -> Mapping[str, Any] | None:
        """Return an object as it came."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.wrong(key, "an object")
        return value

    def object(self, key: str) -> Fields | None:
        """Return an object for reading."""
        value = self._values.get(key)
        return None if value is None else Fields(value, key, self)

    def objects(self, key: str) -> Iterator[Fields]:
        """Yield the objects of a list."""
        values = self._values.get(key)
        if values is None:
            return
        if not isinstance(values, list):
            raise self.wrong(key, "a list of objects")
        for index, value in enumerate(values):
            yield Fields(value, key, self, index)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a string, or a list of strings, as a tuple without empty ones."""
        value = self._values.get(key)
        values = [value] if isinstance(value, str) else [] if value is None else value
        if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
            raise self.wrong(key, "a string or a list of strings")
        return tuple(one for one in values if one)
