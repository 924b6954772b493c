"""Reads pages of figures as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any


def painted(value: Any, colours: dict[str, str]) -> Any:
    """Put real colours in, as the page's script does, and expand rectangles."""
    if isinstance(value, str) and value.startswith("$"):
        return colours[value[1:]]
    if isinstance(value, dict):
        return {key: painted(item, colours) for key, item in value.items() if key not in ("rectangles", "tips")}
    return [painted(item, colours) for item in value] if isinstance(value, list) else value


class Links(HTMLParser):
    """Collects what a page would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.texts: dict[str, str] = {}
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self._inside = (found.get("id") or "") if tag == "script" else ""
        for name in ("src", "href"):
            if found.get(name):
                self.fetched.append(str(found[name]))

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside] = self.texts.get(self._inside, "") + data
