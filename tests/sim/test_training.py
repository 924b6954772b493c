"""The training-time model against published throughput and sums by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.sim.hardware_profile import HardwareProfile, load_hardware
from gyre.sim.training import attended_pairs, micro_step_s, step_s, sustained_flops, training_work_gpu_s, update_s


@pytest.fixture(scope="module")
def hardware() -> HardwareProfile:
    return load_hardware("qwen3-235b-a22b-tp8")


@pytest.mark.parametrize(
    ("name", "gpus", "tokens_per_s_per_gpu"), [("qwen3-235b-a22b-tp8", 256, 1575), ("qwen3-30b-a3b-tp4", 16, 5275)]
)
def test_published_throughput_comes_back(name: str, gpus: int, tokens_per_s_per_gpu: float) -> None:
    hardware = load_hardware(name)
    tokens = 4_000_000
    busy_s = micro_step_s(hardware, tokens, gpus) - hardware.training.micro_step_overhead_s
    assert tokens / busy_s / gpus == pytest.approx(tokens_per_s_per_gpu, rel=1e-12)


def test_every_scaled_profile_trains_at_the_flop_rate_of_235b(hardware: HardwareProfile) -> None:
    for name in ("qwen3-8b-tp1", "qwen3.5-122b-tp8", "qwen3.5-397b-a17b-tp8", "deepseek-v3-tp8", "qwen3.8-2.4t"):
        assert sustained_flops(load_hardware(name)) == pytest.approx(sustained_flops(hardware), rel=1e-3)


def test_peak_and_mfu_give_the_flop_rate(hardware: HardwareProfile) -> None:
    training = hardware.training.model_copy(update={"tokens_per_s_per_gpu": None, "peak_flops": 989e12, "mfu": 0.4})
    modelled = hardware.model_copy(update={"training": training})
    assert training_work_gpu_s(modelled, 1000) == pytest.approx(6 * 22e9 * 1000 / (989e12 * 0.4), rel=1e-14)


def test_attention_adds_three_forward_passes(hardware: HardwareProfile) -> None:
    pairs = attended_pairs([131_072])
    assert pairs == 131_072 * 131_073 / 2
    extra = training_work_gpu_s(hardware, 131_072, pairs) - training_work_gpu_s(hardware, 131_072)
    assert extra == pytest.approx(3 * 94 * 64 * 128 * 4 * pairs / sustained_flops(hardware), rel=1e-12)


def test_a_step_is_its_micro_steps_and_the_update(hardware: HardwareProfile) -> None:
    tokens, gpus = 1_000_000, 64
    by_hand = 4 * 0.5 + tokens / (1575 * gpus) + 5.0
    assert step_s(hardware, tokens, gpus, micro_steps=4) == pytest.approx(by_hand, rel=1e-12)
    assert update_s(hardware) == 5.0


@given(tokens=st.integers(0, 10**9), gpus=st.integers(1, 4096), pairs=st.floats(0, 1e15))
def test_more_gpus_never_slow_a_micro_step(tokens: int, gpus: int, pairs: float) -> None:
    hardware = load_hardware("qwen3-8b-tp1")
    assert micro_step_s(hardware, tokens, gpus + 1, pairs) <= micro_step_s(hardware, tokens, gpus, pairs)


@pytest.mark.parametrize(("tokens", "gpus", "pairs"), [(1, 0, 0.0), (-1, 1, 0.0), (1, 1, -1.0)])
def test_impossible_micro_steps_are_refused(hardware: HardwareProfile, tokens: int, gpus: int, pairs: float) -> None:
    with pytest.raises(ValueError, match="micro-step"):
        micro_step_s(hardware, tokens, gpus, pairs)


def test_a_step_without_micro_steps_is_refused(hardware: HardwareProfile) -> None:
    with pytest.raises(ValueError, match="at least one micro-step"):
        step_s(hardware, 1, 1, micro_steps=0)
