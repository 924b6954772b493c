"""Workloads and hardware so plain that a run's times can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gyre.config import RunSettings
from gyre.events import UpdateApplied
from gyre.journal import Entry
from gyre.sim.hardware_profile import HardwareProfile
from gyre.sim.run import Run
from gyre.workload.program import Program


def program(groups: Sequence[Sequence[float]], *, decode: bool = False, path_tokens: int = 1) -> Program:
    """Executions of given lengths in seconds, one call each: a wait, or with `decode` one token a second."""
    lengths = np.array([length for group in groups for length in group], np.float64)
    sizes = [len(group) for group in groups]
    count = len(lengths)
    zeros = np.zeros(count)
    return Program(
        execution_ids=tuple(f"e{index}" for index in range(count)),
        group=np.repeat(np.arange(len(groups)), sizes).astype(np.int32),
        group_ids=tuple(f"g{index}" for index in range(len(groups))),
        call_start=np.arange(count + 1),
        thread_count=np.ones(count, np.int32),
        setup_s=zeros,
        scoring_s=zeros,
        outcome=np.zeros(count, np.int8),
        reward=np.ones(count),
        thread=np.zeros(count, np.int32),
        role=np.zeros(count, np.int8),
        input_tokens=np.ones(count, np.int64),
        output_tokens=lengths.astype(np.int64) + 1 if decode else np.ones(count, np.int64),
        prefix_call=np.full(count, -1, np.int32),
        prefix_tokens=np.zeros(count, np.int64),
        wait_s=zeros if decode else lengths,
        dependencies=np.zeros(count, np.int32),
        successor_start=np.zeros(count + 1, np.int64),
        successor=np.zeros(0, np.int32),
        path_start=np.arange(count + 1),
        path_tokens=np.full(count, path_tokens, np.int64),
    )


def hardware(
    *, update_s: float = 0.0, train_tokens_per_s: float = 1e18, switch_s: float = 0.0, **engine: Any
) -> HardwareProfile:
    """One GPU a cell; a decode step takes one second whatever the batch; prefill and publish take no time."""
    return HardwareProfile.model_validate(
        {
            "name": "toy",
            "model": {
                "active_parameters": 1.0,
                "total_parameters": 1.0,
                "weights_bytes": 1e-9,
                "kv_bytes_per_token": 1.0,
            },
            "engine": {
                "gpus_per_engine": 1,
                "kv_memory_bytes": 1e9,
                "max_running": 1000,
                "max_prefill_tokens": 1_000_000,
                **engine,
            },
            "decode": {"a_ms": 1000.0, "b_ms": 0.0, "c_ms": 0.0},
            "prefill": {"p0_ms": 1e-12, "p1_ms": 0.0, "p2_ms": 0.0},
            "switch": {"to_training_s": switch_s, "to_serving_s": switch_s},
            "publish": {"bytes_per_s": 1e18},
            "training": {
                "tokens_per_s_per_gpu": train_tokens_per_s,
                "micro_step_overhead_s": 0.0,
                "update_s": update_s,
            },
            "migration": {"nics": 1, "nic_bytes_per_s": 1e9, "efficiency": 1.0},
            "cell": {"gpus": 1},
        }
    )


def settings(
    policy: str, *, cells: int, capacity: int, groups: int, size: int, steps: int, **policy_keys: Any
) -> RunSettings:
    """Settings of a run on toy hardware, groups in the order of the workload."""
    return RunSettings.model_validate(
        {
            "policy": policy,
            "policy_settings": {"phi": 0, "mu": 1, **policy_keys},
            "workload": {"trace": "toy", "order": "trace"},
            "cluster": {"hardware": "toy", "cells": cells, "capacity": capacity},
            "training": {"steps": steps, "groups_per_step": groups, "group_size": size, "min_group_members": 1},
        }
    )


def simulate(run_settings: RunSettings, workload: Program, on: HardwareProfile) -> list[Entry]:
    """Simulate; return the journal's entries."""
    entries: list[Entry] = []
    Run(run_settings, workload, on).simulate(entries.append)
    return entries


def update_times(entries: Sequence[Entry]) -> list[float]:
    """Times at which the updates were applied."""
    return [entry.time_s for entry in entries if isinstance(entry, UpdateApplied)]
