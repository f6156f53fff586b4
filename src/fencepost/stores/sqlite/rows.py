"""Batches as rows, and what a session's rows say: a pure function. It never raises for what is in them.

Rules:
    1. A row is one batch: whole if its checksum matches, which covers where it belongs as well as what it holds.
    2. Rows have to be dense: each begins with the seq that the one before says is next, and the head says how they end.
    3. Anything else is damage: entries stop, what is readable behind it is kept apart in `beyond`, nothing is cut.

Rows that are all in order are read many at a time, in pieces that are small enough for other threads to get their turn.
Where one is not, they are read one by one: the way with the words.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Union

import msgspec

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.core.verdict import NO_EVIDENCE, Evidence, lost_bytes
from fencepost.stores.base import Damage

_PIECE = 128
"""Rows that are read at a time."""

COLUMNS = "id, prev, seq, next, written, crc, data"


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One batch, as it stands in the table: `COLUMNS`. `written` is in epoch milliseconds."""

    id: int
    prev: int
    seq: int
    next: int
    written: int
    crc: int
    data: bytes


def rows_of(found: Sequence[tuple[object, ...]]) -> list[Row]:
    """What a statement found, as rows.

    Raises:
        msgspec.ValidationError: one of them has values that no row can have; SQLite does not look at that on reading.
    """
    return msgspec.convert(found, list[Row])


def checksum(session: int, seq: int, following: int, data: bytes) -> int:
    """The crc of a row: of where it belongs, and of its bytes.

    Args:
        session: the row id of its session.
        seq: of its first event.
        following: the seq behind its last event.
    """
    return zlib.crc32(data, zlib.crc32(b"%d %d %d" % (session, seq, following)))


class Read(msgspec.Struct, frozen=True):
    """What a session's rows say; all but `next_seq`, the seq behind `entries`, as in `StoredLog`."""

    entries: list[ev.Entry]
    next_seq: int
    beyond: list[ev.Entry] = []
    damage: tuple[Damage, ...] = ()
    evidence: Evidence = NO_EVIDENCE


def read_rows(session: int, rows: Sequence[Row], end: int, vocabulary: codec.Vocabulary, start: int = 0) -> Read:
    """Everything that can be said about a session's rows.

    Args:
        session: the row id of the session.
        rows: in the order of their seqs.
        end: the next seq as the session's head says it; -1 where there is none.
        start: the seq that the first of these rows has to begin with.
    """
    reading = _Reading(session, vocabulary, start)
    decode = _decoder(vocabulary)
    for first in range(0, len(rows), _PIECE):
        piece = rows[first : first + _PIECE]
        entries = None if reading.damage else _in_order(session, piece, reading.intact, decode)
        if entries is not None:
            reading.entries += entries
            reading.intact = reading.expected = piece[-1].next
            continue
        for row in piece:
            reading.take(row)
    return reading.result(end)


@functools.cache
def _decoder(vocabulary: codec.Vocabulary) -> Callable[[bytes], list[Any]]:
    return msgspec.json.Decoder(Union[(*vocabulary.types, ev.ChunkRun)]).decode_lines


def _in_order(
    session: int, rows: Sequence[Row], seq: int, decode: Callable[[bytes], list[Any]]
) -> list[ev.Entry] | None:
    """The entries of rows of which each is whole, dense and of declared types; None where anything is not."""
    expected = seq
    for row in rows:
        if row.seq != expected or checksum(session, row.seq, row.next, row.data) != row.crc:
            return None
        expected = row.next
    lines = b"".join([row.data for row in rows])
    try:
        entries = decode(lines)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    for entry in entries:
        if entry.seq != seq:
            return None
        seq += entry.n if type(entry) is ev.ChunkRun else 1
    return entries if seq == expected and len(entries) == lines.count(b"\n") else None


class _Reading:
    def __init__(self, session: int, vocabulary: codec.Vocabulary, start: int) -> None:
        self.session = session
        self.decode: Callable[..., ev.Entry] = vocabulary.decode
        self.entries: list[ev.Entry] = []
        self.beyond: list[ev.Entry] = []
        self.damage: list[Damage] = []
        self.lost: list[bytes] = []
        self.intact = start
        self.expected: int | None = start
        """The next seq; None behind a row whose own word for it cannot be trusted."""

    def take(self, row: Row) -> None:
        if self.expected is not None and row.seq > self.expected:
            self._bad(self.expected, f"events {self.expected} to {row.seq - 1} are missing")
        elif self.expected is not None and row.seq < self.expected:
            self._bad(row.seq, f"seq {row.seq} stands there a second time", len(row.data))
        entries, why = self._entries(row)
        if why:
            self._bad(row.seq, f"the batch of events {row.seq} to {row.next - 1} {why}", len(row.data))
        self.expected = None if why else max(self.expected or 0, row.next)
        if self.damage:
            self.beyond += entries
            self.lost.append(row.data)
        else:
            self.entries += entries
            self.intact = row.next

    def _bad(self, seq: int, why: str, length: int = 0) -> None:
        self.damage.append(Damage(seq, why, length, "row"))

    def _entries(self, row: Row) -> tuple[list[ev.Entry], str]:
        """The entries of one row; where it is not whole, those lines that are, and why it is not."""
        if checksum(self.session, row.seq, row.next, row.data) != row.crc:
            return list(self._whole(row.data)), "is not what was written: its checksum does not match"
        entries, seq = [], row.seq
        try:
            for line in row.data.split(b"\n")[:-1]:
                entry = self.decode(line, vouched=True)
                if entry.seq != seq:
                    return list(self._whole(row.data)), f"holds seq {entry.seq} where {seq} is next"
                entries.append(entry)
                seq = codec.last_seq(entry) + 1
        except codec.NotARecordError as error:
            return list(self._whole(row.data)), f"holds what is no event: {error}"
        return entries, "" if seq == row.next else f"ends before seq {seq}"

    def _whole(self, data: bytes) -> list[ev.Entry]:
        found = []
        for line in data.split(b"\n"):
            try:
                found.append(self.decode(line))
            except codec.NotARecordError:
                continue
        return found

    def result(self, end: int) -> Read:
        if self.expected is not None and end > self.expected:
            self._bad(self.expected, f"events {self.expected} to {end - 1} are missing at the end")
        elif self.expected is not None and 0 <= end < self.expected:
            self._bad(self.expected, f"the head says that seq {end} is next, and there is more")
        evidence = lost_bytes(b"".join(self.lost), self.intact) if self.damage else NO_EVIDENCE
        return Read(self.entries, self.intact, self.beyond, tuple(self.damage), evidence)
