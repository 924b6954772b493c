"""Hardware profiles: the bundled ones, the formulas by hand, and files that cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gyre.errors import InputError
from gyre.sim.hardware_profile import hardware_names, load_hardware

# a, e, b, c as published with the fits; k and E from each model's public config.
FITS = {
    "qwen3-8b-tp1": (5.01, 0.0, 0.0030, 3.41e-5),
    "qwen3-32b-tp4": (6.73, 0.0, 0.0175, 1.483e-5),
    "qwen3-30b-a3b-tp4": (3.30, 2.77, 0.0187, 5.66e-6),
    "qwen3-235b-a22b-tp8": (6.81, 16.4, 0.0514, 1.109e-5),
    "qwen3.5-397b-a17b-tp8": (5.60, 23.9, 0.0416, 3.51e-6),
    "deepseek-v3-tp8": (10.56, 18.1, 0.0237, 1.169e-4),
}
KV_BYTES = {
    "qwen3-8b-tp1": 147_456,
    "qwen3-32b-tp4": 262_144,
    "qwen3-30b-a3b-tp4": 98_304,
    "qwen3-235b-a22b-tp8": 192_512,
    "qwen3.5-122b-tp8": 24_576,
    "qwen3.5-397b-a17b-tp8": 30_720,
    "deepseek-v3-tp8": 70_272,
    "qwen3.8-2.4t": 94_208,
}
SECTIONS = ("model", "engine", "decode", "prefill", "switch", "publish", "training", "migration", "cell")

MINIMAL = """
name = "toy"
[model]
active_parameters = 1e9
total_parameters = 4e9
weights_bytes = 8e9
kv_bytes_per_token = 1000
kv_bytes_per_sequence = 50_000
[engine]
gpus_per_engine = 2
kv_memory_bytes = 1e6
max_running = 6
max_prefill_tokens = 1024
[decode]
a_ms = 4.0
e_ms = 8.0
experts_per_token = 1
experts = 2
b_ms = 1.0
c_ms = 0.01
[prefill]
p0_ms = 3.0
p1_ms = 0.5
p2_ms = 0.001
[switch]
to_training_s = 8.52
to_serving_s = 3.46
[publish]
bytes_per_s = 4e9
fixed_s = 0.5
[training]
tokens_per_s_per_gpu = 100
micro_step_overhead_s = 0.25
update_s = 2
[migration]
nics = 2
nic_bytes_per_s = 1000
efficiency = 0.5
[cell]
gpus = 8
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a profile's text to a file and returns its path."""

    def _write(text: str) -> Path:
        path = tmp_path / "mine.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return _write


@pytest.mark.parametrize("name", hardware_names())
def test_bundled_profile_is_named_as_its_file_and_states_every_provenance(name: str) -> None:
    profile = load_hardware(name)
    assert profile.name == name
    assert all(getattr(profile, section).provenance != "not stated" for section in SECTIONS)
    assert profile.engines_per_cell * profile.engine.gpus_per_engine == profile.cell.gpus


def test_bundled_names() -> None:
    assert set(hardware_names()) == set(KV_BYTES)


@pytest.mark.parametrize("name", sorted(FITS))
def test_bundled_decode_coefficients_are_the_published_fits(name: str) -> None:
    decode = load_hardware(name).decode
    assert (decode.a_ms, decode.e_ms, decode.b_ms, decode.c_ms) == FITS[name]


@pytest.mark.parametrize("name", sorted(KV_BYTES))
def test_bundled_kv_bytes(name: str) -> None:
    assert load_hardware(name).model.kv_bytes_per_token == KV_BYTES[name]


@pytest.mark.parametrize(("context", "step_ms"), [(16_384, 10.4), (131_072, 20.7), (524_288, 57.5)])
def test_122b_gives_its_three_points_back_at_batch_32(context: int, step_ms: float) -> None:
    assert 1e3 * load_hardware("qwen3.5-122b-tp8").decode_step_s(32, 32 * context) == pytest.approx(step_ms, rel=0.03)


def test_published_publish_times_and_state_sizes() -> None:
    assert load_hardware("qwen3-235b-a22b-tp8").publish_s == pytest.approx(6.2, abs=0.05)
    assert load_hardware("qwen3.5-122b-tp8").model.kv_bytes_per_sequence == 147 * 2**20
    assert load_hardware("qwen3.5-397b-a17b-tp8").model.kv_bytes_per_sequence == 183 * 2**20
    assert load_hardware("qwen3.8-2.4t").sequence_kv_bytes(700_000) == pytest.approx(65.9e9, rel=1e-3)


def test_cells_of_the_published_settings() -> None:
    assert load_hardware("qwen3.5-122b-tp8").cell.gpus == 4 * 8
    assert load_hardware("qwen3.5-122b-tp8").engines_per_cell == 4
    assert load_hardware("qwen3.8-2.4t").cell.gpus == 48 * 8


def test_formulas_by_hand(write: Callable[[str], Path]) -> None:
    toy = load_hardware(write(MINIMAL))
    assert toy.engines_per_cell == 4
    assert toy.decode_step_s(2, 300) == pytest.approx((4 + 8 * 0.75 + 2 + 3) / 1e3, rel=1e-14)
    assert toy.prefill_s(10, 20) == pytest.approx((3 + 5 + 0.001 * 10 * 25) / 1e3, rel=1e-14)
    assert toy.prefill_s(0, 20) == 0.0
    assert toy.publish_s == pytest.approx(2.5, rel=1e-14)
    assert toy.migration_s_per_token == pytest.approx(1.0, rel=1e-14)
    assert toy.migration_s(100) == pytest.approx(100 + 50, rel=1e-14)
    assert toy.kv_tokens == 1000
    assert toy.kv_sequence_tokens == 50
    assert toy.sequence_kv_bytes(100) == 150_000


def test_prefill_in_two_chunks_costs_one_more_base(write: Callable[[str], Path]) -> None:
    toy = load_hardware(write(MINIMAL))
    assert toy.prefill_s(30, 5) + toy.prefill_s(70, 35) == pytest.approx(toy.prefill_s(100, 5) + 3e-3, rel=1e-14)


def test_replicated_kv_takes_its_share_of_memory(write: Callable[[str], Path]) -> None:
    toy = load_hardware(write(MINIMAL.replace("max_running", "kv_replication = 4\nmax_running")))
    assert toy.kv_tokens == 250
    assert toy.kv_sequence_tokens == 13  # 12.5 rounded up


def test_capacity_by_hand(write: Callable[[str], Path]) -> None:
    """Steps at context 100 take 10, 14, 17, 19.5, 21.75 ms for 1 to 5 sequences; memory holds 6 of them."""
    toy = load_hardware(write(MINIMAL))
    assert [1e3 * toy.decode_step_s(n, 100 * n) for n in range(1, 6)] == pytest.approx([10, 14, 17, 19.5, 21.75])
    assert toy.capacity(0.5, 100) == 4 * 4
    assert toy.capacity(1.0, 100) == 4 * 1
    assert toy.capacity(0.01, 100) == 4 * 6
    assert toy.capacity(0.01, 10) == 4 * 6  # max_running
    assert toy.capacity(0.01, 400) == 4 * 2  # memory: 450 tokens each of 1000
    assert toy.capacity(0.01, 5000) == 4 * 1  # at least one, though it does not fit


@given(
    name=st.sampled_from(hardware_names()),
    share=st.floats(0.01, 1.0),
    context=st.integers(0, 1_000_000),
)
def test_capacity_is_the_largest_that_keeps_speed_and_memory(name: str, share: float, context: int) -> None:
    profile = load_hardware(name)
    per_engine, rest = divmod(profile.capacity(share, context), profile.engines_per_cell)
    assert rest == 0

    def serves(n: int) -> bool:
        fast = profile.decode_step_s(1, context) >= share * profile.decode_step_s(n, n * context) * (1 - 1e-12)
        fits = n * profile.sequence_kv_bytes(context) <= profile.engine.kv_memory_bytes
        return fast and fits and n <= profile.engine.max_running

    assert per_engine == 1 or serves(per_engine)
    clearly_more = (
        profile.decode_step_s(1, context)
        * (1 + 1e-9)
        / profile.decode_step_s(per_engine + 1, (per_engine + 1) * context)
    )
    assert not serves(per_engine + 1) or clearly_more <= share * (1 + 2e-9)


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5])
def test_capacity_refuses_a_share_outside_its_range(share: float) -> None:
    with pytest.raises(ValueError, match="speed_share"):
        load_hardware("qwen3-8b-tp1").capacity(share, 100)


def test_file_over_a_base_changes_only_what_it_names(write: Callable[[str], Path]) -> None:
    base = load_hardware("qwen3-8b-tp1")
    mine = load_hardware(
        write('base = "qwen3-8b-tp1"\n[decode]\na_ms = 4.5\n[training]\npeak_flops = 9.89e14\nmfu = 0.4\n')
    )
    assert mine.name == "mine"
    assert mine.decode.a_ms == 4.5
    assert mine.decode.c_ms == base.decode.c_ms
    assert mine.decode.provenance == "changed from qwen3-8b-tp1: a_ms"
    assert mine.training.tokens_per_s_per_gpu is None
    assert mine.prefill == base.prefill


def test_a_users_file_beats_the_bundled_of_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("qwen3-8b-tp1").write_text(MINIMAL, encoding="utf-8")
    assert load_hardware("qwen3-8b-tp1").name == "toy"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("a_ms = 4.0\n", ""), "decode.a_ms: missing"),
        (("a_ms = 4.0", "a_ms = 4.0\nd_ms = 1.0"), "decode.d_ms: unknown key"),
        (("a_ms = 4.0", "a_ms = -4.0"), "decode.a_ms"),
        (("a_ms = 4.0", 'a_ms = "4.0"'), "decode.a_ms"),
        (("a_ms = 4.0", "a_ms = nan"), "decode.a_ms"),
        (("a_ms = 4.0", "a_ms = inf"), "decode.a_ms"),
        (("a_ms = 4.0", "a_ms ="), "not TOML"),
        (("max_running = 6", "max_running = 6.5"), "engine.max_running"),
        (("experts = 2", "experts = 0"), "decode.experts"),
        (("experts_per_token = 1", "experts_per_token = 3"), "experts_per_token exceeds experts"),
        (("gpus = 8", "gpus = 9"), "cell.gpus is not a multiple"),
        (("kv_memory_bytes = 1e6", "kv_memory_bytes = 1e3"), "kv_memory_bytes"),
        (("efficiency = 0.5", "efficiency = 1.5"), "migration.efficiency"),
        (("tokens_per_s_per_gpu = 100", ""), "either tokens_per_s_per_gpu or both"),
        (("tokens_per_s_per_gpu = 100", "peak_flops = 1e15"), "either tokens_per_s_per_gpu or both"),
        (
            ("tokens_per_s_per_gpu = 100", "tokens_per_s_per_gpu = 100\nmfu = 0.4"),
            "either tokens_per_s_per_gpu or both",
        ),
        (("active_parameters = 1e9", "active_parameters = 1e10"), "active_parameters exceeds"),
        (("[cell]\ngpus = 8\n", ""), "cell: missing"),
        (("[cell]\ngpus = 8\n", "[cells]\ngpus = 8\n"), "cells: unknown key; known keys: "),
        (('name = "toy"', "base = 3"), "base: must be a string"),
        (('name = "toy"', 'base = "nothing"'), "no such profile"),
    ],
)
def test_a_bad_file_gives_one_line_with_file_and_field(
    write: Callable[[str], Path], change: tuple[str, str], message: str
) -> None:
    path = write(MINIMAL.replace(*change))
    with pytest.raises(InputError) as caught:
        load_hardware(path)
    text = str(caught.value)
    assert text.startswith(str(path))
    assert message in text
    assert "\n" not in text


@pytest.mark.parametrize("name", ["nothing", "nothing.toml", "./nothing", ""])
def test_a_name_that_is_not_there_lists_those_that_are(name: str) -> None:
    with pytest.raises(InputError, match=r"one of .*qwen3-8b-tp1") as caught:
        load_hardware(name)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot be read as text"):
        load_hardware(path)


@pytest.mark.parametrize("name", hardware_names())
def test_the_serving_model_gets_the_same_coefficients_in_seconds(name: str) -> None:
    profile = load_hardware(name)
    spec = profile.engine_spec()
    spec.check(0)
    step_s = spec.step_base_s + spec.step_expert_s * (1 - (1 - spec.expert_share) ** 7)
    step_s += 7 * spec.step_sequence_s + 70_000 * spec.step_context_s
    assert step_s == pytest.approx(profile.decode_step_s(7, 70_000), rel=1e-14)
    prefill_s = spec.prefill_base_s + 500 * spec.prefill_token_s + 500 * (9_000 + 250) * spec.prefill_attention_s
    assert prefill_s == pytest.approx(profile.prefill_s(500, 9_000), rel=1e-14)
    assert (spec.kv_tokens, spec.kv_sequence_tokens) == (profile.kv_tokens, profile.kv_sequence_tokens)
    assert spec.migration_s_per_token == profile.migration_s_per_token
