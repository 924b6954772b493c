"""`gyre proxy`: the proxy alone, a recorder in front of SGLang servers. Heavy imports are made inside the command."""

from __future__ import annotations

import asyncio
import gc
import math
import resource
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from ..errors import InputError
from .common import OUT_FOLDER
from .interrupt import Interrupt, interruptible

if TYPE_CHECKING:
    from gyre.backends.proxy.settings import ProxySettings
    from gyre.backends.proxy.tokens import Renderer

_EXTRA: Final = "gyre proxy needs packages that are not installed ({}); pip install 'gyre[proxy]'"
_LOOK_EVERY_S: Final = 0.1
_OPEN_FILES: Final = 65_536


@click.command()
@click.option("--engine", "engines", multiple=True, required=True, help="Address of an SGLang server; give several.")
@click.option("--tokenizer", type=OUT_FOLDER, required=True, help="Folder of the model: tokenizer, chat template.")
@click.option("--out", type=OUT_FOLDER, required=True, help="Folder for the call log; goes on with one that is there.")
@click.option(
    "--execution", "executions", multiple=True, metavar="ID=KEY", help="An execution and its key; or use a file."
)
@click.option(
    "--executions-file",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar="GYRE_EXECUTIONS_FILE",
    help="File with a line ID=KEY for each: the list of processes shows what --execution was given.",
)
@click.option("--open", "open_to_all", is_flag=True, help="Any key opens an execution of its own.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option("--admin-port", default=0, type=click.IntRange(0, 65535), help="0: a free one.")
@click.option("--admin-key", envvar="GYRE_ADMIN_KEY", help="Key of the admin side; better given as GYRE_ADMIN_KEY.")
@click.option(
    "--engine-key", envvar="GYRE_ENGINE_KEY", default="", help="Key of the engines; better given as GYRE_ENGINE_KEY."
)
@click.option("--model", default="gyre-policy", show_default=True, help="Name to list; any name is served.")
@click.option(
    "--template", type=click.Path(path_type=Path, dir_okay=False), help="In place of the model's chat template."
)
@click.option("--template-kwargs", metavar="JSON", help='Handed to the chat template: {"enable_thinking": false}.')
@click.option("--tool-call-parser", default="", help="SGLang's name for the model's form of tool calls.")
@click.option("--reasoning-parser", default="", help="SGLang's name for the model's form of reasoning.")
@click.option("--temperature", default=1.0, show_default=True, type=click.FloatRange(0.0))
@click.option("--top-p", default=1.0, show_default=True, type=click.FloatRange(0.0, 1.0, min_open=True))
@click.option("--top-k", default=-1, show_default=True, type=click.IntRange(-1), help="-1: all.")
@click.option("--max-new-tokens", default=32_768, show_default=True, type=click.IntRange(1), help="Of one reply.")
@click.option("--context-tokens", type=click.IntRange(2), help="Where it is less than the engines take.")
@click.option("--max-steps", type=click.IntRange(1), help="Calls of an execution; past it the harness is told to stop.")
@click.option("--max-tokens", type=click.IntRange(1), help="Input and output of all its calls.")
@click.option("--max-seconds", type=click.FloatRange(0.0, min_open=True), help="From its opening.")
@click.option("--calls-per-s", default=10.0, show_default=True, type=click.FloatRange(0.0, min_open=True))
@click.option("--max-body-mib", default=32, show_default=True, type=click.IntRange(1, 1024), help="Of one request.")
@click.option("--user-structure", is_flag=True, help="Let users' text hold tokens such as <tool_response>.")
@click.option("--keep-alive", default=10.0, show_default=True, type=click.FloatRange(0.1, 30.0), help="In seconds.")
@click.option("--quiet", is_flag=True, help="Log warnings only.")
def proxy(**given: Any) -> None:
    """Serve harnesses from SGLang servers and record every call, token by token.

    Each execution has a base URL and a key; `gyre samples build` reads the log in --out. Without --execution and
    --open, executions are opened at the admin address. Ctrl-C closes the log; started again with the same --out, the
    proxy goes on where it stood. A socket handed on by systemd (LISTEN_FDS) is taken in place of --host and --port.
    """
    given["engines"] = _addresses(given["engines"])
    _require_finite(given)
    executions = [_execution(text, "--execution") for text in given["executions"]]
    executions += _executions_in(given["executions_file"])
    if not (executions or given["open_to_all"]):
        click.echo("gyre: no --execution and no --open: open executions at the admin address", err=True)
    try:
        from gyre.backends.proxy.json_logs import log_json

        settings, renderer = _settings(given), _renderer(given)
    except ModuleNotFoundError as error:
        raise InputError(_EXTRA.format(error.name)) from error
    log_json("WARNING" if given["quiet"] else "INFO")
    _raise_open_files()
    with interruptible() as interrupt:
        asyncio.run(_serve(given, executions, settings, renderer, interrupt))


def _addresses(engines: Sequence[str]) -> list[str]:
    """Return the engines' addresses, each once, however it was written."""
    found: dict[str, None] = {}
    for url in engines:
        if not _is_address(url):
            raise InputError(f"--engine {url}: not an address; give one such as http://127.0.0.1:30000")
        parts = urlsplit(url)
        if "@" in parts.netloc:  # it would stand in logs
            raise InputError("--engine: an address may hold no user and password; set GYRE_ENGINE_KEY instead")
        found[f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"] = None
    return list(found)


def _require_finite(given: dict[str, Any]) -> None:
    """Refuse what the ranges of options let through: nan lies in all of them, and there are no top 0 tokens."""
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"--{name.replace('_', '-')} {value}: expected a finite number")
    if given["top_k"] == 0:
        raise InputError("--top-k 0: expected 1 or more, or -1 for all")


def _raise_open_files() -> None:
    """Let this process have as many connections as the system lets it: each stream has two."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond the last
        return False


def _execution(text: str, where: str) -> tuple[str, str]:
    name, equals, key = text.partition("=")
    if not (name and equals and key):
        raise InputError(f"{where}: expected a name, an equals sign and a key, such as first=sk-1234")
    return name, key


def _executions_in(file: Path | None) -> list[tuple[str, str]]:
    if file is None:
        return []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: cannot be read ({error}); give a text file with lines ID=KEY") from error
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1)]
    return [_execution(line, f"{file}, line {number}") for number, line in numbered if line and line[0] != "#"]


def _settings(given: dict[str, Any]) -> ProxySettings:
    from gyre.backends.engines.engine import Sampling
    from gyre.backends.proxy.inherited_socket import inherited_descriptor
    from gyre.backends.proxy.limits import Bounds
    from gyre.backends.proxy.settings import ProxySettings

    return ProxySettings(
        host=given["host"],
        port=given["port"],
        descriptor=inherited_descriptor(),
        admin_port=given["admin_port"],
        model=given["model"],
        sampling=Sampling(given["max_new_tokens"], given["temperature"], given["top_p"], given["top_k"]),
        context_tokens=given["context_tokens"],
        bounds=Bounds(calls_per_s=given["calls_per_s"], body_bytes=given["max_body_mib"] << 20),
        keep_alive_s=given["keep_alive"],
    )


def _renderer(given: dict[str, Any]) -> Renderer:
    import json

    from gyre.backends.proxy.conversation import Speaker
    from gyre.backends.proxy.tokens import Parsers, Renderer
    from gyre.backends.proxy.tokens.template import STRUCTURED

    try:
        kwargs = json.loads(given["template_kwargs"] or "{}")
    except ValueError as error:
        raise InputError(f"--template-kwargs: not JSON ({error})") from error
    if not isinstance(kwargs, dict):
        raise InputError("--template-kwargs: expected a JSON object")
    template: Path | None = given["template"]
    try:
        text = None if template is None else template.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{template}: the chat template cannot be read ({error})") from error
    if not given["tokenizer"].is_dir():  # a name would be looked for on the network
        raise InputError(f"{given['tokenizer']}: no such folder; give the one that holds the model's tokenizer")
    parsers = Parsers(given["tool_call_parser"], given["reasoning_parser"])
    parsers.load()
    trusted = STRUCTURED | ({Speaker.USER} if given["user_structure"] else set())
    return Renderer(given["tokenizer"], parsers=parsers, template=text, template_kwargs=kwargs, structured=trusted)


async def _serve(
    given: dict[str, Any],
    executions: list[tuple[str, str]],
    settings: ProxySettings,
    renderer: Renderer,
    interrupt: Interrupt,
) -> None:
    from gyre.backends.engines.pool import EnginePool
    from gyre.backends.engines.sglang import SGLangEngine
    from gyre.backends.proxy.limits import Limits
    from gyre.backends.proxy.proxy import Proxy

    limits = Limits(given["max_steps"], given["max_tokens"], given["max_seconds"])
    options = {
        "admin_key": given["admin_key"],
        "open_to_all": given["open_to_all"],
        "limits": limits,
        "executions": executions,
    }
    async with EnginePool() as pool:
        for url in given["engines"]:
            pool.add(SGLangEngine(url, key=given["engine_key"], marks=renderer.marks))
        async with Proxy(renderer, pool, given["out"], settings, **options) as running:
            for opened in running.opened:
                click.echo(f"execution {opened.id}: {opened.base_url} (OpenAI clients: {opened.base_url}/v1)")
            click.echo(f"any execution, by its key: {running.url} (OpenAI clients: {running.url}/v1)")
            click.echo(f"admin and metrics: {running.admin_url}/metrics")
            # Else the collector looks through all that was imported every so often: half a second, for every stream.
            gc.collect()
            gc.freeze()
            click.echo(f"recording into {running.log_path}; Ctrl-C ends")
            try:
                while not interrupt.asked:
                    await asyncio.sleep(_LOOK_EVERY_S)
            finally:
                gc.unfreeze()  # else extension modules call what the collector does not see a leak, at the end
    click.echo(f"gyre: {given['out']}: the log is closed", err=True)
