"""Starting servers; test_engines_real.py starts real ones."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gyre.backends.engines import launching
from gyre.backends.engines.launching import LaunchError, ServerSettings, start_sglang


def test_a_server_that_ends_is_told_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho no such model: $3\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(launching.sys, "executable", str(program))
    server = start_sglang(ServerSettings(tmp_path / "absent", tmp_path / "server.log"))
    with pytest.raises(LaunchError, match=r"ended; its log .*\n.*no such model: --model-path=.*absent"):
        server.wait_ready(30)


def test_ending_a_server_ends_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600 &\necho $! > child\nwait\n")
    program.chmod(0o755)
    monkeypatch.setattr(launching.sys, "executable", str(program))
    monkeypatch.chdir(tmp_path)
    server = start_sglang(ServerSettings(tmp_path, tmp_path / "server.log"))
    until = time.monotonic() + 60
    while not (tmp_path / "child").exists() or not (tmp_path / "child").read_text():
        assert time.monotonic() < until, (tmp_path / "server.log").read_text()
        time.sleep(0.01)
    child = int((tmp_path / "child").read_text())
    server.end(timeout_s=0.2)
    server.end()  # once more does nothing
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


@pytest.mark.parametrize("module", ["sgl_kernel", "torchvision"])
def test_stand_ins_import_and_refuse_to_be_called(module: str) -> None:
    stubs = Path(launching.__file__).parent / "cpu_stubs"
    uses = {
        "sgl_kernel": "from sgl_kernel import rmsnorm as called",
        "torchvision": "from torchvision.transforms import functional; import torchvision.io.image\n"
        "called = functional.InterpolationMode.resize",
    }
    code = f"{uses[module]}\ntry:\n    called()\nexcept NotImplementedError:\n    print('refused')"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(stubs)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "refused\n"
