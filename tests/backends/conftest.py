"""A tiny model and a real SGLang server that serves it, made once a session."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

CONTEXT_TOKENS: Final = 32_768  # a harness's first prompt alone is longer than what the tiny model has otherwise

sys.path.insert(0, str(Path(__file__).parent))  # helpers beside the tests


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny random Qwen3, seed 0."""
    return _model(tmp_path_factory, 0)


@pytest.fixture(scope="session")
def other_tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the same model with other weights, seed 1."""
    return _model(tmp_path_factory, 1)


@pytest.fixture(scope="session")
def sglang_engine(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A running SGLang server (`gyre.backends.engines.launching.Server`, `.url`) of `tiny_model`, version 0, on CPU.

    Shared by the session: a test that changes its weights or pauses it puts that right again. Modules that use it are
    named `test_*_real.py`: they all run in one xdist worker.
    """
    pytest.importorskip("sglang", reason="a real engine needs SGLang")
    from small_server import SMALL_SERVER

    from gyre.backends.engines.launching import ServerSettings, start_sglang

    log = tmp_path_factory.mktemp("sglang") / "server.log"
    server = start_sglang(ServerSettings(tiny_model, log, cpu=True, flags=SMALL_SERVER))
    try:
        server.wait_ready(300)
        yield server
    finally:
        server.end(signal.SIGKILL)


@pytest.fixture(scope="session")
def recomputed(tiny_model: Path, other_tiny_model: Path) -> Callable[..., float]:
    """The largest difference to transformers in a reply's log-probs; by version, where weights changed in it."""
    torch = pytest.importorskip("torch", reason="log-probs are computed again with torch")
    transformers = pytest.importorskip("transformers", reason="log-probs are computed again with transformers")
    from logprob_check import differences

    models = [
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for folder in (tiny_model, other_tiny_model)
    ]
    return lambda generation, chunks: max(differences(dict(enumerate(models)), generation, chunks).values())


def _model(factory: pytest.TempPathFactory, seed: int) -> Path:
    pytest.importorskip("torch", reason="a tiny model is made with torch")
    pytest.importorskip("transformers", reason="a tiny model is made with transformers")
    from gyre.backends.models.tiny import TinySettings, make_tiny_model

    folder = factory.mktemp(f"tiny{seed}") / "model"
    make_tiny_model(folder, TinySettings(seed=seed, context=CONTEXT_TOKENS))
    return folder
