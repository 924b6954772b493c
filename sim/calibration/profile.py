"""From measured figures to a hardware profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import tomli_w

from gyre.atomic import write_text_atomic
from gyre.toml_file import validated
from gyre.workload.recorded_run.history import RunHistory

from ..hardware_profile import HardwareProfile
from .measured import Measured

_UNBOUND: Final = "assumed: nothing limits"
_MOST_RUNNING: Final = 4096
_KV_BYTES: Final = 2.0**50

# What a run's journal and calls do not say. The numbers of a model cancel out of every time that is measured.
_MODEL: Final = {
    "provenance": "placeholders: all times are measured, none is computed from these",
    "active_parameters": 1.0,
    "total_parameters": 1.0,
    "weights_bytes": 1.0,
    "kv_bytes_per_token": 1.0,
}


def profile_of(
    measured: Measured,
    history: RunHistory,
    name: str,
    base: HardwareProfile | None = None,
    model: Mapping[str, float] | None = None,
) -> HardwareProfile:
    """Return the profile.

    Args:
        measured: figures of the run.
        history: says what the cells are.
        name: of the profile; its provenance names the run by it.
        base: gives KV memory, batch limits, migration and the model; left out: nothing limits.
        model: `[model]` keys that are known of the run's model, in place of the base's.
    """
    values: dict[str, Any] = _unbound(history) if base is None else base.model_dump(exclude_none=True)
    values |= {"name": name, "provenance": f"measured on {name} by `gyre calibrate`"}
    if model is not None:
        values["model"] = {"provenance": "the run's model", **model}
    values["cell"] = {"provenance": "the run's cells", "gpus": history.cells[0].gpus}
    values["engine"]["gpus_per_engine"] = history.cells[0].gpus
    for section, keys in measured.sections.items():
        values[section] = {"provenance": _provenance(measured, section), **keys}
    return validated(HardwareProfile, values, f"the profile measured on {name}")


def write_profile(profile: HardwareProfile, path: Path) -> None:
    """Write a profile as a TOML file that `load_hardware` reads.

    Raises:
        InputError: the system refuses.
    """
    write_text_atomic(path, tomli_w.dumps(profile.model_dump(exclude_none=True)))


def _unbound(history: RunHistory) -> dict[str, Any]:
    return {
        "model": dict(_MODEL),
        "engine": {
            "provenance": _UNBOUND,
            "kv_memory_bytes": _KV_BYTES,
            "max_running": _MOST_RUNNING,
            "max_prefill_tokens": 1 << 30,
        },
        "migration": {"provenance": _UNBOUND, "nics": 1, "nic_bytes_per_s": 1e12, "efficiency": 1.0},
    }


def _provenance(measured: Measured, section: str) -> str:
    said = [f"{figure.key}: {figure.source}" for figure in measured.figures if figure.section == section]
    return "; ".join(said)
