"""Event to bytes and back: one canonical JSON line each, versions, unknown events, and runs of chunks.

Rules:
    1. The canonical form of an event is what `encode` gives: the same event has the same bytes in every store.
    2. `pack` and `expand` are inverse: ids, times and order of chunks survive.
    3. An event of an undeclared type becomes `UnknownEvent`, its bytes untouched; whether a log with one may be
       continued is decided by its `ignorable` flag, in one place (`refusal`).
    4. What is not an event at all raises `NotARecordError`; nothing is skipped here.

It does not know lines, commits or files: framing belongs to a store.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Union

import msgspec

from fencepost.core import events as ev

FORMAT = 1
"""Version of the log format that this release writes."""

MIN_RUN = 2
"""Consecutive chunks that are worth a run."""

MAX_RUN = 4096
"""Chunks in one run at most, so that one line stays small."""


class NotARecordError(ValueError):
    """These bytes are not one whole event. Caught by stores, which know the place and say it."""


class _Peek(msgspec.Struct):
    type: str
    seq: int
    time: int
    ignorable: bool = False


class Vocabulary:
    """The event types that are declared: the core's, and those of the composed plugins.

    Raises:
        ValueError: two types claim one name.
    """

    def __init__(self, extra: Iterable[type[ev.Event]] = ()) -> None:
        self.types: tuple[type[ev.Event], ...] = (*ev.CORE_EVENTS, *extra)
        names = [kind.type_name() for kind in self.types]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"event types declared twice: {', '.join(twice)}")
        self._set = frozenset(self.types)
        self._names = frozenset((*names, "assistant/chunks"))
        self._decode = msgspec.json.Decoder(Union[(*self.types, ev.ChunkRun)]).decode

    def __contains__(self, kind: type[ev.Event]) -> bool:
        return kind in self._set

    def declares(self, name: str) -> bool:
        """Whether `name` is the type of a declared event."""
        return name in self._names

    def know(self, entries: Iterable[ev.Entry]) -> list[ev.Entry]:
        """The same entries, those of plugins decoded that are declared here and were unknown to the store.

        Raises:
            NotARecordError: an event of a declared type is not whole.
        """
        return [
            self.decode(entry.raw) if isinstance(entry, ev.UnknownEvent) and entry.type in self._names else entry
            for entry in entries
        ]

    def decode(self, line: bytes | memoryview, *, vouched: bool = False) -> ev.Entry:
        """One entry from its canonical bytes, without the newline.

        Args:
            line: the bytes. A run of chunks goes on referring to them.
            vouched: a checksum says that these bytes are what was written; what a run holds is then left unread until
                someone asks for it.

        Raises:
            NotARecordError: the bytes are not one whole event.
        """
        try:
            entry: ev.Entry = self._decode(line)
            if type(entry) is ev.ChunkRun and not vouched:
                _check_run(entry)
        except msgspec.DecodeError as error:
            return self._unknown(bytes(line), error)
        except UnicodeDecodeError as error:
            raise NotARecordError(f"not UTF-8: {error.reason}") from None
        return entry

    def _unknown(self, line: bytes, error: Exception) -> ev.UnknownEvent:
        try:
            peek = msgspec.json.decode(line, type=_Peek)
            line.decode()  # what a decoder skips, it does not look at
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise NotARecordError(str(error)) from None
        if peek.type in self._names:
            raise NotARecordError(f"{peek.type}: {error}") from None
        return ev.UnknownEvent(peek.seq, peek.time, peek.type, line, peek.ignorable)


def _check_run(run: ev.ChunkRun) -> None:
    texts, times = len(run.deltas), len(run.dt)
    if not run.n == texts == times + 1:
        raise NotARecordError(f"a run of {run.n} chunks holds {texts} texts and {times} times")


CORE = Vocabulary()

_encode = msgspec.json.Encoder().encode


def encode(entry: ev.Entry | ev.Header) -> bytes:
    """The canonical bytes of an entry, without a newline."""
    if isinstance(entry, ev.UnknownEvent):
        return entry.raw
    return _encode(entry)


def pack(events: Iterable[ev.Entry]) -> Iterator[ev.Entry]:
    """The same entries with consecutive chunks of one step and kind put into runs."""
    run: list[ev.AssistantChunk] = []
    for event in events:
        if type(event) is not ev.AssistantChunk or event.normalised or event.ignorable:
            yield from _close(run)
            run = []
            yield event
            continue
        if run and not (_same_run(run[-1], event) and len(run) < MAX_RUN):
            yield from _close(run)
            run = []
        run.append(event)
    yield from _close(run)


def _same_run(last: ev.AssistantChunk, event: ev.AssistantChunk) -> bool:
    return last.turn == event.turn and last.step == event.step and last.kind == event.kind and last.seq + 1 == event.seq


def _close(run: list[ev.AssistantChunk]) -> Iterator[ev.Entry]:
    if len(run) < MIN_RUN:
        yield from run
        return
    first = run[0]
    dt = [after.time - before.time for before, after in itertools.pairwise(run)]
    yield ev.ChunkRun(
        first.seq,
        first.time,
        len(run),
        first.turn,
        first.step,
        first.kind,
        msgspec.Raw(_encode(dt)),
        msgspec.Raw(_encode([chunk.delta for chunk in run])),
    )


def expand(entry: ev.Entry) -> Iterator[ev.Event | ev.UnknownEvent]:
    """The events of an entry: the members of a run, or the entry itself."""
    if not isinstance(entry, ev.ChunkRun):
        yield entry
        return
    times = itertools.accumulate(entry.dt, initial=entry.time)
    for index, (time, delta) in enumerate(zip(times, entry.deltas, strict=True)):
        yield ev.AssistantChunk(entry.seq + index, time, entry.turn, entry.step, delta, entry.kind)


def last_seq(entry: ev.Entry) -> int:
    """The seq of the last event in an entry."""
    return entry.last_seq if isinstance(entry, ev.ChunkRun) else entry.seq


def refusal(entries: Iterable[ev.Entry]) -> str | None:
    """Why a log with these entries may not be continued here, or None."""
    for entry in entries:
        if isinstance(entry, ev.UnknownEvent) and not entry.ignorable:
            return f"the event type {entry.type!r} (seq {entry.seq}) is not declared by any composed plugin"
    return None
