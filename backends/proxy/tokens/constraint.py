"""What a harness may demand of the output's form, as a constraint for an engine's grammar."""

from __future__ import annotations

import json
from typing import Any

from ..conversation import Request
from .parsers import Parsers
from .template import full_name


def constraint(request: Request, parsers: Parsers) -> dict[str, Any]:
    """Return {"structural_tag": ...} or {"json_schema": ...} as SGLang takes them, or nothing.

    A call that must be made is constrained where the model's tool-call parser has a grammar for its own format; with
    a parser that has none the choice is not enforced. Text of a schema is constrained where no tool may be called: a
    grammar covers the whole output. An engine lets reasoning go before it only if it runs with a reasoning parser.
    """
    choice = request.tool_choice
    if request.tools and choice.mode in ("required", "tool"):
        return _forced(request, parsers)
    if request.json_schema is not None and (not request.tools or choice.mode == "none"):
        return {"json_schema": json.dumps(request.json_schema)}
    return {}


def _forced(request: Request, parsers: Parsers) -> dict[str, Any]:
    wanted = [tool for tool in request.tools if request.tool_choice.name in ("", tool.name, full_name(tool))]
    parser = parsers.function_call_parser(wanted)
    if parser is None or not wanted:
        return {}
    found = parser.get_structure_constraint("required", parallel_tool_calls=request.parallel_tool_calls)
    if found is None or found[0] != "structural_tag":
        return {}
    return {"structural_tag": json.dumps(found[1].model_dump(by_alias=True))}
