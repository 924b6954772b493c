"""What a harness may demand of the output's form, as a constraint for an engine's grammar."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..conversation import Request, Tool
from ..wire import BadRequestError
from .hermes import HermesCalls
from .json_calls import JsonCalls, calls_schema
from .parsers import CallFormat, Parsers
from .template import full_name


def constraint(request: Request, parsers: Parsers) -> dict[str, Any]:
    """Return {"structural_tag": ...}, {"ebnf": ...} or {"json_schema": ...} as SGLang takes them, or nothing.

    A call that must be made is constrained in the model's own format where its tool-call parser has a grammar for
    that, else to a JSON array of calls. Text of a schema is constrained where no tool may be called: a grammar covers
    the whole output. An engine lets reasoning go before it only if it runs with a reasoning parser.

    Raises:
        BadRequestError: the tool that must be called is none of the request's, or there is no grammar for such tools.
    """
    if must_call(request):
        return _own_grammar(request, parsers) or {"json_schema": json.dumps(_schema(request))}
    if request.json_schema is not None and (not request.tools or request.tool_choice.mode == "none"):
        return {"json_schema": json.dumps(request.json_schema)}
    return {}


def call_format(request: Request, parsers: Parsers, tokenizer: Any) -> CallFormat | None:
    """Return the format in which the reply's calls come; None where there are none."""
    if not request.tools or request.tool_choice.mode == "none":
        return None
    if must_call(request) and not _own_grammar(request, parsers):
        return JsonCalls(frozenset(map(full_name, request.tools)))
    return parsers.call_format(request.tools, tokenizer)


def must_call(request: Request) -> bool:
    """Whether the reply has to call a tool."""
    return bool(request.tools) and request.tool_choice.mode in ("required", "tool")


def _wanted(request: Request) -> Sequence[Tool]:
    name = request.tool_choice.name
    wanted = [tool for tool in request.tools if name in ("", tool.name, full_name(tool))]
    if not wanted:
        raise BadRequestError(f"tool_choice names {name[:80]!r}, which is not among tools")
    return wanted


def _schema(request: Request) -> dict[str, Any]:
    return calls_schema(_wanted(request), parallel=request.parallel_tool_calls)


def _own_grammar(request: Request, parsers: Parsers) -> dict[str, Any]:
    """Return a grammar of the model's own format, nothing where that has none."""
    wanted = _wanted(request)
    parser = parsers.function_call_parser(wanted)
    if parser is None:
        return _hermes_tag(wanted) if isinstance(parsers.call_format(tuple(wanted), None), HermesCalls) else {}
    found = parser.get_structure_constraint("required", parallel_tool_calls=request.parallel_tool_calls)
    if found is None:  # it has logged why
        raise BadRequestError("tool_choice: no grammar can be made for these tools; correct their schemas or send auto")
    kind, value = found
    if kind == "structural_tag":
        return {kind: json.dumps(value if isinstance(value, dict) else value.model_dump(by_alias=True))}
    return {"ebnf": value} if kind == "full_assistant_ebnf" else {}


def _hermes_tag(tools: Sequence[Tool]) -> dict[str, Any]:
    structures = [
        {
            "begin": f'<tool_call>\n{{"name": {json.dumps(full_name(tool))}, "arguments": ',
            "schema": dict(tool.parameters),
            "end": "}\n</tool_call>",
        }
        for tool in tools
    ]
    tag = {
        "type": "structural_tag",
        "structures": structures,
        "triggers": [HermesCalls.start],
        "at_least_one": True,
    }
    return {"structural_tag": json.dumps(tag)}
