"""Hardware profiles: what a model costs on a cell's GPUs, as a TOML file.

A profile holds the coefficients of the closed forms that the simulator runs on: decode step, prefill, KV memory, role
switch, weight publish, training and KV migration. Every section carries a `provenance` text that says where its numbers
come from. Times in a file are milliseconds where the key ends in `_ms`; every method here returns seconds.
"""

from __future__ import annotations

import bisect
import math
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from gyre.errors import InputError
from gyre.toml_file import parse_toml, read_toml, toml_names, validated

from .hardware_sections import Cell, Decode, Engine, Migration, Model, Prefill, Publish, Switch, Training

if TYPE_CHECKING:
    from .serving import EngineSpec

_BUNDLED = files(__package__).joinpath("hardware")
_GUIDE = "see docs/hardware.md"


class HardwareProfile(BaseModel):
    """All costs of one model on one kind of cell. Frozen; unknown keys are refused. Formulas: docs/hardware.md."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Annotated[str, Field(min_length=1)]
    provenance: str = "not stated"
    model: Model
    engine: Engine
    decode: Decode
    prefill: Prefill
    switch: Switch
    publish: Publish
    training: Training
    migration: Migration
    cell: Cell

    @model_validator(mode="after")
    def _cell_holds_engines(self) -> Self:
        if self.cell.gpus % self.engine.gpus_per_engine:
            raise ValueError("cell.gpus is not a multiple of engine.gpus_per_engine")
        if self.sequence_kv_bytes(1) > self.engine.kv_memory_bytes:
            raise ValueError("engine.kv_memory_bytes does not hold one sequence of one token")
        return self

    @property
    def engines_per_cell(self) -> int:
        """Engines that a cell runs while it serves."""
        return self.cell.gpus // self.engine.gpus_per_engine

    @property
    def kv_tokens(self) -> int:
        """Tokens of KV that one engine holds; a sequence's fixed state also takes its share of them."""
        return int(self.engine.kv_memory_bytes // self._engine_bytes_per_token)

    @property
    def publish_s(self) -> float:
        """Seconds to bring new weights to every engine."""
        rate = self.publish.bytes_per_s
        return self.publish.fixed_s + (0.0 if rate is None else self.model.weights_bytes / rate)

    @property
    def pull_s(self) -> float:
        """Seconds for a satellite to take the core's snapshot."""
        return self.publish_s if self.publish.pull_s is None else self.publish.pull_s

    @property
    def migration_s_per_token(self) -> float:
        """Seconds to move one token's KV to another engine: one copy crosses the network, replicas are made there."""
        return self.model.kv_bytes_per_token / self._migration_bytes_per_s

    def migration_s(self, tokens: float) -> float:
        """Seconds to move one sequence of `tokens` with its fixed state."""
        return tokens * self.migration_s_per_token + self.model.kv_bytes_per_sequence / self._migration_bytes_per_s

    def decode_step_s(self, n: float, context_sum_tokens: float) -> float:
        """Seconds of one decode iteration with `n` active sequences whose contexts sum to `context_sum_tokens`."""
        decode = self.decode
        missed = math.pow(1.0 - decode.experts_per_token / decode.experts, n)
        step_ms = decode.a_ms + decode.e_ms * (1.0 - missed) + decode.b_ms * n + decode.c_ms * context_sum_tokens
        return step_ms / 1e3

    def prefill_s(self, new_tokens: float, cached_tokens: float) -> float:
        """Seconds to prefill `new_tokens` behind `cached_tokens` whose KV is there; 0 where nothing is new."""
        if new_tokens <= 0:
            return 0.0
        p = self.prefill
        return (p.p0_ms + p.p1_ms * new_tokens + p.p2_ms * new_tokens * (cached_tokens + new_tokens / 2)) / 1e3

    def sequence_kv_bytes(self, context_tokens: float) -> float:
        """Engine memory, in bytes, that one sequence of `context_tokens` takes."""
        return context_tokens * self._engine_bytes_per_token + self.model.kv_bytes_per_sequence

    def capacity(self, speed_share: float, mean_context_tokens: int) -> int:
        """Executions that a cell serves at `speed_share` of the unloaded decode speed.

        The largest n per engine, at least 1 and at most `max_running`, for which a step of one sequence takes at least
        `speed_share` of a step of n, all of `mean_context_tokens`, and whose KV fits; times the engines of a cell.

        Raises ValueError unless 0 < speed_share <= 1 and mean_context_tokens >= 0.
        """
        if not 0.0 < speed_share <= 1.0:
            raise ValueError(f"speed_share must lie in (0, 1], got {speed_share}")
        if mean_context_tokens < 0:
            raise ValueError(f"mean_context_tokens must not be negative, got {mean_context_tokens}")
        slowest_s = self.decode_step_s(1, mean_context_tokens) / speed_share
        fitting = int(self.engine.kv_memory_bytes // max(self.sequence_kv_bytes(mean_context_tokens), 1e-9))
        candidates = range(1, min(self.engine.max_running, max(fitting, 1)) + 1)
        served = bisect.bisect_right(
            candidates, slowest_s, key=lambda n: self.decode_step_s(n, n * mean_context_tokens)
        )
        return max(served, 1) * self.engines_per_cell

    def engine_spec(self) -> EngineSpec:
        """The coefficients that the compiled serving model takes, in seconds and tokens."""
        from .serving import EngineSpec

        return EngineSpec(
            step_base_s=self.decode.a_ms / 1e3,
            step_expert_s=self.decode.e_ms / 1e3,
            expert_share=self.decode.experts_per_token / self.decode.experts,
            step_sequence_s=self.decode.b_ms / 1e3,
            step_context_s=self.decode.c_ms / 1e3,
            prefill_base_s=self.prefill.p0_ms / 1e3,
            prefill_token_s=self.prefill.p1_ms / 1e3,
            prefill_attention_s=self.prefill.p2_ms / 1e3,
            kv_tokens=self.kv_tokens,
            kv_sequence_tokens=self.kv_sequence_tokens,
            max_running=self.engine.max_running,
            max_prefill_tokens=self.engine.max_prefill_tokens,
            migration_s_per_token=self.migration_s_per_token,
        )

    @property
    def kv_sequence_tokens(self) -> int:
        """A sequence's fixed state in tokens of KV, rounded up."""
        return int(-(-self.model.kv_bytes_per_sequence // self._engine_bytes_per_token))

    @property
    def _engine_bytes_per_token(self) -> float:
        return self.model.kv_bytes_per_token * self.engine.kv_replication

    @property
    def _migration_bytes_per_s(self) -> float:
        migration = self.migration
        return migration.nics * migration.nic_bytes_per_s * migration.efficiency


def hardware_names() -> tuple[str, ...]:
    """Names of the bundled profiles, sorted."""
    return toml_names(_BUNDLED)


def load_hardware(name_or_path: str | Path) -> HardwareProfile:
    """Read a profile: a file or a run's folder where one has that path, otherwise the bundled profile of that name.

    A run's folder stands for what was measured on that run (`gyre.sim.calibration`). A file may set
    `base = "<bundled name>"` and then give only the sections and keys that differ.

    Raises InputError (one line: file, field, remedy) where nothing is found or the content is not a valid profile.
    """
    path = Path(name_or_path)
    if str(name_or_path) and path.is_dir():
        from gyre.workload.recorded_run.marker import is_run_folder

        from .calibration import measured_hardware

        if is_run_folder(path):
            return measured_hardware(path)
    if path.is_file():
        return validated(HardwareProfile, _with_base(read_toml(path, _GUIDE), str(path)), str(path), _GUIDE)
    if isinstance(name_or_path, Path) or path.suffix == ".toml" or path.name != str(name_or_path):
        raise InputError(f"{path}: no such hardware file; give a TOML file or one of {', '.join(hardware_names())}")
    return validated(HardwareProfile, _bundled(name_or_path, f"hardware {name_or_path!r}"), f"{name_or_path}.toml")


def _bundled(name: str, source: str) -> dict[str, Any]:
    if name not in hardware_names():
        raise InputError(f"{source}: no such profile; give a TOML file or one of {', '.join(hardware_names())}")
    return parse_toml(_BUNDLED.joinpath(f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


def _with_base(table: dict[str, Any], source: str) -> dict[str, Any]:
    """The file's table laid over its base's; a section that changes loses the base's provenance."""
    if "base" not in table:
        return table
    base = table.pop("base")
    if not isinstance(base, str):
        raise InputError(f"{source}: base: must be a string; give one of {', '.join(hardware_names())}")
    merged = _bundled(base, f"{source}: base {base!r}")
    merged |= {"name": Path(source).stem, "provenance": f"changed from {base}: {', '.join(sorted(table))}"}
    for key, value in table.items():
        below = merged.get(key)
        if isinstance(value, dict) and isinstance(below, dict):
            kept = _without_other_rate(below, value) if key == "training" else below
            merged[key] = kept | {"provenance": f"changed from {base}: {', '.join(sorted(value))}"} | value
        else:
            merged[key] = value
    return merged


def _without_other_rate(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Training's two ways to state a rate exclude each other: the file's choice replaces the base's."""
    if "peak_flops" in above or "mfu" in above:
        return {key: value for key, value in below.items() if key != "tokens_per_s_per_gpu"}
    return below
