"""The header of a session in its canonical bytes: read where it can be, judged where it is newer than this release."""

from __future__ import annotations

import msgspec

from fencepost.core import codec
from fencepost.core.events import Header


class _Peek(msgspec.Struct, tag_field="type", tag="session"):
    format: int


_HEADER = msgspec.json.Decoder(Header)
_PEEK = msgspec.json.Decoder(_Peek)


def read_header(line: bytes) -> Header | None:
    """The header from its bytes, or None where they are none."""
    try:
        return _HEADER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def format_of(line: bytes) -> int | None:
    """The log format that a header names, one that this release cannot read too; None where the bytes are no header."""
    try:
        return _PEEK.decode(line).format
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def newer(number: int | None) -> str | None:
    """Why a log of this format may not be continued, a clause; None where it is not newer than this release."""
    if number is None or number <= codec.FORMAT:
        return None
    return f"it was written by a newer fencepost (format {number}; this one knows {codec.FORMAT})"
