"""Calls a function that judges: `python -m gyre.scoring.call_function module:function`, in a workplace."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from ..errors import InputError
from ..imported import imported
from .evaluation import Evaluation
from .result import evaluation_of
from .subject_form import subject_of_json


def called(name: str) -> Evaluation:
    """Call the function on the subject that GYRE_SUBJECT names."""
    function: Any = imported(name, f"function {name}")
    said = function(subject_of_json(Path(os.environ["GYRE_SUBJECT"]).read_bytes()))
    return evaluation_of(asyncio.run(_awaited(said)) if inspect.isawaitable(said) else said)


async def _awaited(said: Any) -> object:
    return await said


def main() -> None:
    """Call the function, and write its evaluation to the file that GYRE_RESULT names."""
    result = Path(os.environ["GYRE_RESULT"])
    try:
        evaluation = asdict(called(sys.argv[1]))
    except InputError as error:
        sys.exit(str(error))
    del evaluation["seconds"]
    result.write_bytes(to_json(evaluation))


if __name__ == "__main__":
    main()
