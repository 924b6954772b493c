"""A JSON text that must hold to a JSON Schema."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import Field, model_validator

from ....errors import InputError
from ..apart import judged_apart
from ..rule import Judging
from ..task_value import OR_FROM_TASK, FromTask, TaskText
from ..text_rule import TextRule
from ..verdict import BrokenRuleError, Verdict

_REFERENCES: Final = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class JsonSchemaRule(TextRule):
    """Passes if the text is JSON and holds to the schema. `format` is a remark, as the standard has it.

    References within the schema are followed, those to other places are not.
    """

    kind: Literal["json_schema"]
    inline_schema: Annotated[dict[str, Any] | bool, OR_FROM_TASK] | None = None
    schema_file: TaskText | None = Field(default=None, description="beside the rules file")
    seconds: float = Field(default=10.0, gt=0, le=86_400)

    @model_validator(mode="after")
    def _one_schema(self) -> Self:
        if (self.inline_schema is None) == (self.schema_file is None):
            raise ValueError("give either inline_schema or schema_file")
        return self

    def check_files(self, folder: Path, where: str) -> None:
        """Refuse a schema that is missing, no schema, or refers to other places."""
        try:
            import jsonschema  # noqa: F401  # the process that judges needs it
        except ImportError as error:
            raise InputError(f"{where}: needs jsonschema; pip install 'gyre[scoring]'") from error
        if isinstance(self.schema_file, FromTask) or isinstance(self.inline_schema, FromTask):
            return
        field = "inline_schema" if self.schema_file is None else "schema_file"
        try:
            check_schema(self._schema(folder))
        except BrokenRuleError as error:
            raise InputError(f"{where}: {field}: {error}") from error

    def belongings(self, folder: Path) -> list[Path]:
        """The schema's file."""
        return [folder / self.schema_file] if isinstance(self.schema_file, str) else []

    async def judge(self, judging: Judging) -> Verdict:
        """Validate the text, apart: a schema's patterns may take as long as any."""
        schema = self._schema(judging.rules_folder)
        check_schema(schema)
        text = (await self.text(judging)).decode("utf-8", "replace")
        return await judged_apart({"question": "json_schema", "text": text, "schema": schema}, self.seconds)

    def _schema(self, folder: Path) -> Any:
        if self.schema_file is None:
            return self.inline_schema
        path = folder / self.schema_file
        try:
            return json.loads(path.read_bytes())
        except OSError as error:
            raise BrokenRuleError(f"{path}: cannot be read ({error.strerror or error})") from error
        except (ValueError, RecursionError) as error:
            raise BrokenRuleError(f"{path}: not JSON ({error})") from error


def check_schema(schema: Any) -> None:
    """Look whether something is a JSON Schema that needs nothing from elsewhere.

    Raises:
        BrokenRuleError: it is not.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    try:
        validator_for(schema).check_schema(schema)
        for reference in _references(schema):
            if "://" in reference:
                raise BrokenRuleError(f"refers to {reference}, and nothing is fetched; put it under $defs")
        dialect = schema.get("$schema") if isinstance(schema, dict) else None
        specification = specification_with(dialect, default=DRAFT202012) if dialect else DRAFT202012
        resource = specification.create_resource(schema)
        base = resource.id() or ""
        resolver = Registry().with_resource(base, resource).crawl().resolver(base)
        for reference in _references(schema):
            if reference.startswith("#/"):
                resolver.lookup(reference)
    except SchemaError as error:
        raise BrokenRuleError(f"no JSON Schema: {error.message}") from error
    except Unresolvable as error:
        raise BrokenRuleError(f"refers to {error.ref}, which is not in it") from error
    except RecursionError as error:
        raise BrokenRuleError("no JSON Schema that can be read: nested too deeply") from error


def _references(schema: Any) -> Iterator[str]:
    waiting = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield from (one[key] for key in _REFERENCES & one.keys() if isinstance(one[key], str))
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
