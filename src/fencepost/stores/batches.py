"""A batch as bytes: its entries in order, each in its canonical form and closed by a newline."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.core import codec
from fencepost.core.events import Entry
from fencepost.errors import EncodingRefusedError, IllegalEventError


def batch_lines(session: str, entries: Sequence[Entry], seq: int) -> tuple[bytes, int]:
    """The lines of a batch that begins with `seq`, and the seq that follows it.

    Raises:
        IllegalEventError: the entries are not dense from `seq`.
        EncodingRefusedError: one of them has no canonical bytes, or its bytes are more than one line.
    """
    for entry in entries:
        if entry.seq != seq:
            raise IllegalEventError(f"session {session}: seq {entry.seq} in a batch where {seq} is next")
        seq = codec.last_seq(entry) + 1
    try:
        lines = b"\n".join([*map(codec.encode, entries), b""])
    except (TypeError, ValueError, OverflowError) as error:
        raise EncodingRefusedError(f"session {session}: an event cannot be written: {error}") from error
    if lines.count(b"\n") != len(entries):
        raise EncodingRefusedError(f"session {session}: an event of an unknown type is not one line")
    return lines, seq
