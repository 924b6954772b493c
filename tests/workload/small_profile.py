"""A small profile for tests, with every feature on."""

from __future__ import annotations

from typing import Any

from gyre.workload.profiles import Profile


def small_profile(**changes: Any) -> Profile:
    """About ten calls an execution, with every feature on; `changes` replace whole tables."""
    tables: dict[str, Any] = {
        "name": "small",
        "description": "for tests",
        "scale": "made up for tests",
        "hardware": "qwen3-8b-tp1",
        "cells": 2,
        "training": {"group_size": 4, "groups_per_step": 4, "steps": 2},
        "nominal": {"decode_tokens_per_s": 50.0, "prefill_tokens_per_s": 5000.0},
        "calls": {"median": 10.0, "sigma_group": 0.6, "sigma_member": 0.3, "cap": 200.0},
        "input_tokens": {"median": 1000.0, "sigma_group": 0.2},
        "growth_tokens": {"median": 100.0, "sigma": 1.0},
        "output_tokens": {"median": 60.0, "sigma": 0.8, "tail_share": 0.02, "tail_from": 500.0, "cap": 2000.0},
        "tool_wait_s": {"median": 0.5, "sigma": 1.0, "tail_share": 0.05, "tail_from": 60.0, "cap": 600.0},
        "setup_s": {"median": 6.6, "sigma": 2.0, "cap": 1000.0},
        "scoring_s": {"median": 5.0, "sigma": 1.0},
        "reward": {"flat_groups": 0.5, "levels": 4},
        "compaction": {
            "threshold_tokens": 2500,
            "summary_tokens": {"median": 200.0, "sigma": 0.3},
            "context_after_tokens": {"median": 1200.0, "sigma": 0.1},
        },
        "sub_agents": {"group_share": 0.5, "per_call": 0.3, "width": 1.5, "calls": {"median": 3.0, "sigma": 0.5}},
        "failures": {"setup": 0.05, "scoring": 0.05, "retry": 0.05},
        "timeouts": {"overall_s": 3600.0},
        "provenance": {"all": "made up"},
    }
    tables["sub_agents"]["input_tokens"] = {"median": 600.0, "sigma": 0.2}
    return Profile.model_validate(tables | changes)
