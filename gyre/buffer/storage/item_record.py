"""An execution's record and tree as the header and payload of a frame, and back.

The payload holds the tree's arrays as they are, in the order of the fields of `Tree` and `TreeCalls`, and then its
texts and single numbers in JSON. Nothing is compressed: what waits for an update is read again within hours, and a
tree is written and read several times as fast as a table of `gyre.trajectory.store`.
"""

from __future__ import annotations

from typing import Any, Final, get_args, get_origin, get_type_hints

import numpy as np
from pydantic_core import PydanticSerializationError, from_json, to_json

from ...errors import InputError
from ...splitmix import hashed
from ...trajectory.call_log.frame import Frame, encode_frame
from ...trajectory.call_log.log_bytes import Data
from ...trajectory.call_log.problem import UNREADABLE
from ...trajectory.call_log.record import decode_execution
from ...trajectory.record_fields import checked_execution, shown
from ...trajectory.store.part import Item
from ...trajectory.tree import Refusal, Tree, TreeCalls

KIND: Final = 16
"""Of a frame that holds an execution; the kinds of `gyre.trajectory.call_log` are others."""


class DamagedRecordError(ValueError):
    """A frame is not what was written, or not of this format."""


def _arrays(kind: type) -> dict[str, np.dtype[Any]]:
    """Return the dtype of each field of a dataclass that is an array."""
    hints = get_type_hints(kind)
    return {
        name: np.dtype(get_args(get_args(hint)[1])[0]) for name, hint in hints.items() if get_origin(hint) is np.ndarray
    }


_TREE_ARRAYS: Final = _arrays(Tree)
_CALL_ARRAYS: Final = _arrays(TreeCalls)
_DTYPES: Final = (*_TREE_ARRAYS.values(), *_CALL_ARRAYS.values())
_CALL_TEXTS: Final = tuple(name for name in get_type_hints(TreeCalls) if name not in _CALL_ARRAYS)
_TREE_REST: Final = tuple(
    name for name in get_type_hints(Tree) if name not in {*_TREE_ARRAYS, "calls", "refused", "media_digest"}
)

LAYOUT: Final = f"{hashed(str([_TREE_ARRAYS, _TREE_REST, _CALL_ARRAYS, _CALL_TEXTS])):016x}"
"""Stands for the fields of trees, their order and their dtypes: what another layout wrote is not read."""


def encode_item(group: int, item: Item) -> bytes:
    """Return the frame of an execution of a group.

    Raises:
        InputError: record and tree are of different executions, a field of the record is of a wrong type, or a text is
            no Unicode.
    """
    record, tree = item
    if record.execution != tree.execution:
        raise InputError(f"record of {shown(record.execution)} with the tree of {shown(tree.execution)}")
    arrays = [getattr(tree, name) for name in _TREE_ARRAYS] + [getattr(tree.calls, name) for name in _CALL_ARRAYS]
    rest: dict[str, Any] = {name: getattr(tree, name) for name in _TREE_REST}
    rest["media_digest"] = tree.media_digest
    rest["refused"] = [(each.call_id, each.sequence, each.reason, each.text) for each in tree.refused]
    rest["calls"] = [getattr(tree.calls, name) for name in _CALL_TEXTS]
    try:
        header = to_json(
            {
                "group": group,
                "execution": record.execution,
                "record": checked_execution(record),
                "lengths": [len(array) for array in arrays],
            }
        )
        texts = to_json(rest, inf_nan_mode="constants")
    except (PydanticSerializationError, UnicodeError) as error:
        raise InputError(f"execution {shown(record.execution)}: cannot be stored ({error})") from error
    parts = [array.astype(dtype, copy=False).tobytes() for array, dtype in zip(arrays, _DTYPES, strict=True)]
    return encode_frame(KIND, header, b"".join((*parts, texts)))


def frame_execution(frame: Frame, data: Data, group: int) -> str:
    """Return whose frame it is, from its header alone.

    Raises:
        DamagedRecordError: it is no execution's, or one of another group than `group`.
    """
    try:
        header = frame.header(data)
        if frame.kind != KIND or header["group"] != group or not isinstance(header["execution"], str):
            raise ValueError(f"a record of kind {frame.kind} and group {shown(header.get('group'))}")
    except UNREADABLE as error:
        raise DamagedRecordError(str(error)) from error
    return str(header["execution"])


def decode_item(frame: Frame, data: Data) -> Item:
    """Return the execution of a frame.

    Raises:
        DamagedRecordError: the payload is not what was written, or does not fit the header.
    """
    payload = frame.payload(data)
    if payload is None:
        raise DamagedRecordError("the checksum is another")
    try:
        header = frame.header(data)
        arrays, end = [], 0
        for length, dtype in zip(header["lengths"], _DTYPES, strict=True):
            arrays.append(np.frombuffer(payload, dtype, length, end).copy())  # a buffer's own view cannot be written
            end += arrays[-1].nbytes
        rest = from_json(memoryview(payload)[end:].tobytes())
        return decode_execution(header["record"]), _tree(arrays, rest)
    except UNREADABLE as error:
        raise DamagedRecordError(str(error)) from error


def _tree(arrays: list[np.ndarray[Any, Any]], rest: dict[str, Any]) -> Tree:
    of_calls: dict[str, Any] = dict(zip(_CALL_ARRAYS, arrays[len(_TREE_ARRAYS) :], strict=True))
    of_calls |= {name: tuple(values) for name, values in zip(_CALL_TEXTS, rest.pop("calls"), strict=True)}
    of_tree: dict[str, Any] = dict(zip(_TREE_ARRAYS, arrays[: len(_TREE_ARRAYS)], strict=True))
    of_tree["refused"] = tuple(Refusal(*each) for each in rest.pop("refused"))
    of_tree["media_digest"] = tuple(rest.pop("media_digest"))
    return Tree(calls=TreeCalls(**of_calls), **of_tree, **rest)
