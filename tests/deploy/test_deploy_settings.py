"""What `gyre run` refuses before anything starts: one line that names file, field and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from click.testing import CliRunner

for package in ("megatron.core", "prometheus_client", "starlette", "transformers"):
    pytest.importorskip(package, reason="a real run needs the extra gyre[run]")

from run_site import Site, settings_of  # noqa: E402

from gyre.backends.deploy.settings import OPERATIONAL, DeploySettings  # noqa: E402
from gyre.backends.deploy.tasks_file import read_tasks  # noqa: E402
from gyre.cli import main  # noqa: E402
from gyre.config import RunSettings  # noqa: E402
from gyre.toml_file import parse_toml  # noqa: E402

pytestmark = pytest.mark.usefixtures("sglang_is_there")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site.make(tmp_path_factory.mktemp("settings") / "site")


def dry(site: Site, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, site.arguments("--dry-run", *more))
    return result.exit_code, result.output


REFUSED = [
    ("polcy=elastic", "settings.toml: polcy: unknown key; known keys: policy, policy_settings, seed, training"),
    ("policy=elastik", "no policy 'elastik': choose one of colocate, async, elastic, or give your own as module:Class"),
    ("policy=no_such_module:Mine", "policy 'no_such_module:Mine' cannot be loaded"),
    ("policy_settings.join_backlogg=1", "policy elastic: join_backlogg: unknown key; known keys: phi, mu"),
    ("training.steps=true", "settings.toml: training.steps: true or false; give a number"),
    ("engine.ready_s=true", "settings.toml: engine.ready_s: true or false; give a number"),
    ("training.steps=0", "settings.toml: training.steps: Input should be greater than or equal to 1"),
    ("buffer.capacity_groups=1", "buffer.capacity_groups: 1, but a step takes 2 groups"),
    ("buffer.max_stalenes=1", "settings.toml: buffer.max_stalenes: unknown key; known keys: order, capacity_groups"),
    ("model.folder=nowhere", "model.folder: {folder}/nowhere: no such folder; give one, or make one with gyre model"),
    ("cells.layout.tensor=3", "cells.layout.tensor is 3, which does not divide the model's 2 key-value heads"),
    ("cells.pin=[[0]]", "cells.pin: 1 lists of CPUs for 2 cells; give one for each, or none"),
    ("cells.pin=[[0],[9999]]", "cells.pin: cell 1 is given CPU 9999"),
    ("cells.devise=cpu", "settings.toml: cells.devise: unknown key; known keys: count, standalone, capacity, device"),
    ("engine.redy_s=3", "settings.toml: engine.redy_s: unknown key; known keys: drain_s, lost_s, probe_s, flags"),
    ("engine.publishing.policy=drop", "settings.toml: engine.publishing.policy: Input should be 'retract', 'abort'"),
    ("sampling.temperature=0", "sampling.temperature: 0; training needs more than 0"),
    ("sampling.top_p=3", "sampling.top_p: 3; give 0 to 1"),
    ("sampling.top_p=0", "sampling.top_p: 0; give more than 0"),
    ("sampling.top_k=0", "sampling.top_k: 0; give -1 for all tokens, or 1 or more"),
    ("sampling.min_new_tokens=9", "sampling.min_new_tokens: 9; engine and trainer would disagree on log-probabilities"),
    ("sampling.max_new_tokens=0", "sampling.max_new_tokens: 0; give 1 or more"),
    ("proxy.port=99999", "proxy.port: 99999; give 0 to 65535"),
    ("engine.checks.every_s=0", "engine.checks.every_s: 0; give 0.001 or more"),
    ("cells.attention=fast", "attention is 'fast': give one of sdpa, flash"),
    ("trainer.temperature=0.5", "settings.toml: trainer.temperature: unknown key"),
    ('harness.command=["no-such-program"]', "harness command: no program 'no-such-program'"),
    ('harness.command=["./mine"]', "harness command: './mine' would be looked for in the folder of each execution"),
    ("harness.limits.open_files=1", "harness.limits.open_files: 1; give 3 or more"),
    ("harness.farewell_s=-1", "harness.farewell_s: -1; give 0 or more"),
    ("harness.model=other", "harness.model: is not set here; give proxy.model"),
    ("harness.overall_timeout_s=9", "harness.overall_timeout_s: is not set here; give limits.overall_timeout_s"),
    ("selection.max_paths=9", "selection.max_paths: is not set here; give training.max_paths"),
    ("proxy.descriptor=3", "proxy.descriptor: is not set here; give proxy.host and proxy.port"),
    ("tasks.file=none.jsonl", "{folder}/none.jsonl: the tasks cannot be read (No such file or directory)"),
    ("evaluator.kind=guess", "settings.toml: evaluator: kind: 'guess' is unknown; give one of command, pytest"),
    ('evaluator.command=["no-such-judge"]', "evaluator command: no program 'no-such-judge'; install it, or give its"),
    ("evaluator.jobs=0", "settings.toml: evaluator: jobs: 0; give a number of evaluations at once, 1 or more"),
    ("evaluator.comand=[]", "settings.toml: evaluator: comand: unknown key; known keys: kind, budget_s"),
    ("launch.kind=slurm", "settings.toml: launch.kind: Input should be 'local' or 'ray'"),
    ("watch.kl_hihg=1", "settings.toml: watch.kl_hihg: unknown key"),
]


@pytest.mark.parametrize(("override", "said"), REFUSED, ids=[override for override, _ in REFUSED])
def test_what_cannot_work_is_refused_in_one_line(site: Site, override: str, said: str) -> None:
    code, output = dry(site, "--set", override)
    assert code == 2
    assert said.format(folder=site.folder) in output
    assert output.startswith("gyre: ")
    assert output.count("\n") == 1
    assert not site.out.exists()


def test_a_policy_that_leaves_no_cell_to_serve_is_refused_as_in_the_simulator(site: Site) -> None:
    code, output = dry(site, "--set", "policy=async", "--set", 'policy_settings={"train_cells": 2}')
    assert (code, "train_cells: 2 of 2 cells train, none is left to serve" in output) == (2, True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("[1]", "line 2: no JSON object"),
        ('{"name": ', "line 2: not JSON"),
        ('{"name": "one"}', "line 2: name 'one' is there twice; give another"),
        ('{"prompt": "x"}', "line 2: name: missing"),
        ('{"name": "b", "promt": "x"}', "line 2: promt: unknown key; known keys: name, prompt, files, data"),
        ('{"name": "b\\u0000"}', "line 2: name: holds U+0000, which no process can be given; take it out"),
        ('{"name": "b", "files": "no"}', "line 2: files: {folder}/no is no folder; give one, or leave it out"),
    ],
)
def test_a_line_that_is_no_task_is_named_by_its_number(site: Site, line: str, said: str) -> None:
    (site.folder / "other.jsonl").write_text('{"name": "one"}\n' + line + "\n")
    code, output = dry(site, "--set", "tasks.file=other.jsonl")
    assert code == 2
    assert f"{site.folder}/other.jsonl, " + said.format(folder=site.folder) in output


def test_tasks_may_begin_with_a_byte_order_mark_and_hold_any_end_of_line_in_their_text(tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    prompts = ["a\u2028b", "c\x85d", "e\u2029f"]
    lines = [json.dumps({"name": str(n), "prompt": text}, ensure_ascii=False) for n, text in enumerate(prompts)]
    path.write_bytes("\ufeff".encode() + "\r\n".join(lines).encode() + b"\r\n")
    assert [task.prompt for task in read_tasks(path)] == prompts


def test_a_prompt_that_no_process_can_be_given_is_refused(site: Site, tmp_path: Path) -> None:
    """Linux hands a process at most 128 KiB in one argument, and in one variable."""
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"name": "long", "prompt": "\u00e9" * 70_000}) + "\n")
    for key in ('harness.command=["sh", "-c", "true", "{prompt}"]', "harness.environment.ASKED={prompt}"):
        code, said = dry(site, "--set", f"tasks.file={path}", "--set", key)
        assert code == 2
        assert "task 'long': prompt: makes an argument or variable of 140,000 bytes" in said
    assert dry(site, "--set", f"tasks.file={path}")[0] == 0, "a file holds it"


def test_what_may_change_in_a_run_that_goes_on_are_settings(site: Site) -> None:
    pinned = DeploySettings.of(settings_of(cells={"count": 1, "capacity": 4, "pin": [[0]]}), site.settings)
    for key in OPERATIONAL:
        value: Any = pinned.header()
        for part in key.split("."):
            value = value[part]


def test_what_a_dry_run_prints_gives_the_same_settings_again(site: Site, tmp_path: Path) -> None:
    code, output = dry(site, "--set", 'harness.command=["sh", "{here}/run.sh"]')
    assert code == 0
    printed = parse_toml(output, "printed")
    assert printed["harness"]["command"] == ["sh", f"{site.folder}/run.sh"]
    elsewhere = tmp_path / "settings.toml"
    assert DeploySettings.of(printed, elsewhere).header() == DeploySettings.of(printed, site.settings).header()
    assert parse_toml(tomli_w.dumps(DeploySettings.of(printed, elsewhere).header()), "again") == printed


def test_the_scheduler_is_told_the_same_as_in_a_simulated_run(site: Site) -> None:
    """One file of the scheduler's settings for both: a policy that was tuned offline is deployed unchanged."""
    scheduler: dict[str, Any] = {
        "policy": "elastic",
        "policy_settings": {"phi": 1.5, "mu": 3, "join_backlog": 0.4, "order": [1]},
        "seed": 7,
        "training": {"steps": 5, "groups_per_step": 2, "group_size": 4, "score_attempts": 2, "score_timeout_s": 9.0},
        "groups": {"redundancy": 1, "on_loss": "top_up"},
        "buffer": {"order": "newest", "max_staleness": 6},
    }
    simulated = RunSettings(**scheduler, workload={"profile": "x"}, cluster={"hardware": "y", "cells": 2})
    real = DeploySettings.of(settings_of(**scheduler), site.settings)
    assert real.make_policy().settings == simulated.make_policy().settings
    ours, theirs = real.controller_settings(), simulated.controller_settings()
    assert ours.keeps_until_checkpoint
    assert not theirs.keeps_until_checkpoint
    for name in (
        "steps",
        "groups_per_step",
        "group_size",
        "score_attempts",
        "score_timeout_s",
        "groups",
        "buffer",
        "seed",
    ):
        assert getattr(ours, name) == getattr(theirs, name)


def test_one_temperature_samples_and_trains(site: Site) -> None:
    settings = DeploySettings.of(settings_of(sampling={"max_new_tokens": 5, "temperature": 0.7}), site.settings)
    assert settings.trainer_settings.temperature == settings.proxy_settings.sampling.temperature == 0.7
