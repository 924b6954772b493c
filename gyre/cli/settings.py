"""From profile, settings file and flags to the settings of a run; each overrides the one before."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import click

from ..config import RunSettings
from ..errors import InputError
from ..policies import find_policy
from ..toml_file import read_toml, validated
from ..workload.profiles import load_profile, profile_names

# What a trace does not say and a profile does. Sizes are those of the published 122B setting.
_TRACE_DEFAULTS: Final[dict[str, Any]] = {
    "cluster": {"hardware": "qwen3.5-122b-tp8", "cells": 8},
    "training": {"groups_per_step": 16, "group_size": 8, "steps": 48},
}


@dataclass(frozen=True, slots=True)
class CommonOptions:
    """What is run, on what, and where results go: the options that `compare` and `simulate` share."""

    profile: str | None
    trace: Path | None
    settings_file: Path | None
    overrides: tuple[str, ...]
    steps: int | None
    cells: int | None
    hardware: str | None
    out: Path | None
    resume: bool
    as_json: bool
    dry_run: bool

    def base_settings(self, **more: Any) -> RunSettings:
        """Resolve the settings of a run without its policy's own keys; `more` sets keys at the top, None: not given.

        Raises:
            InputError: no or two workloads, an unknown key, an impossible value, an unreadable file.
        """
        if self.resume and self.out is None:
            raise InputError("--resume goes on with what --out holds: give --out DIR")
        flags = {"training.steps": self.steps, "cluster.cells": self.cells, "cluster.hardware": self.hardware, **more}
        return base_settings(self.profile, self.trace, self.settings_file, self.overrides, flags)


def common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the shared options to a command, which gets them as its first argument."""
    options = [
        click.argument("profile", required=False),
        click.option("--trace", type=click.Path(path_type=Path), help="Replay a trace, a recording or a run instead."),
        click.option("--settings", "settings_file", type=click.Path(path_type=Path), help="TOML file of settings."),
        click.option(
            "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Any setting, e.g. cluster.cells=6."
        ),
        click.option("--steps", type=click.IntRange(1), help="Optimizer updates to make."),
        click.option("--cells", type=click.IntRange(1), help="Cells that may train."),
        click.option("--hardware", help="Hardware profile, by name or file, or a run to measure it on."),
        click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Folder for the results."),
        click.option("--resume", is_flag=True, help="Go on with what a stopped run left in --out."),
        click.option("--json", "as_json", is_flag=True, help="Print figures as JSON."),
        click.option("--dry-run", is_flag=True, help="Print the resolved settings and stop."),
    ]

    @functools.wraps(command)
    def collected(**values: Any) -> None:
        command(CommonOptions(**{field.name: values.pop(field.name) for field in fields(CommonOptions)}), **values)

    for option in reversed(options):
        collected = option(collected)
    return collected


def base_settings(
    profile: str | None,
    trace: Path | None,
    settings_file: Path | None,
    overrides: tuple[str, ...],
    flags: Mapping[str, Any],
) -> RunSettings:
    """Resolve the settings of a run without its policy's own keys.

    `flags` maps dotted keys to values; None means not given.

    Raises:
        InputError: no or two workloads, an unknown key, an impossible value, an unreadable file.
    """
    _refuse_mix_up(profile, trace)
    given: dict[str, Any] = read_toml(settings_file) if settings_file else {}
    source = dict(given.get("workload", {}))
    if profile is not None or trace is not None:
        source.pop("profile", None)
        source.pop("trace", None)
    if profile is not None:
        source["profile"] = profile
    if trace is not None:
        source["trace"] = str(trace)
    if ("profile" in source) == ("trace" in source):
        raise InputError("say what to run: either a PROFILE (gyre trace describe --help lists them) or --trace PATH")
    values = _of_profile(source["profile"]) if "profile" in source else _of_trace(Path(source["trace"]))
    values = merged(values, given | {"workload": source})
    for key, value in flags.items():
        if value is not None:
            values = merged(values, nested(key, value))
    for override in overrides:
        values = merged(values, nested(*parse_assignment(override)))
    return validated(RunSettings, values, str(settings_file) if settings_file else "settings")


def _refuse_mix_up(profile: str | None, trace: Path | None) -> None:
    """A recording given as PROFILE, or a profile as --trace, is a likely slip: say so."""
    if profile is not None and Path(profile).exists() and not profile.endswith(".toml"):
        raise InputError(f"{profile}: not a profile; give a recording or a trace folder with --trace {profile}")
    if trace is not None and str(trace) in profile_names() and not trace.exists():
        raise InputError(f"--trace {trace}: {trace} is a bundled profile, give it without --trace")


def _of_profile(name: str) -> dict[str, Any]:
    profile = load_profile(name)
    limits = {"harness_timeout_s": profile.timeouts.harness_s, "overall_timeout_s": profile.timeouts.overall_s}
    return {
        "cluster": {
            "hardware": profile.hardware,
            "cells": profile.cells,
            "sequence_tokens_per_s": profile.nominal.decode_tokens_per_s,
        },
        "training": profile.training.model_dump(),
        "limits": {key: value for key, value in limits.items() if value is not None},
    }


def _of_trace(path: Path) -> dict[str, Any]:
    """Defaults for a trace; a run's folder also says what its policy, cells and groups were, and what they took."""
    from ..workload.recorded_run.marker import is_run_folder

    if not is_run_folder(path):
        return _TRACE_DEFAULTS
    from ..sim.calibration import same_settings
    from ..workload.recorded_run.folder import RunFolder

    with RunFolder(path) as run:
        return same_settings(run.history, path).model_dump(mode="json", exclude_none=True)


def parse_assignment(text: str) -> tuple[str, Any]:
    """Split `key=value`; a value is JSON where it can be (numbers, true, lists), else text."""
    key, separator, raw = text.partition("=")
    if not separator or not key:
        raise InputError(f"{text!r}: expected KEY=VALUE")
    try:
        return key.strip(), json.loads(raw)
    except json.JSONDecodeError:
        return key.strip(), raw


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return tables with one value at a dotted key."""
    for part in reversed(key.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return tables in which the keys of `over` replace those of `base`, table by table."""
    both = dict(base)
    for key, value in over.items():
        below = both.get(key)
        both[key] = merged(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return both


def split_label(text: str) -> tuple[str, str]:
    """Split `[label=]name[,key=value...]` into the label, which is the name if none is given, and the rest."""
    first, comma, rest = text.partition(",")
    label, equals, name = first.partition("=")
    if not label or "/" in label or label.startswith("."):
        raise InputError(
            f"--policy {text}: {label!r} names a folder of results; give a label without / and without a dot first"
        )
    return (label, name + comma + rest) if equals else (first, text)


def with_variant(settings: RunSettings, variant: str, keys: Mapping[str, Any] | None = None) -> RunSettings:
    """Give the settings one policy, written `name[,key=value...]`.

    Keys are the policy's own (`mu=1`, `streaming=true`) or dotted settings (`cluster.standalone_engines=4`). They
    override `keys`, which override those that the settings hold already.
    """
    name, *assignments = variant.split(",")
    values = settings.model_dump(mode="json")
    values["policy"] = name
    known = find_policy(name).Settings.model_fields
    held = {key: value for key, value in settings.policy_settings.items() if key in known or name == settings.policy}
    values["policy_settings"] = {**held, **(keys or {})}
    for assignment in assignments:
        key, value = parse_assignment(assignment)
        if "." in key:
            values = merged(values, nested(key, value))
        else:
            values["policy_settings"][key] = value
    return validated(RunSettings, values, f"--policy {variant}").resolved()
