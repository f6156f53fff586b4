"""Bytes of a log to entries, and back: a pure function each way. It never raises for what the bytes are.

The form: a header line, entry lines, and behind each batch one commit line whose crc covers every byte since the
commit line before it (the first one covers the header too).

Rules:
    1. A line ends at byte 0x0A and nowhere else, and is decoded by itself.
    2. What stands before the last intact commit line was acknowledged, or was about to be: it must be whole. Anything
       else there is damage: entries stop, what is readable behind it is kept apart in `beyond`, nothing is cut.
    3. What stands behind the last intact commit line is the tail. Whole records at its start are kept, also without
       their newline; the rest is torn and may be set aside. But whole records behind a bad stretch are not a torn
       write: damage.
    4. Bytes in the tail mean that bytes are missing, the commit line at least. What is gone is reported as evidence.

What is as it should be is read in blocks of many batches (`blocks`). Where something is not, this module goes batch by
batch and line by line, and says what is wrong and where.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator

import msgspec

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.core.upgrades import CHAIN, Chain, leads_here, upgraded_event, upgraded_header
from fencepost.core.verdict import NO_EVIDENCE, Evidence, lost_bytes
from fencepost.stores.base import Damage
from fencepost.stores.headers import format_of, newer, read_header
from fencepost.stores.jsonl.blocks import block_end, block_reader

_COMMIT_START = b'{"type":"commit","seq":'
_COMMIT = re.compile(rb'\{"type":"commit","seq":(\d+),"crc":"([0-9a-f]{8})"\}(?=[\n\0]|\Z)')
_LOOSE_COMMIT = re.compile(rb'\{"type":"commit","seq":\d+,"crc":"[0-9a-f]{8}"\}\n')
_HOLE = re.compile(rb"\0+")
_RECORD_START = b'{"type":"'
_MAX_STARTS = 64
"""Places in one bad line where a whole record is looked for."""


class Framed(msgspec.Struct, frozen=True, kw_only=True):
    """What the bytes of a log say.

    Attributes:
        header, entries, beyond, damage, evidence: as in `StoredLog`; upgraded where the log is older.
        format: the format that the bytes are in, None where they do not say.
        next_seq: what the next entry's seq has to be.
        refusal: why the log may not be continued, a clause; None where it may.
        missing: bytes of unknown content are gone at the end, a commit line at least.
        torn: the bytes at the end that are no whole records.
        owes_newline: the bytes before those end without their newline.
        crc: over what stands behind the last commit line without the torn bytes, an owed newline included; the next
            batch goes on from it.
    """

    header: ev.Header | None
    entries: list[ev.Entry]
    next_seq: int
    evidence: Evidence
    format: int | None
    refusal: str | None
    beyond: list[ev.Entry] = []
    damage: tuple[Damage, ...] = ()
    missing: bool = False
    torn: bytes = b""
    owes_newline: bool = False
    crc: int = 0


_NO_HEADER = "the header lacks what a header has"


class _Commit(msgspec.Struct, frozen=True):
    at: int
    end: int
    seq: int
    crc: int


class _BadLine(Exception):  # noqa: N818 - a place, not a fault of the program
    def __init__(self, offset: int, reason: str, length: int = 0) -> None:
        self.damage = Damage(offset, reason, length)


def commit_line(seq: int, crc: int) -> bytes:
    """The line that closes a batch whose last event is `seq`."""
    return b'{"type":"commit","seq":%d,"crc":"%08x"}\n' % (seq, crc)


def read_log(data: bytes, vocabulary: codec.Vocabulary = codec.CORE, chain: Chain = CHAIN) -> Framed:
    """Everything that can be said about the bytes of a log.

    Args:
        chain: the steps through which older formats are read.
    """
    return _Reading(data, vocabulary, chain).result()


def _commit_behind(data: bytes, pos: int) -> _Commit | None:
    """The first intact commit line that begins at or behind `pos`, and behind the first line."""
    line = b"\n" + _COMMIT_START
    at = data.find(line, max(pos - 1, 0))
    while at >= 0:
        match = _COMMIT.match(data, at + 1)
        if match:
            end = match.end()
            return _Commit(at + 1, end + data.startswith(b"\n", end), int(match[1]), int(match[2], 16))
        at = data.find(line, at + 1)
    return None


class _Reading:
    """One pass over the bytes of a log."""

    def __init__(self, data: bytes, vocabulary: codec.Vocabulary, chain: Chain = CHAIN) -> None:
        self.data = data
        self.view = memoryview(data)
        self.chain = chain
        self.format: int | None = None
        self.decode: Callable[..., ev.Entry] = vocabulary.decode
        self.read_block = block_reader(vocabulary)
        self.header: ev.Header | None = None
        self.refusal: str | None = None
        self.entries: list[ev.Entry] = []
        self.next_seq = 0
        self.committed = 0

    def result(self) -> Framed:
        try:
            start = self._header()
            self._batches(start)
            keep, owes_newline = self._tail(max(self.committed, start))
        except _BadLine as bad:
            return self._damaged(bad.damage)
        torn = self.data[keep:]
        missing = len(self.data) > self.committed
        crc = zlib.crc32(self.view[self.committed : keep])
        if owes_newline and keep > self.committed:
            crc = zlib.crc32(b"\n", crc)
        return Framed(
            header=self.header,
            entries=self.entries,
            next_seq=self.next_seq,
            format=self.format,
            refusal=self.refusal,
            evidence=lost_bytes(torn, self.next_seq) if missing else NO_EVIDENCE,
            missing=missing,
            torn=torn,
            owes_newline=owes_newline,
            crc=crc,
        )

    def _damaged(self, damage: Damage) -> Framed:
        """Nothing is torn, nothing may be appended. An older reader does not call a newer form damaged."""
        return Framed(
            header=self.header,
            entries=self.entries,
            next_seq=self.next_seq,
            format=self.format,
            refusal=self.refusal,
            evidence=lost_bytes(self.data[damage.offset :], self.next_seq),
            beyond=list(self._records(damage.offset, holed=True)),
            damage=() if self.refusal else (damage,),
        )

    # --- the parts of a log, in order ---------------------------------------------------------------------------

    def _header(self) -> int:
        """Read the first line; returns where the next one begins."""
        end = self.data.find(b"\n")
        line = self.data if end < 0 else self.data[:end]
        number = self.format = format_of(line)
        if number is None:
            raise _BadLine(0, "the header is not whole" if self.data else "the log is empty")
        self.header = read_header(line)
        self.refusal = newer(number)
        if number < codec.FORMAT:
            self._read_older(line, number)
        elif self.header is None and self.refusal is None:
            raise _BadLine(0, _NO_HEADER)
        return len(line) if end < 0 else end + 1

    def _read_older(self, line: bytes, number: int) -> None:
        """Read what follows through the steps that lead from its format to this one."""
        if not leads_here(number, self.chain):
            self.refusal = f"it was written by an older fencepost (format {number}), which this one cannot read"
            return
        try:
            self.header = read_header(upgraded_header(line, number, self.chain))
        except codec.NotARecordError:
            self.header = None
        if self.header is None:
            raise _BadLine(0, _NO_HEADER)
        decode, chain = self.decode, self.chain

        def older(line: bytes | memoryview, *, vouched: bool = False) -> ev.Entry:
            return decode(upgraded_event(bytes(line), number, chain), vouched=vouched)

        self.decode = older
        self.read_block = lambda *_: None  # it reads this release's lines only

    def _batches(self, start: int) -> None:
        """Read all that stands before the last commit line."""
        plain_from = start + 1  # the first batch is for itself: its checksum covers the header too
        while (commit := _commit_behind(self.data, self.committed)) is not None:
            if commit.at >= plain_from:
                end = block_end(self.data, self.committed, commit.at)
                block = self.read_block(self.data, self.committed, end, self.next_seq)
                if block is not None:
                    self.entries += block.entries
                    self.next_seq = block.next_seq
                    self.committed = end
                    continue
                plain_from = end
            self._batch(max(self.committed, start), commit)
            self.committed = commit.end

    def _batch(self, start: int, commit: _Commit) -> None:
        """Read the lines between two commit lines; the crc begins at the earlier one."""
        vouched = zlib.crc32(self.view[self.committed : commit.at]) == commit.crc
        count, seq = len(self.entries), self.next_seq
        pos = start
        while pos < commit.at:
            pos = self._line(pos, self.data.find(b"\n", pos), vouched=vouched)
        if vouched and commit.seq == self.next_seq - 1:
            return
        del self.entries[count:]
        self.next_seq = seq
        why = "its checksum does not match" if not vouched else f"it ends before seq {commit.seq}"
        raise _BadLine(start, f"the batch up to seq {commit.seq} is not what was written: {why}", commit.end - start)

    def _line(self, pos: int, end: int, *, vouched: bool) -> int:
        """Take one line in as the next entry; returns where the next line begins."""
        try:
            entry = self.decode(self.view[pos:end], vouched=vouched)
        except codec.NotARecordError as error:
            raise _BadLine(pos, str(error)) from None
        if entry.seq != self.next_seq:
            raise _BadLine(pos, f"seq {entry.seq} where {self.next_seq} is next")
        self.entries.append(entry)
        self.next_seq = codec.last_seq(entry) + 1
        return end + 1

    def _tail(self, pos: int) -> tuple[int, bool]:
        """Keep the whole records behind the last commit line; returns where the torn bytes begin, and whether the
        kept ones lack their newline.
        """
        data = self.data
        while (end := data.find(b"\n", pos)) >= 0:
            try:
                pos = self._line(pos, end, vouched=False)
            except _BadLine as bad:
                self._refuse_to_cut(bad)
                return pos, False
        stop = len(data.rstrip(b"\0"))
        if pos < stop:
            try:
                self._line(pos, stop, vouched=False)
                return stop, True
            except _BadLine as bad:
                self._refuse_to_cut(bad)
        return pos, pos > 0 and data[pos - 1] != 0x0A

    def _refuse_to_cut(self, bad: _BadLine) -> None:
        """Raise `bad` if whole records stand at or behind it: then it is not the end of a torn write."""
        at = bad.damage.offset
        if self.refusal is None and (_LOOSE_COMMIT.search(self.data, at) or next(self._records(at), None)):
            raise bad

    # --- the far side of a bad stretch --------------------------------------------------------------------------

    def _records(self, at: int, *, holed: bool = False) -> Iterator[ev.Entry]:
        """The whole records from `at` on, wherever they are.

        Args:
            holed: also those whose newline, and what followed it, a run of NULs has swallowed.
        """
        data = self.data
        while at < len(data):
            end = data.find(b"\n", at)
            closed, end = (True, end) if end >= 0 else (False, len(data))
            *before, last = _HOLE.split(data[at:end].strip(b"\0")) if holed else [data[at:end]]
            entries = (*(self._whole(part, closed=False) for part in before), self._whole(last, closed=closed))
            yield from (entry for entry in entries if entry is not None)
            at = end + 1

    def _whole(self, line: bytes, *, closed: bool) -> ev.Entry | None:
        """A whole record that ends `line`: without the NULs beside it, or welded to the torn one before it.

        Welded ones are looked for in lines with a newline only: in a torn line, what looks like one may be an object
        inside the record that was torn.
        """
        line = line.strip(b"\0")
        start = 0
        for _ in range(_MAX_STARTS if closed else 1):
            try:
                return self.decode(line[start:])
            except codec.NotARecordError:
                start = line.find(_RECORD_START, start + 1)
                if start < 0:
                    break
        return None
