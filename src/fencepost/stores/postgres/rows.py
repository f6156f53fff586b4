"""Entries to rows and back: a pure function each way. Reading never raises for what the rows are.

A row is an entry's canonical bytes, its first seq, and a checksum of those bytes. The head says where the log ends.

Rules:
    1. Rows below the head's next seq were acknowledged: they must be there, one behind the other, each what its
       checksum says. A row that is missing, changed or unreadable is damage, named by the seq it concerns; so are
       rows behind the head, which no append can have left.
    2. Entries stop at the first damage; whole rows beyond it are kept apart.
    3. A transaction lands whole or not at all, so there is no torn tail.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, Union

import msgspec

from fencepost.core import codec
from fencepost.core.events import ChunkRun, Entry, Header
from fencepost.core.verdict import NO_EVIDENCE, Evidence, lost_bytes
from fencepost.errors import EncodingRefusedError, IllegalEventError
from fencepost.stores import headers
from fencepost.stores.base import Damage

Row: TypeAlias = tuple[int, int, bytes]
"""Seq, checksum, bytes."""

_SHIFT = 1 << 31

LONGEST = 1 << 28
"""Bytes of one entry at most; the server takes 1 GiB for everything that one statement carries."""


def checksum(body: bytes) -> int:
    """The CRC-32 of some bytes, moved into the range of a signed integer."""
    return zlib.crc32(body) - _SHIFT


def to_rows(session: str, entries: Sequence[Entry], expected_seq: int) -> list[Row]:
    """The rows of one batch.

    Raises:
        IllegalEventError: the entries are not dense, or do not begin with `expected_seq`.
        EncodingRefusedError: an event cannot be written.
    """
    rows: list[Row] = []
    seq = expected_seq
    for entry in entries:
        if entry.seq != seq:
            raise IllegalEventError(f"session {session}: seq {entry.seq} in a batch where {seq} is next")
        body = _encoded(session, entry)
        rows.append((seq, checksum(body), body))
        seq = codec.last_seq(entry) + 1
    return rows


def _encoded(session: str, entry: Entry) -> bytes:
    try:
        body = codec.encode(entry)
    except (TypeError, ValueError, OverflowError) as error:
        raise EncodingRefusedError(f"session {session}: event {entry.seq} cannot be written: {error}") from error
    if len(body) > LONGEST:
        raise EncodingRefusedError(
            f"session {session}: event {entry.seq} has {len(body):,} bytes, more than a row takes"
        )
    return body


def behind(entries: Sequence[Entry], seq: int) -> list[Entry]:
    """The entries from `seq` on; a run that reaches across is packed anew from there."""
    events = (event for entry in entries if codec.last_seq(entry) >= seq for event in codec.expand(entry))
    return list(codec.pack(event for event in events if event.seq >= seq))


def read_header(body: bytes, crc: int) -> tuple[Header | None, str | None, Damage | None]:
    """The header of a session; why its log may not be continued, or None; what is wrong with it, or None."""
    if checksum(body) != crc:
        return None, None, Damage(0, "the header's checksum does not match", unit="row")
    header, refusal = headers.read_header(body), headers.newer(headers.format_of(body))
    if header is None and refusal is None:
        return None, None, Damage(0, "the header is not whole", unit="row")
    return header, refusal, None


class Assembly:
    """The rows of one log, taken in order of their seq.

    Args:
        end: the seq behind the last acknowledged event, None where no head says it.
        vocabulary: what decodes the entries.
        start: the seq of the first row that will be taken.
    """

    def __init__(self, end: int | None, vocabulary: codec.Vocabulary = codec.CORE, *, start: int = 0) -> None:
        self.entries: list[Entry] = []
        self.next_seq = start
        """The seq behind the intact prefix."""
        self.size = 0
        self.beyond: list[Entry] = []
        self.damage: list[Damage] = []
        self.evidence: Evidence = NO_EVIDENCE
        self._end = end
        self._decode = vocabulary.decode
        self._decode_lines = _lines(vocabulary)
        self._due: int | None = start
        """The seq that the next row should have; None behind a row that cannot say how many events it holds."""

    def take(self, rows: Sequence[Row]) -> None:
        """Take the next rows in. What is as it should be is read as one block; anything else row by row."""
        if rows and not self._quick(rows):
            for row in rows:
                self._one(*row)

    def _quick(self, rows: Sequence[Row]) -> bool:
        """Take rows in as a block, if that gives the very same entries; else nothing was taken."""
        seqs, crcs, bodies = zip(*rows, strict=True)
        if self.damage or any(zlib.crc32(body) - _SHIFT != crc for body, crc in zip(bodies, crcs, strict=True)):
            return False
        try:
            entries = self._decode_lines(b"\n".join(bodies))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        due = _end_of(entries, seqs, self.next_seq)
        if due is None or self._end is None or due > self._end:
            return False
        self.entries += entries
        self.size += sum(map(len, bodies))
        self.next_seq = self._due = due
        return True

    def _one(self, seq: int, crc: int, body: bytes) -> None:
        self.size += len(body)
        if seq != self._due:
            self._misplaced(seq)
        try:
            entry = self._whole(seq, crc, body)
        except codec.NotARecordError as error:
            self._damaged(seq, str(error), len(body))
            self._due = None
            self._lost(body)
            return
        self._due = codec.last_seq(entry) + 1
        if self._end is not None and self._due > self._end:
            self._damaged(seq, f"a row behind the end of the log, which is at seq {self._end}", len(body))
        if self.damage:
            self.beyond.append(entry)
            self._lost(body)
        else:
            self.entries.append(entry)
            self.next_seq = self._due

    def finish(self) -> None:
        """All rows were taken."""
        if self._end is None:
            self._damaged(self.next_seq, "its head is missing: nothing says where the log ends")
        elif self._due is not None and self._due < self._end:
            self._damaged(self._due, f"rows are missing: events up to seq {self._end - 1} were acknowledged")

    def _whole(self, seq: int, crc: int, body: bytes) -> Entry:
        if zlib.crc32(body) - _SHIFT != crc:
            raise codec.NotARecordError("the row's checksum does not match")
        entry = self._decode(body, vouched=True)
        if entry.seq != seq:
            raise codec.NotARecordError(f"the row holds seq {entry.seq}")
        return entry

    def _misplaced(self, seq: int) -> None:
        if self._due is None:
            return
        if seq > self._due:
            self._damaged(self._due, f"rows are missing: the next one has seq {seq}")
        else:
            self._damaged(seq, f"two rows hold seq {seq}")

    def _damaged(self, seq: int, reason: str, length: int = 0) -> None:
        self.damage.append(Damage(seq, reason, length, "row"))
        self.evidence = self.evidence.joined(Evidence(blind_at=(seq,)))

    def _lost(self, body: bytes) -> None:
        """What stands at, or beyond, damage: the calls that it names cannot be innocent (law 2)."""
        named = lost_bytes(body, 0).named
        if named:
            self.evidence = self.evidence.joined(Evidence(named))


@functools.cache
def _lines(vocabulary: codec.Vocabulary) -> Callable[[bytes], list[Any]]:
    """What decodes lines of events that `vocabulary` declares, and of no others."""
    return msgspec.json.Decoder(Union[(*vocabulary.types, ChunkRun)]).decode_lines


def _end_of(entries: list[Any], seqs: Sequence[int], due: int) -> int | None:
    """The seq behind some entries that stand in rows with these seqs; None unless all are dense and whole."""
    if len(entries) != len(seqs):
        return None
    for entry, seq in zip(entries, seqs, strict=True):
        if not entry.seq == seq == due:
            return None
        due += 1
        if type(entry) is ChunkRun:
            due += entry.n - 1
            if len(entry.dt) != entry.n - 1:
                return None
    return due
