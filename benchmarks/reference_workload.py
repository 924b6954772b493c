"""The simulator's reference workload: 512 executions in 64 groups of 8, 300 calls each, on 8 cells."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
from serving_speed import program_of_chains

from gyre.config import RunSettings
from gyre.sim.run import Run, load_cell
from gyre.workload.program import Program

GROUPS, GROUP_SIZE, CALLS, CELLS = 64, 8, 300, 8
EXECUTIONS: Final = GROUPS * GROUP_SIZE


def program_of_groups(groups: int = GROUPS, calls: int = CALLS, seed: int = 0) -> Program:
    """Chains of calls in groups of 8; each execution is set up, scored, and trained on as the one path that it is."""
    executions = groups * GROUP_SIZE
    program = program_of_chains(executions, calls, seed)
    rng = np.random.default_rng(seed + 1)
    lasts = program.call_start[1:] - 1
    return replace(
        program,
        group=np.repeat(np.arange(groups, dtype=np.int32), GROUP_SIZE),
        group_ids=tuple(f"group {group}" for group in range(groups)),
        setup_s=rng.uniform(5.0, 600.0, executions),
        scoring_s=rng.uniform(5.0, 60.0, executions),
        path_start=np.arange(executions + 1, dtype=np.int64),
        path_tokens=program.input_tokens[lasts] + program.output_tokens[lasts],
    )


def elastic_run(program: Program, steps: int) -> Run:
    """The program under the elastic policy, on 8 cells of one engine each (Qwen3-235B-A22B on 8 GPUs)."""
    groups = len(program.group_ids)
    settings = RunSettings.model_validate(
        {
            "policy": "elastic",
            "workload": {"trace": "reference"},
            "cluster": {
                "hardware": "qwen3-235b-a22b-tp8",
                "cells": CELLS,
                "gpus_per_cell": 8,
                "capacity": max(1, groups * GROUP_SIZE // CELLS),
            },
            "training": {"steps": steps, "groups_per_step": groups, "group_size": GROUP_SIZE},
        }
    )
    return Run(settings, program, load_cell(settings))
