"""`gyre model`: folders of models that cells train and serve. Heavy imports are made inside the commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from ..errors import InputError
from .common import OUT_FOLDER, counted, force_option, json_option, print_json, print_tables, refuse_existing, working

_SOURCE: Final = click.Path(path_type=Path)
_EXTRA: Final = "gyre model needs packages that are not installed ({}); pip install 'gyre[real]'"
_SIZE: Final = click.IntRange(1)


@click.group()
def model() -> None:
    """Make, import and inspect the models that cells train and serve."""


@model.command()
@click.argument("out", type=OUT_FOLDER)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the weights.")
@click.option("--layers", type=_SIZE, default=2, show_default=True)
@click.option("--hidden", type=_SIZE, default=64, show_default=True, help="Channels between layers.")
@click.option("--ffn", type=_SIZE, default=128, show_default=True, help="Channels inside an MLP.")
@click.option("--heads", type=_SIZE, default=4, show_default=True, help="Query heads.")
@click.option("--kv-heads", type=_SIZE, default=2, show_default=True, help="Key-value heads.")
@click.option("--head-dim", type=_SIZE, default=16, show_default=True, help="Channels of a head.")
@click.option("--context", type=_SIZE, default=4096, show_default=True, help="Most tokens of a sequence.")
@click.option("--tied", is_flag=True, help="The output layer is the embedding.")
@force_option
@json_option
def tiny(*, out: Path, force: bool, as_json: bool, **sizes: Any) -> None:
    """Make a small random Qwen3 in folder OUT, with a byte-level tokenizer and a chat template that knows tools.

    The same options give the same weights.
    """
    refuse_existing(out, force=force)
    with _packages(), working("making the model"):
        from gyre.backends.models.tiny import TinySettings, make_tiny_model

        make_tiny_model(out, TinySettings(**sizes))
    _report(out, as_json=as_json)


@model.command("import")
@click.argument("source", type=_SOURCE)
@click.argument("out", type=OUT_FOLDER)
@click.option("--dtype", type=click.Choice(["float32", "bfloat16"]), help="Of the weights; by default the source's.")
@force_option
@json_option
def import_(*, source: Path, out: Path, dtype: str | None, force: bool, as_json: bool) -> None:
    """Write the model in SOURCE, a folder of safetensors files or a GGUF file, to folder OUT.

    All of it is checked first: names, shapes, whole files, an architecture that can be trained. Quantised weights of a
    GGUF file are rounded out, to float32 unless --dtype says otherwise.
    """
    refuse_existing(out, force=force)
    if out.resolve() == source.resolve():
        raise InputError(f"{out}: is the source itself; give another folder")
    with _packages():
        from gyre.backends.models.importing import import_model

        from .model_progress import WriteProgress

        with WriteProgress(quiet=as_json) as progress:
            written = import_model(source, out, dtype, progress=progress.wrote)
    _report(out, as_json=as_json, quantised=written.quantised)


@model.command()
@click.argument("folder", type=_SOURCE)
@json_option
def info(*, folder: Path, as_json: bool) -> None:
    """Show the architecture, sizes and possible layouts of the model in FOLDER."""
    _report(folder, as_json=as_json)


def _report(folder: Path, *, as_json: bool, quantised: str | None = None) -> None:
    with _packages():
        from gyre.backends.models.facts import facts

        found = facts(folder)
    if quantised is not None:
        found["rounded_out_from"] = quantised
    if as_json:
        print_json(found)
    else:
        print_tables(_table(found))


@contextmanager
def _packages() -> Iterator[None]:
    """Say what to install where a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InputError(_EXTRA.format(error.name)) from error


def _table(found: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(show_header=False, box=None, title=found["folder"], title_justify="left")
    for line in _lines(found):
        table.add_row(*line)
    return table


def _lines(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    shape = found["architecture"]
    tied = ", tied embeddings" if shape["tied"] else ""
    layers = counted(shape["layers"], "layer")
    yield "model", f"{shape['model_type']}, {layers}, hidden size {shape['hidden_size']:,}{tied}"
    heads, kv_heads = counted(shape["heads"], "query head"), counted(shape["kv_heads"], "key-value head")
    yield "attention", f"{heads} and {kv_heads} of {shape['head_dim']} channels"
    if shape["experts"]:
        yield "experts", f"{shape['experts']['number']}, {shape['experts']['chosen']} of them for each token"
    yield "vocabulary", f"{shape['vocabulary']:,}"
    yield "context", f"{counted(shape['max_positions'], 'token')}"
    active = f", {found['active_parameters']:,} for a token" if shape["experts"] else ""
    yield "parameters", f"{found['parameters']:,}{active}"
    held = f"; here {', '.join(found['dtypes'])}"
    yield "weights", " · ".join(f"{_size(size)} in {dtype}" for dtype, size in found["weights_bytes"].items()) + held
    if "rounded_out_from" in found:
        yield "rounded out", f"from {found['rounded_out_from']}"
    kv = " · ".join(f"{size:,} bytes in {dtype}" for dtype, size in found["kv_bytes_per_token"].items())
    yield "KV of a token", kv
    by_tensor: dict[int, list[str]] = {}
    for layout in found["layouts"]:
        by_tensor.setdefault(layout["tensor"], []).append(str(layout["pipeline"]))
    for tensor, pipelines in by_tensor.items():
        yield f"tensor {tensor}", f"pipeline {', '.join(pipelines)}"


def _size(size: int) -> str:
    from rich.filesize import decimal

    return decimal(size)
