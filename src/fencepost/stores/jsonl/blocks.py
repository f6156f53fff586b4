"""The quick way through the intact part of a log: a block of many batches at a time.

A block is taken as a whole or not at all. It is taken if every checksum in it fits, every line is a declared event, a
run or a commit line, and every seq is the next one: then reading it line by line would give the very same entries.
Whatever is out of the ordinary is refused without a word, for `frame` has the words.

A block is small, because a thread that reads one lets no other run meanwhile.
"""

from __future__ import annotations

import functools
import re
import struct
import zlib
from collections.abc import Callable
from typing import Any, TypeAlias, Union

import msgspec

from fencepost.core import codec
from fencepost.core import events as ev

BLOCK = 1 << 16
"""Bytes of a block, if its first batch is not longer."""

_COMMIT_START = b'\n{"type":"commit","seq":'
_COMMIT = re.compile(rb'\{"type":"commit","seq":\d+,"crc":"([0-9a-f]{8})"\}\n')


class Block(msgspec.Struct, frozen=True):
    """What whole batches hold: entries, dense, and the seq that has to follow."""

    entries: list[ev.Entry]
    next_seq: int


class _Commit(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="commit"):
    seq: int
    crc: str


BlockReader: TypeAlias = Callable[[bytes, int, int, int], Block | None]
"""Reads the bytes from one place to another, where a given seq is next; None: not as a block."""


def block_end(data: bytes, start: int, commit: int) -> int:
    """Where the block that begins at `start` ends: behind its last commit line; `commit` is where its first begins."""
    last = max(data.rfind(_COMMIT_START, start, start + BLOCK) + 1, commit)
    return data.find(b"\n", last) + 1 or len(data)


@functools.cache
def block_reader(vocabulary: codec.Vocabulary) -> BlockReader:
    """What reads blocks of events that `vocabulary` declares."""
    decode = msgspec.json.Decoder(Union[(*vocabulary.types, ev.ChunkRun, _Commit)]).decode_lines

    def read(data: bytes, start: int, end: int, seq: int) -> Block | None:
        block = memoryview(data)[start:end]
        parts = _COMMIT.split(block)
        if not _vouched(parts):
            return None
        try:
            records = decode(block)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if len(records) != data.count(b"\n", start, end):
            return None
        return _taken(records, len(parts) // 2, seq)

    return read


def _vouched(parts: list[bytes]) -> bool:
    """Whether each batch (at an even place) has its checksum behind it (at an odd one), and no byte is left over."""
    *batches, rest = parts[::2]
    computed = struct.pack(f">{len(batches)}I", *map(zlib.crc32, batches))
    return not rest and computed.hex().encode() == b"".join(parts[1::2])


def _taken(records: list[Any], commits: int, seq: int) -> Block | None:
    """The entries among the records, if they and the commit lines between them are in order."""
    entries: list[ev.Entry] = []
    for record in records:
        kind = type(record)
        if kind is _Commit:
            if record.seq != seq - 1:
                return None
            commits -= 1
            continue
        if record.seq != seq:
            return None
        seq += record.n if kind is ev.ChunkRun else 1
        entries.append(record)
    return Block(entries, seq) if not commits else None
