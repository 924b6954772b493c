"""Keeps strings that end a reply, and all that follows them, out of its text."""

from __future__ import annotations

from .hermes import partial


class StopStrings:
    """Passes text on but for what may yet become a stop string."""

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._held = ""
        self.found = ""  # the string that ended the reply

    def feed(self, text: str) -> str:
        """Return the text that is certain to be part of the reply."""
        if self.found or not self._stops:
            return "" if self.found else text
        text = self._held + text
        hits = [(at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if hits:
            at, self.found = min(hits)
            self._held = ""
            return text[:at]
        kept = len(text) - partial(text, self._stops)
        self._held = text[kept:]
        return text[:kept]

    def end(self) -> str:
        """Return what was held back."""
        held, self._held = self._held, ""
        return held
