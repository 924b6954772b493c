"""Reads JUnit reports, which pytest and most other test tools write."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NoReturn
from xml.parsers import expat

from .result import one_line

MOST_BYTES: Final = 64 * 2**20
_DETAIL_CHARS: Final = 300


class ReportError(ValueError):
    """A report cannot be used; the message says why."""


class Verdict(StrEnum):
    """What a report says of a test."""

    PASSED = "passed"
    SKIPPED = "skipped"  # or expected to fail
    FAILED = "failed"
    ERROR = "error"  # it could not be set up, taken down or even collected


_CHILDREN: Final = {"failure": Verdict.FAILED, "error": Verdict.ERROR, "skipped": Verdict.SKIPPED}
_BY_WEIGHT: Final = (Verdict.PASSED, Verdict.SKIPPED, Verdict.FAILED, Verdict.ERROR)


@dataclass(slots=True)
class CaseResult:
    """One test of a report."""

    test: str  # classname::name
    verdict: Verdict = Verdict.PASSED
    detail: str = ""  # first line of what went wrong

    def worse(self, verdict: Verdict, detail: str) -> None:
        """Take another word on this test; the worst counts."""
        if _BY_WEIGHT.index(verdict) > _BY_WEIGHT.index(self.verdict):
            self.verdict, self.detail = verdict, detail


def read_junit(path: Path) -> list[CaseResult]:
    """Read a JUnit report.

    Raises:
        ReportError: it is missing, too large, no XML, no JUnit report, or has a document type, and with it entities.
    """
    try:
        if path.is_symlink() or not path.is_file():
            raise ReportError("there is no report")
        if path.stat().st_size > MOST_BYTES:
            raise ReportError(f"the report is larger than {MOST_BYTES:,} bytes")
        return _Reader().read(path.read_bytes())
    except OSError as error:
        raise ReportError(f"the report cannot be read ({error.strerror or error})") from error


def by_test(cases: list[CaseResult]) -> list[CaseResult]:
    """Return each test once: pytest reports one twice that fails when it is called and when it is taken down."""
    found: dict[str, CaseResult] = {}
    for case in cases:
        found.setdefault(case.test, case).worse(case.verdict, case.detail)
    return list(found.values())


class _Reader:
    """Builds test cases while the parser walks through the elements."""

    def __init__(self) -> None:
        self._cases: list[CaseResult] = []
        self._elements: list[str] = []
        self._is_junit = False

    def read(self, text: bytes) -> list[CaseResult]:
        parser = expat.ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.StartDoctypeDeclHandler = _refuse_doctype
        try:
            parser.Parse(text, True)
        except expat.ExpatError as error:
            raise ReportError(f"the report is not XML that can be read ({error})") from error
        if not self._is_junit:
            raise ReportError("the report is no JUnit report")
        return self._cases

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._elements:
            self._is_junit = name in ("testsuites", "testsuite")
        elif name == "testcase":
            test = "::".join(filter(None, (attributes.get("classname"), attributes.get("name"))))
            self._cases.append(CaseResult(one_line(test, _DETAIL_CHARS)))
        elif self._elements[-1] == "testcase" and name in _CHILDREN:
            self._cases[-1].worse(_CHILDREN[name], one_line(attributes.get("message", ""), _DETAIL_CHARS))
        self._elements.append(name)

    def _end(self, name: str) -> None:
        self._elements.pop()


def _refuse_doctype(*_: object) -> NoReturn:
    raise ReportError("the report has a document type; entities are not expanded")


def failed(cases: list[CaseResult]) -> Iterator[CaseResult]:
    """Return the tests that did not pass."""
    return (case for case in cases if case.verdict in (Verdict.FAILED, Verdict.ERROR))
