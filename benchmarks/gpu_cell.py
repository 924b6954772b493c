"""What a cell does on a GPU: trainer parity, memory given away and taken again, a cell's moves, speed.

`gpu_cell.py [MODEL] [--out FOLDER] [--json]`. Each check is a process of its own with a time limit. It is ok, has
failed, or could not run; then its line says why. Without MODEL it makes random models. On a machine without a GPU the
checks run on the CPU as far as they can. `--list` says what there is, `--only NAME` takes some of it.

Most checks need torch, megatron-core, safetensors, transformers and what gyre itself needs, but no engine and no
network. Exit status 0: nothing failed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from gpu_cell_models import Site
from gpu_cell_runner import Outcome, Sheet, Verdict, report, run_apart, shown, table

_TRAINER: Final = ("torch", "megatron.core", "safetensors", "huggingface_hub", "pydantic")
_MODELS: Final = (*_TRAINER, "transformers", "tokenizers")
_ENGINE: Final = (*_MODELS, "sglang", "aiohttp", "orjson", "starlette", "uvicorn")
_ATTENTION: Final = "gpu_cell_trainer:attention"
_NAMED: Final = ("torch", "megatron-core", "sglang", "transformers", "flash-attn", "transformer-engine", "triton")
_NO_BACKWARD: Final = "flex attention has no backward pass on a CPU"
_KERNELS: Final = "its kernels are for GPUs alone"
_OVER: Final = "the time for all checks is over: give --total-s more, or fewer checks"
_CPU_PATIENCE: Final = 3.0  # a CPU's limits over a GPU's
_TOTAL_S: Final = 540.0
_LEAST_S: Final = 15.0  # with less left a check is not begun


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to find out."""

    name: str
    work: str  # module:function, of this folder
    limit_s: float
    needs: tuple[str, ...] = _MODELS  # packages
    arguments: tuple[str, ...] = ()  # of the function
    gpu_for: str = ""  # why it cannot run on a CPU; "": it can


CHECKS: Final = (
    Check("machine", "gpu_cell:machine", 60, ("torch",)),
    Check("parity-float32", "gpu_cell_trainer:parity_dense", 120),
    Check("parity-float32-experts", "gpu_cell_trainer:parity_experts", 120),
    Check("parity-bfloat16", "gpu_cell_trainer:parity_bfloat16", 120),
    Check("attention-sdpa", _ATTENTION, 120, arguments=("sdpa",)),
    Check("checkpoint", "gpu_cell_trainer:checkpoint", 120),
    Check("trainer-memory-float32", "gpu_cell_memory:memory", 120, _TRAINER, ("float32",)),
    Check("trainer-memory-bfloat16", "gpu_cell_memory:memory", 120, _TRAINER, ("bfloat16",)),
    Check("engine-memory", "gpu_cell_engine:memory", 300, _ENGINE),
    Check("cell", "gpu_cell_whole:whole", 300, _ENGINE),
    Check("trainer-speed-sdpa", "gpu_cell_memory:speed", 120, _TRAINER, ("sdpa",)),
    Check("attention-flex", _ATTENTION, 180, arguments=("flex",), gpu_for=_NO_BACKWARD),
    Check("trainer-speed-flex", "gpu_cell_memory:speed", 180, _TRAINER, ("flex",), _NO_BACKWARD),
    Check("attention-flash", _ATTENTION, 120, (*_MODELS, "flash_attn"), ("flash",), _KERNELS),
    Check("attention-te", _ATTENTION, 120, (*_MODELS, "transformer_engine"), ("transformer_engine",), _KERNELS),
    Check("engine-speed", "gpu_cell_engine:speed", 300, _ENGINE),
    Check("run", "gpu_cell_whole:run", 400, _ENGINE),
)
"""In the order of what matters, for time may run out."""


def machine(site: Site, sheet: Sheet) -> None:
    """What is here."""
    import torch

    sheet.note(python=sys.version.split()[0], cores=len(os.sched_getaffinity(0)), cuda=torch.version.cuda)
    sheet.note(gpus=torch.cuda.device_count(), versions={name: _version(name) for name in _NAMED})
    if site.on_gpu:
        gpu = torch.cuda.get_device_properties(0)
        sheet.note(gpu=gpu.name, gpu_bytes=gpu.total_memory, capability=f"{gpu.major}.{gpu.minor}")


def main() -> int:
    """Run the checks; return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is ended first
    arguments = _arguments()
    if arguments.list:
        print("\n".join(check.name for check in CHECKS))
        return 0
    patience = 1.0 if arguments.device == "cuda" else _CPU_PATIENCE
    total_s = _TOTAL_S * patience if arguments.total_s is None else arguments.total_s
    site = Site(arguments.out.absolute(), arguments.model and arguments.model.absolute(), arguments.device)
    if arguments.result is not None:
        (check,) = (one for one in CHECKS if one.name == arguments.only[0])
        report(check.name, partial(_worked, check, site), arguments.result)
        return 0
    _make(site.folder)
    chosen = [check for check in CHECKS if not arguments.only or check.name in arguments.only]
    outcomes = _all(chosen, site, time.monotonic() + total_s)
    (site.folder / "gpu_cell.json").write_text(json.dumps([asdict(one) for one in outcomes], indent=2) + "\n")
    text = json.dumps([asdict(one) for one in outcomes]) if arguments.json else table(outcomes)
    (site.folder / "gpu_cell.txt").write_text(table(outcomes) + "\n")
    print(text)
    return int(any(one.verdict is Verdict.FAILED for one in outcomes))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        sys.exit(f"gpu_cell.py: --out {folder}: cannot be made ({error.strerror}); give another folder")


def _all(checks: Sequence[Check], site: Site, end_s: float) -> list[Outcome]:
    outcomes = []
    for check in checks:
        print(f"{check.name} ...", file=sys.stderr, flush=True)
        outcomes.append(_outcome(check, site, end_s))
        one = outcomes[-1]
        print(f"    {one.verdict} {one.seconds:.1f} s {one.reason} {_short(one.figures)}", file=sys.stderr, flush=True)
    return outcomes


def _outcome(check: Check, site: Site, end_s: float) -> Outcome:
    if check.gpu_for and not site.on_gpu:
        return Outcome(check.name, Verdict.UNRUN, f"no CUDA: {check.gpu_for}")
    missing = [name for name in check.needs if not _is_there(name)]
    if missing:
        return Outcome(check.name, Verdict.UNRUN, f"not installed: {', '.join(missing)}")
    left_s = end_s - time.monotonic()
    if left_s < _LEAST_S:
        return Outcome(check.name, Verdict.UNRUN, _OVER)
    result, log = site.folder / f"{check.name}.json", site.folder / f"{check.name}.log"
    command = [sys.executable, __file__, "--only", check.name, "--device", site.device, "--out", str(site.folder)]
    more = ["--result", str(result), *([] if site.model is None else [str(site.model)])]
    limit_s = check.limit_s if site.on_gpu else check.limit_s * _CPU_PATIENCE
    outcome = run_apart(check.name, [*command, *more], result, log, min(limit_s, left_s))
    cut_short = left_s < limit_s and outcome.killed
    return replace(outcome, verdict=Verdict.UNRUN, reason=_OVER) if cut_short else outcome


def _worked(check: Check, site: Site, sheet: Sheet) -> None:
    module, _, function = check.work.partition(":")
    getattr(import_module(module), function)(site, sheet, *check.arguments)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a Hugging Face folder; left out: random models")
    parser.add_argument("--out", type=Path, help="for models, logs and gpu_cell.json; left out: a new folder")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[one.name for one in CHECKS], help="these checks")
    parser.add_argument("--list", action="store_true", help="print the checks' names")
    parser.add_argument("--total-s", type=float, help="seconds for all checks; default 540, on a CPU 3 times that")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="left out: cuda where it is there")
    parser.add_argument("--result", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.device is None and not arguments.list:
        arguments.device = _device()
    if arguments.model is not None and not (arguments.model / "config.json").is_file():
        parser.error(f"{arguments.model}: no Hugging Face folder: it has no config.json")
    if arguments.out is None and not arguments.list:
        arguments.out = Path(tempfile.mkdtemp(prefix="gpu_cell-"))
    return arguments


def _device() -> str:
    """Look for a GPU without taking memory on it."""
    if not _is_there("torch"):
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _short(figures: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {shown(value)}" for name, value in figures.items())


if __name__ == "__main__":
    sys.exit(main())
