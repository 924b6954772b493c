"""Folders that are not whole or not supported: one line with file, key and remedy, and nothing written."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="models need torch")
pytest.importorskip("transformers", reason="models are made with transformers")
pytest.importorskip("safetensors", reason="weights are in safetensors files")
from click.testing import CliRunner  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from gyre.backends.models.config_file import read_architecture  # noqa: E402
from gyre.backends.models.hub_folder import INDEX, WEIGHTS  # noqa: E402
from gyre.backends.models.importing import import_model  # noqa: E402
from gyre.backends.models.layout import Layout  # noqa: E402
from gyre.backends.models.tiny import TinySettings, make_tiny_model  # noqa: E402
from gyre.cli import main  # noqa: E402
from gyre.errors import InputError  # noqa: E402


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "model"
    make_tiny_model(folder, TinySettings(layers=1))
    return folder


@pytest.fixture(scope="module")
def sharded(whole: Path) -> Path:
    folder = whole.with_name("sharded")
    import_model(whole, folder, shard_bytes=150_000)
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def refused(*arguments: object) -> str:
    """What the command says as it exits with 2, in one line."""
    result = CliRunner().invoke(main, ["model", *map(str, arguments)])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("gyre: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def configured(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in (config | values).items() if value != "gone"}))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model_type": "mamba"}, 'model_type is "mamba": is not supported: give one of llama'),
        ({"model_type": "gone"}, "model_type is null"),
        (
            {"quantization_config": {"quant_method": "fp8"}},
            "quantization_config is .* give the folder with full weights",
        ),
        ({"use_sliding_window": True}, "use_sliding_window is true: sliding windows are not supported"),
        ({"layer_types": ["sliding_attention"]}, "layer_types is .* sliding windows are not supported"),
        ({"attention_bias": True}, "attention_bias is true: biases in attention are not supported"),
        ({"hidden_act": "gelu"}, 'hidden_act is "gelu": only SwiGLU'),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, 'rope_parameters.rope_type is "yarn"'),
        ({"rope_parameters": None, "rope_scaling": {"type": "dynamic"}}, 'rope_scaling.type is "dynamic"'),
        ({"rope_parameters": {"rope_type": "linear"}}, "rope_parameters.factor is missing"),
        ({"hidden_size": "gone"}, "hidden_size is missing; copy it again"),
        ({"hidden_size": "64"}, 'hidden_size is "64": must be a whole number from 1'),
        ({"num_attention_heads": True}, "num_attention_heads is true: must be a whole number"),
        ({"num_key_value_heads": 3}, "num_key_value_heads is 3: does not divide num_attention_heads 4"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1: must be a number above 0"),
    ],
)
def test_what_config_json_asks_in_vain_is_named(copy: Path, values: dict[str, object], said: str) -> None:
    """With the file, the key, its value and what to do."""
    configured(copy, **values)
    with pytest.raises(InputError, match=f"config.json: {said}"):
        read_architecture(copy)


def cut_off(folder: Path) -> None:
    path = folder / WEIGHTS
    os.truncate(path, path.stat().st_size - 100)


def change_weights(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    held = load_file(folder / WEIGHTS)
    change(held)
    save_file(held, folder / WEIGHTS)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut off": (cut_off, "model.safetensors: is cut off or no safetensors file"),
    "text": (lambda at: (at / WEIGHTS).write_text("see elsewhere"), "is cut off or no safetensors file"),
    "pickle": (
        lambda at: (at / WEIGHTS).rename(at / "pytorch_model.bin"),
        "only pytorch_model.bin: save it as safetensors",
    ),
    "no configuration": (
        lambda at: (at / "config.json").unlink(),
        "config.json: cannot be read .* give the folder of a",
    ),
    "broken configuration": (lambda at: (at / "config.json").write_text("{"), "config.json: is not JSON"),
    "a list": (lambda at: (at / "config.json").write_text("[]"), "config.json: is not a JSON object"),
    "other size": (lambda at: configured(at, intermediate_size=96), "has shape .128, 64., config.json says .96, 64."),
    "one missing": (
        lambda at: change_weights(at, lambda held: held.pop("model.norm.weight")),
        "model.norm.weight is missing",
    ),
    "one spare": (
        lambda at: change_weights(at, lambda held: held.update(spare=torch.zeros(2))),
        "spare has no place in the model that config.json describes",
    ),
    "bytes": (
        lambda at: change_weights(at, lambda h: h.update({"model.norm.weight": torch.zeros(64, dtype=torch.int8)})),
        "model.norm.weight is I8: give weights in F32, BF16 or F16",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_folders_are_refused_whole(copy: Path, tmp_path: Path, damage: str) -> None:
    """Before anything is written."""
    spoil, said = DAMAGES[damage]
    spoil(copy)
    with pytest.raises(InputError, match=said):
        import_model(copy, tmp_path / "out")
    assert os.listdir(tmp_path) == ["copy"]
    assert refused("import", copy, tmp_path / "out")


def test_missing_shards_and_false_indexes_are_named(sharded: Path, tmp_path: Path) -> None:
    """A file that the index names and that is not there, and a weight that is not where the index says."""
    lost = Path(shutil.copytree(sharded, tmp_path / "lost"))
    first = sorted(lost.glob("model-*.safetensors"))[0]
    first.unlink()
    assert f"{first}: is missing" in refused("info", lost)
    false = Path(shutil.copytree(sharded, tmp_path / "false"))
    index = json.loads((false / INDEX).read_text())
    index["weight_map"]["model.norm.weight"] = index["weight_map"]["model.embed_tokens.weight"]
    (false / INDEX).write_text(json.dumps(index))
    assert "holds model.norm.weight; it does not" in refused("info", false)
    index["weight_map"]["model.norm.weight"] = "../elsewhere.safetensors"
    (false / INDEX).write_text(json.dumps(index))
    assert "weight_map is not names of files" in refused("info", false)


def test_import_keeps_every_bit_and_the_tokenizer(whole: Path, sharded: Path, tmp_path: Path) -> None:
    """Into several files and back into one."""
    import_model(sharded, tmp_path / "out")
    ours, theirs = load_file(tmp_path / "out" / WEIGHTS), load_file(whole / WEIGHTS)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (whole / name).read_bytes()


def test_folders_that_are_there_stay(whole: Path, tmp_path: Path) -> None:
    """Without --force, and where the source is the folder itself."""
    assert "exists already" in refused("tiny", whole)
    assert "is the source itself" in refused("import", whole, whole, "--force")
    assert "is no file; give a GGUF file" in refused("import", tmp_path / "none.gguf", tmp_path / "out")
    (tmp_path / "torn.gguf").write_bytes(b"GGUF\x03\x00\x00\x00")
    assert "is cut off or no GGUF file" in refused("import", tmp_path / "torn.gguf", tmp_path / "out")
    assert "kv-heads is 3, which does not divide 4 heads" in refused("tiny", tmp_path / "out", "--kv-heads", 3)
    assert sorted(os.listdir(tmp_path)) == ["torn.gguf"]


def test_a_killed_import_leaves_the_old_folder(whole: Path, tmp_path: Path) -> None:
    """Killed while it writes; the next one clears away what it left."""
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    program = (
        "import os, signal, sys; from pathlib import Path; from gyre.backends.models.importing import import_model;"
        "import_model(Path(sys.argv[1]), Path(sys.argv[2]), shard_bytes=50_000,"
        "             progress=lambda size: os.kill(os.getpid(), signal.SIGKILL))"
    )
    killed = subprocess.run([sys.executable, "-c", program, whole, out], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert len(os.listdir(tmp_path)) == 2
    import_model(whole, out, "bfloat16")
    assert os.listdir(tmp_path) == ["out"]
    assert load_file(out / WEIGHTS)["model.norm.weight"].dtype is torch.bfloat16


def test_info_counts_what_the_folder_holds(whole: Path) -> None:
    """Parameters as the files have them, KV as the shapes say, and the layouts that share heads and layers out."""
    result = CliRunner().invoke(main, ["model", "info", str(whole), "--json"])
    found = json.loads(result.stdout)
    assert found["parameters"] == sum(weight.numel() for weight in load_file(whole / WEIGHTS).values())
    assert found["kv_bytes_per_token"] == {"bfloat16": 2 * 1 * 2 * 16 * 2, "float32": 2 * 1 * 2 * 16 * 4}
    assert found["layouts"] == [{"tensor": 1, "pipeline": 1}, {"tensor": 2, "pipeline": 1}]
    assert found["dtypes"] == ["F32"]
    shown = CliRunner().invoke(main, ["model", "info", str(whole)]).stdout
    assert f"{found['parameters']:,}" in shown


def test_tiny_models_follow_their_options(tmp_path: Path) -> None:
    """The same seed gives the same weights; sizes are those asked for; the tokenizer has the chat template."""
    sizes = ["--layers", "3", "--hidden", "32", "--heads", "2", "--kv-heads", "1", "--head-dim", "8", "--tied"]
    for name, seed in (("a", "5"), ("b", "5"), ("c", "6")):
        result = CliRunner().invoke(main, ["model", "tiny", str(tmp_path / name), "--seed", seed, *sizes, "--json"])
        assert result.exit_code == 0, result.output
    weights = [(tmp_path / name / WEIGHTS).read_bytes() for name in "abc"]
    assert weights[0] == weights[1] != weights[2]
    architecture = read_architecture(tmp_path / "a")
    assert (architecture.layers, architecture.hidden_size, architecture.heads, architecture.tied) == (3, 32, 2, True)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        (Layout(tensor=3), "layout.tensor is 3, which does not divide the model's 2 key-value heads"),
        (Layout(pipeline=2), "layout.pipeline is 2, which does not divide the model's 1 layers"),
        (Layout(expert=2), "layout.expert is 2: experts cannot be shared out"),
    ],
)
def test_layouts_that_do_not_fit_are_refused(whole: Path, layout: Layout, said: str) -> None:
    """With the number that they do not divide."""
    with pytest.raises(InputError, match=said):
        layout.check(read_architecture(whole))
