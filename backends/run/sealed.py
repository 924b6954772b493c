"""Small records that a restart relies on: JSON with a version and a checksum, whole or not there."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gyre.atomic import write_text_atomic
from gyre.errors import InputError

VERSION: Final = 1


def write_sealed(path: Path, kind: str, values: Mapping[str, Any]) -> None:
    """Write a record of a kind; it outlives a power failure when this returns.

    Raises:
        InputError: the system refuses.
    """
    body = json.dumps(values, separators=(",", ":"), sort_keys=True)
    seal = zlib.crc32(body.encode())
    write_text_atomic(path, f'{{"gyre":"{kind}","version":{VERSION},"crc32":{seal},"values":{body}}}\n')


def read_sealed(path: Path, kind: str, remedy: str) -> dict[str, Any] | None:
    """Return a record's values, None where there is no file; `remedy` ends the message where it cannot be believed.

    Raises:
        InputError: it is damaged, of another kind or of a newer gyre, or cannot be read.
    """
    try:
        record = json.loads(path.read_bytes())
        found, version, seal, values = record["gyre"], record["version"], record["crc32"], record["values"]
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no record of gyre, or a damaged one; {remedy}") from error
    if found != kind:
        raise InputError(f"{path}: a record of kind {found!r}, expected {kind!r}; {remedy}")
    if version != VERSION:
        raise InputError(f"{path}: a record of version {version}, this gyre reads {VERSION}; {remedy}")
    body = json.dumps(values, separators=(",", ":"), sort_keys=True)
    if zlib.crc32(body.encode()) != seal or not isinstance(values, dict):
        raise InputError(f"{path}: damaged, its checksum does not fit; {remedy}")
    return values
