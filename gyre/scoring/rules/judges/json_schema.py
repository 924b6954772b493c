"""Holds a text against a JSON Schema; needs the package jsonschema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final, NoReturn

_MOST_ERRORS: Final = 3  # that are told
_MOST_CHARACTERS: Final = 120  # of one


def judge(question: Mapping[str, Any]) -> dict[str, Any]:
    """Parse the text and validate it; formats are not checked and nothing is fetched."""
    try:
        value = json.loads(question["text"], parse_constant=_refused_constant)
    except RecursionError:
        return {"passed": 0.0, "detail": "not JSON that can be read: nested too deeply"}
    except ValueError as error:
        return {"passed": 0.0, "detail": f"not JSON: {error}"}
    return _validated(value, question["schema"])


def _validated(value: Any, schema: Any) -> dict[str, Any]:
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    try:
        kind = validator_for(schema, default=Draft202012Validator)
        kind.check_schema(schema)
        errors = [
            f"{error.json_path}: {error.message[:_MOST_CHARACTERS]}"
            for error in islice(kind(schema, registry=Registry()).iter_errors(value), _MOST_ERRORS)
        ]
    except SchemaError as error:
        return {"broken": f"no JSON Schema: {error.message}"}
    except Unresolvable as error:
        return {"broken": f"the schema refers to {error.ref}, which is not in it"}
    except RecursionError:
        return {"passed": 0.0, "detail": "nested too deeply to be held against the schema"}
    return {"passed": float(not errors), "detail": "; ".join(errors)}


def _refused_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
