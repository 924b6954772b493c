"""Frames: how records stand in the bytes of a log.

A log is one line of JSON that names the format and its version, then frames until the end. A frame is a prefix of 32
bytes, a header in JSON and a payload of arrays, all little-endian:

    bytes   0-7    magic
    bytes   8-11   CRC-32 of bytes 12-31 and the header
    byte    12     kind of record; bytes 13-15 are 0
    bytes  16-19   length of the header
    bytes  20-27   length of the payload
    bytes  28-31   CRC-32 of the payload

So the headers can be walked without touching a payload, and damage loses no more than the frames that it hits: after
it, the next magic with a fitting checksum is the next frame.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from pydantic_core import from_json

from .log_bytes import Data

FORMAT: Final = "gyre-calls"
FORMAT_VERSION: Final = 1
FILE_HEADER: Final = f'{{"format":"{FORMAT}","version":{FORMAT_VERSION}}}\n'.encode()

# Read as int32, no part of it is a token id (0xf5 never stands in UTF-8, and as a last byte it makes the number
# negative), so it hardly ever occurs in a payload. Its last byte is the version of the frame's layout.
MAGIC: Final = b"\xf5GYC\xf5\xf5\xf5\x81"

_PREFIX: Final = struct.Struct("<8sIB3xIQI")
_CHECKED_FROM: Final = 12


class Kind(IntEnum):
    """What record a frame holds."""

    CALL = 1
    EXECUTION = 2


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a frame with a sound header stands."""

    offset: int
    crc: int  # of the header, and through it of the payload: it tells what the frame holds
    kind: int  # of Kind; another is of a later gyre
    header_size: int
    payload_size: int
    payload_crc: int

    @property
    def payload_offset(self) -> int:
        """Where the payload begins."""
        return self.offset + _PREFIX.size + self.header_size

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.payload_offset + self.payload_size

    def header(self, data: Data) -> dict[str, Any]:
        """Return the header.

        Raises:
            ValueError: it is no JSON object.
        """
        header = from_json(data[self.offset + _PREFIX.size : self.payload_offset])
        if not isinstance(header, dict):
            raise ValueError("the header is no JSON object")
        return header

    def payload(self, data: Data) -> bytes | None:
        """Return the payload, None where its checksum does not fit."""
        payload = data[self.payload_offset : self.end]
        return payload if zlib.crc32(payload) == self.payload_crc else None


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes that belong to no frame."""

    offset: int
    size: int


def encode_frame(kind: int, header: bytes, payload: bytes) -> bytes:
    """Return the bytes of a frame."""
    checked = _PREFIX.pack(MAGIC, 0, kind, len(header), len(payload), zlib.crc32(payload))[_CHECKED_FROM:]
    crc = zlib.crc32(header, zlib.crc32(checked))
    return b"".join((MAGIC, crc.to_bytes(4, "little"), checked, header, payload))


def crc_of(frame: bytes) -> int:
    """Return the checksum of an encoded frame's header."""
    return int.from_bytes(frame[len(MAGIC) : _CHECKED_FROM], "little")


def frame_at(data: Data, offset: int) -> Frame | None:
    """Return the frame that begins at `offset`, None where there is none, or not the whole of it."""
    prefix = data[offset : offset + _PREFIX.size]
    if len(prefix) < _PREFIX.size or not prefix.startswith(MAGIC):
        return None
    _, crc, kind, header_size, payload_size, payload_crc = _PREFIX.unpack(prefix)
    frame = Frame(offset, crc, kind, header_size, payload_size, payload_crc)
    if frame.end > len(data):
        return None
    header = data[offset + _PREFIX.size : frame.payload_offset]
    return frame if zlib.crc32(header, zlib.crc32(prefix[_CHECKED_FROM:])) == crc else None


def scan(data: Data, start: int = 0) -> Iterator[Frame | Gap]:
    """Walk over a log, from the frame at `start`: every frame with a sound header, and the gaps between them.

    Payloads are not looked at.
    """
    offset = start or (len(FILE_HEADER) if data[: len(FILE_HEADER)] == FILE_HEADER else 0)
    while offset < len(data):
        frame = frame_at(data, offset)
        if frame is None:
            frame = _frame_after(data, offset)
            yield Gap(offset, (frame.offset if frame else len(data)) - offset)
        if frame is None:
            return
        yield frame
        offset = frame.end


def _frame_after(data: Data, offset: int) -> Frame | None:
    while (offset := data.find(MAGIC, offset + 1)) >= 0:
        if (frame := frame_at(data, offset)) is not None:
            return frame
    return None
