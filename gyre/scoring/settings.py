"""Settings of evaluators: one TOML file, whose `kind` says which evaluator it is."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ..errors import InputError
from ..toml_file import read_toml, validated
from .limits import Limits
from .state import MOST_BYTES, MOST_ENTRIES
from .workplace import Place

Score = Annotated[float, Field(allow_inf_nan=False)]
ScoreOrInvalid = Score | Literal["invalid"]


class EvaluatorSettings(BaseModel, ABC):
    """What every evaluator has."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    paths: ClassVar[tuple[str, ...]] = ()  # fields that hold a path, or paths; relative ones are to the settings file

    kind: str
    budget_s: float | None = Field(default=None, gt=0, description="seconds of a whole attempt")

    def located(self, folder: Path) -> Self:
        """Return the settings with paths that do not depend on the working folder."""
        changed: dict[str, Any] = {}
        for name in self.paths:
            value = getattr(self, name)
            if isinstance(value, tuple):
                changed[name] = tuple(folder / path for path in value)
            elif value is not None:
                changed[name] = folder / value
        return self.model_copy(update=changed)

    def sources(self) -> list[Path]:
        """Files and folders whose content the verdict depends on, as far as these settings name them."""
        return []


class ProcessSettings(EvaluatorSettings, ABC):
    """What evaluators have that run a command."""

    paths: ClassVar[tuple[str, ...]] = ("overlay",)

    limits: Limits = Limits()
    place: Place = Field(default=Place.COPY, description="where it runs")
    overlay: Path | None = Field(default=None, description="folder whose files replace those of the copy")
    env: dict[str, str] = Field(default={}, description="variables to set")
    pass_env: tuple[str, ...] = Field(default=(), description="variables to pass on where they are set")
    copy_bytes: int = Field(default=MOST_BYTES, ge=0, description="most that is copied; what is beyond is not there")
    copy_entries: int = Field(default=MOST_ENTRIES, ge=0, description="files and folders that are copied")
    score_at_limit: ScoreOrInvalid = Field(default="invalid", description="score where its time limit ends it")
    score_at_crash: ScoreOrInvalid = Field(
        default="invalid", description="score where a signal, or a limit on memory, processes or output, ends it"
    )

    def sources(self) -> list[Path]:
        """The overlay."""
        return [self.overlay] if self.overlay is not None else []

    @model_validator(mode="after")
    def _overlay_on_a_copy(self) -> Self:
        if self.overlay is not None and self.place is not Place.COPY:
            raise ValueError('overlay: needs place = "copy": what an execution left is not changed')
        return self


class ResultFrom(StrEnum):
    """Where a command says what the score is."""

    EXIT_CODE = "exit_code"
    STDOUT = "stdout"  # all that it prints there is one JSON object
    FILE = "file"  # it writes one JSON object to the file that GYRE_RESULT names


class CommandSettings(ProcessSettings):
    """A command that judges."""

    kind: Literal["command"]
    command: tuple[str, ...] = Field(min_length=1, description="program and arguments; no shell reads them")
    result: ResultFrom = ResultFrom.EXIT_CODE
    scores: dict[int, Score] = Field(
        default={0: 1.0, 1: 0.0}, description="score by exit code; with another the evaluation is not valid"
    )


class Skipped(StrEnum):
    """How a skipped test counts."""

    IGNORE = "ignore"  # as if it were not there
    PASS = "pass"
    FAIL = "fail"


class PytestSettings(ProcessSettings):
    """Tests: run by pytest, run by another command that writes a JUnit report, or such a report alone.

    They run what the execution wrote, in their own process, so it can make them hang, crash or write no report. That
    scores 0 unless stated otherwise: else it would be a way out of a failure.
    """

    kind: Literal["pytest"]
    score_at_limit: ScoreOrInvalid = Field(default=0.0, description="score where their time limit ends them")
    score_at_crash: ScoreOrInvalid = Field(
        default=0.0, description="score where they end otherwise without a report in which a test counts"
    )
    tests: tuple[str, ...] = Field(default=(), description="files, folders or ids for pytest; none: as configured")
    arguments: tuple[str, ...] = Field(default=(), description="further arguments of pytest")
    python: str = Field(default="", description="interpreter that has pytest; left out: the one that runs gyre")
    command: tuple[str, ...] = Field(default=(), description="in place of pytest; it writes its report to {report}")
    file: str = Field(default="", description="a report among the artefacts, in place of running anything")
    weights: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={}, description="weight by pattern of test ids, the first that fits; * and ? stand for any text"
    )
    default_weight: float = Field(default=1.0, ge=0, description="of tests that no pattern fits")
    skipped: Skipped = Field(default=Skipped.IGNORE, description="how skipped and expectedly failing tests count")
    expected: int | None = Field(default=None, ge=1, description="tests there must be; those missing count as failed")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.command) + bool(self.file) + bool(self.tests or self.arguments or self.python) > 1:
            raise ValueError("give tests, arguments and python for pytest, or a command, or a file: one of the three")
        return self


def module_files(function: str, folders: Iterable[Path]) -> list[Path]:
    """Return where the module of `function`, written module:function, lies in `folders`."""
    parts = function.partition(":")[0].split(".")
    named = (folder.joinpath(*parts[:-1], f"{parts[-1]}.py") for folder in folders)
    return [path for path in named if path.is_file()]


class PythonSettings(ProcessSettings):
    """A function of Python that judges, in a process of its own."""

    paths: ClassVar[tuple[str, ...]] = ("overlay", "path")

    kind: Literal["python"]
    function: str = Field(pattern=r"^[\w.]+:[\w.]+$", description="module:function")
    path: tuple[Path, ...] = Field(default=(), description="folders to look for the module in, first")

    def sources(self) -> list[Path]:
        """The overlay, and the module if it is in `path`; what it imports is not looked at."""
        return [*super().sources(), *module_files(self.function, self.path)]


class HttpSettings(EvaluatorSettings):
    """A service that judges."""

    kind: Literal["http"]
    url: str
    headers: dict[str, str] = {}
    key_env: str = Field(default="", description="variable with the key to send as Authorization: Bearer")
    timeout_s: float = Field(default=600.0, gt=0, description="seconds of a whole attempt, tries again included")
    retry_s: float = Field(default=1.0, gt=0, description="seconds before it is tried again; doubled each time")
    most_bytes: int = Field(default=2**20, ge=1, description="of a reply")

    @field_validator("url")
    @classmethod
    def _http(cls, url: str) -> str:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a service; give http://HOST/PATH")
        return url


class RulesSettings(EvaluatorSettings):
    """Rules that are declared in a file."""

    paths: ClassVar[tuple[str, ...]] = ("file",)

    kind: Literal["rules"]
    file: Path = Field(description="rules file, TOML or YAML")


_KINDS: Final[dict[str, type[EvaluatorSettings]]] = {
    "command": CommandSettings,
    "pytest": PytestSettings,
    "python": PythonSettings,
    "http": HttpSettings,
    "rules": RulesSettings,
}


def read_evaluator_settings(path: Path) -> EvaluatorSettings:
    """Read the settings of an evaluator; relative paths in them are to the file's folder.

    Raises:
        InputError: the file cannot be read, a key is unknown or a value impossible.
    """
    return evaluator_settings(read_toml(path), str(path)).located(path.resolve().parent)


def evaluator_settings(values: dict[str, Any], where: str = "evaluator") -> EvaluatorSettings:
    """Build the settings of an evaluator from their keys; `where` begins the message where they are refused.

    Raises:
        InputError: `kind` is missing or unknown, another key is, or a value is impossible.
    """
    kind = values.get("kind")
    if not isinstance(kind, str) or kind not in _KINDS:
        said = "missing" if kind is None else f"{kind!r} is unknown"
        raise InputError(f"{where}: kind: {said}; give one of {', '.join(_KINDS)}")
    return validated(_KINDS[kind], values, where)
