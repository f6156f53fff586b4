"""A damaged log to legal ones: what is intact stays, what is missing is marked, what stood beyond it is kept.

A pure function of what a store could read. Rules:
    1. The intact prefix stays as it is, to the byte.
    2. Where something is missing stands a `log/gap`; no damage that was reported goes without one.
    3. A whole record from beyond it takes the next free seq if the fold accepts it there, and is wrapped in a
       `log/salvaged` if not. None is left out; only one that is there already, to the byte, is not kept twice.
       Where it names another record by its seq, that is renumbered with it; where that one does not stand, neither
       does it.
    4. A turn, or a step, that begins or ends beyond a gap first closes what is open in its way: results of unknown
       outcome, as repair writes them.
    5. Two records with one seq are two lines of events, by two writers. The first goes on; the second becomes a log of
       its own, from where it leaves the first. Each marks that there is another, and takes its innocence from it.
    6. In the end everything is closed, so that each log can be resumed and gone on with.

What it cannot know: whether a record that reads well is the record that was written, where its batch's checksum does
not match. It stands behind a gap, and nothing behind one is called not started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import encode, expand, last_seq
from fencepost.core.lifecycle import State
from fencepost.core.log import Fold
from fencepost.core.normalise import make
from fencepost.core.repair import Closer, closers
from fencepost.core.verdict import NO_EVIDENCE, Evidence
from fencepost.errors import IllegalEventError

_EVERYTHING = 2**53


class Break(msgspec.Struct, frozen=True):
    """A place where something is wrong, as the store tells it."""

    offset: int | None
    """A byte (files) or a row (databases)."""
    reason: str
    length: int = 0


class Line(msgspec.Struct, frozen=True):
    """One line of events: a legal log with nothing open.

    Attributes:
        entries: all of it, dense from seq 0.
        kept: the intact events that stand at its beginning as they did.
        gaps, renumbered, wrapped, closed: how many of each stand behind those.
    """

    entries: tuple[ev.Entry, ...]
    kept: int
    gaps: int
    renumbered: int
    wrapped: int
    closed: int


class Branch(msgspec.Struct):
    """Whole records beyond damage that follow one another, and the seq in front of which they leave the main line."""

    start: int
    last: int
    records: list[ev.Entry]
    odd: set[int]
    """Indices of records whose seq cannot be right."""


def salvage(
    entries: Sequence[ev.Entry],
    beyond: Sequence[ev.Entry] = (),
    breaks: Sequence[Break] = (),
    evidence: Evidence = NO_EVIDENCE,
    owner: str = "salvage",
    at: int = 0,
) -> list[Line]:
    """The lines of events that a damaged log holds, the main one first.

    Args:
        entries: the prefix, as far as the store vouches for it. Where one may not stand, the rest is beyond.
        beyond: whole records behind the first break.
        breaks: what is wrong, in order.
        evidence: what is known of lost bytes.
        owner: who writes the closing events.
        at: the time of what is written where no event has one, in epoch milliseconds.
    """
    prefix, rest, why = legal(entries)
    if why is not None:
        breaks = (Break(None, f"an event stands where it may not: {why}"), *breaks)
    main, *others = branches(prefix, (*rest, *beyond))
    since = min((other.start for other in others), default=None)
    mended = [_main(_Mending(prefix, at), main, breaks, since, bool(others))]
    mended += [_other(_Mending(list(_before(prefix, other.start)), at), other) for other in others]
    return [one.closed(evidence, owner) for one in mended]


def legal(entries: Sequence[ev.Entry]) -> tuple[Sequence[ev.Entry], Sequence[ev.Entry], str | None]:
    """The entries that make a legal log, those that follow, and why the first of them may not; None if none do."""
    fold = Fold()
    for index, entry in enumerate(entries):
        try:
            fold.take(entry)
        except IllegalEventError as error:
            return entries[:index], entries[index:], str(error)
    return entries, (), None


# --- which record belongs to which line -------------------------------------------------------------------------


def branches(prefix: Sequence[ev.Entry], beyond: Sequence[ev.Entry]) -> list[Branch]:
    """The records beyond, each in the line that it goes on with; the main line first, even if it has none."""
    end = last_seq(prefix[-1]) if prefix else -1
    lines = [Branch(0, end, [], set())]
    known = _known(prefix, min((entry.seq for entry in beyond), default=0))
    current = lines[0]
    for index, entry in enumerate(beyond):
        after = beyond[index + 1].seq if index + 1 < len(beyond) else None
        raw = encode(entry)
        if entry.seq <= max(line.last for line in lines) and raw in known:
            continue  # written twice, the same: nothing is lost by keeping it once
        known.add(raw)
        if _misnumbered(entry, after, current.last):
            current.odd.add(len(current.records))
            current.records.append(entry)
            continue
        current = _line_for(entry.seq, current, lines)
        current.records.append(entry)
        current.last = last_seq(entry)
    return lines


def _known(prefix: Sequence[ev.Entry], first: int) -> set[bytes]:
    found = set()
    for entry in reversed(prefix):
        if last_seq(entry) < first:
            break
        found.add(encode(entry))
    return found


def _misnumbered(entry: ev.Entry, after: int | None, last: int) -> bool:
    """Whether a seq is out of order by itself: left out, what is in front of it and what is behind it fit."""
    if after is None or entry.seq == last + 1:
        return False
    return last < after <= entry.seq or (entry.seq <= last and after == last + 2)


def _line_for(seq: int, current: Branch, lines: list[Branch]) -> Branch:
    """The line that a seq goes on with; a new one where it goes on with none."""
    for line in (current, *lines):
        if line.last + 1 == seq:
            return line
    behind = [line for line in lines if line.last < seq]
    if behind:
        return max(behind, key=lambda line: line.last)  # of several, the main line
    lines.append(Branch(seq, seq - 1, [], set()))
    return lines[-1]


# --- one line, mended -------------------------------------------------------------------------------------------


class _Mending:
    """A log that grows behind an intact prefix."""

    def __init__(self, prefix: Sequence[ev.Entry], at: int) -> None:
        self._at = at
        self.fold = Fold()
        self.out: list[ev.Entry] = []
        for entry in prefix:
            self._take(entry)
        self.kept = self.fold.next_seq
        self._moved: dict[int, int] = {}
        """The new seqs of records from beyond, by the seqs that they had."""
        self.gaps = self.renumbered = self.wrapped = self.closing = 0

    def _take(self, entry: ev.Entry) -> None:
        self.fold.take(entry)
        self.out.append(entry)

    def _write(self, cls: type[ev.Event], fields: dict[str, Any]) -> None:
        self._take(make(cls, self.fold.next_seq, self.fold.last_time or self._at, fields)[0])

    def gap(self, place: Break, lost: tuple[int, int | None] | None, since: int | None = None) -> None:
        """Mark that something is missing. How far its far side reaches is known, and set, in the end."""
        first, last = lost or (None, None)
        fields = {"reason": place.reason, "offset": place.offset, "length": place.length, "since": since}
        self._write(ev.Gap, {**fields, "lost_from": first, "lost_to": last, "until": _EVERYTHING})
        self.gaps += 1

    def place(self, entry: ev.Entry, odd: bool) -> None:
        """Keep a record from beyond (rule 3)."""
        if odd or isinstance(entry, ev.UnknownEvent):  # its seq is in bytes that are not ours to write
            self._wrap(entry)
            return
        self._make_way(entry)
        seq, named = self.fold.next_seq, self._named(entry)
        try:
            if named is None:
                raise IllegalEventError(f"what seq {entry.seq} refers to does not stand")
            self._take(msgspec.structs.replace(entry, seq=seq, **named))
        except IllegalEventError:
            self._wrap(entry)
            return
        self._moved[entry.seq] = seq
        self.renumbered += 1

    def _named(self, entry: ev.Event | ev.ChunkRun) -> dict[str, int] | None:
        """The fields by which a record names another one, as they have to be now; None where that one is not there."""
        match entry:
            case ev.ContextSummary(through=old):
                field = "through"
            case ev.ToolCall(retries=int(old)):
                field = "retries"
            case _:
                return {}
        new = old if old < self.kept else self._moved.get(old)
        return None if new is None else {field: new}

    def _wrap(self, entry: ev.Entry) -> None:
        self._write(ev.Salvaged, {"original": encode(entry).decode(errors="replace")})
        self.wrapped += 1

    def _make_way(self, entry: ev.Entry) -> None:
        """Close what has to be closed for a record to stand (rule 4)."""
        turn = self.fold.turn
        if turn is None or self.fold.state is State.IDLE:
            return
        if isinstance(entry, ev.TurnStart) and entry.turn > turn.number:
            self._close(closers(self.fold))
        elif isinstance(entry, ev.StepStart) and entry.turn == turn.number and entry.step > turn.step:
            self._close(closers(self.fold)[:-1])
        elif isinstance(entry, ev.StepEnd) and (entry.turn, entry.step) == (turn.number, turn.step):
            self._close([closer for closer in closers(self.fold) if closer.cls is ev.ToolResult])
        elif isinstance(entry, ev.TurnEnd) and entry.turn == turn.number:
            self._close(closers(self.fold)[:-1])

    def _close(self, owed: list[Closer]) -> None:
        for closer in owed:
            self._write(closer.cls, closer.fields)
        self.closing += len(owed)

    def closed(self, evidence: Evidence, owner: str) -> Line:
        """The line, with nothing open any more."""
        until = self.fold.next_seq - 1
        owed = closers(self.fold, evidence)
        if owed or self.gaps:
            last = self.fold.owner
            epoch = last.epoch + 1 if last else 1
            self._write(ev.SessionOwner, {"owner": owner, "epoch": epoch, "resumed": last is not None})
        self._close(owed)
        return Line(
            tuple(_reaching(entry, until) for entry in self.out),
            self.kept,
            self.gaps,
            self.renumbered,
            self.wrapped,
            self.closing,
        )


def _reaching(entry: ev.Entry, until: int) -> ev.Entry:
    if not isinstance(entry, ev.Gap) or entry.until != _EVERYTHING:
        return entry
    return msgspec.structs.replace(entry, until=until if until > entry.seq else -1)


def _main(mending: _Mending, main: Branch, breaks: Sequence[Break], since: int | None, forked: bool) -> _Mending:
    """The main line: the prefix, and what goes on with it."""
    left = list(breaks)
    expected = mending.kept
    if not left and (main.records or forked):
        left = [Break(None, "records stand behind the end")]
    for index, entry in enumerate(main.records):
        odd = index in main.odd
        lost = (expected, entry.seq - 1) if entry.seq > expected and not odd else None
        if lost or index == 0:
            mending.gap(left.pop(0) if left else _missing(*(lost or (0, 0))), lost, since if index == 0 else None)
        mending.place(entry, odd)
        if not odd:
            expected = last_seq(entry) + 1
    for index, place in enumerate(left):
        first = index == 0 and not main.records
        mending.gap(place, None if forked else (expected, None), since if first else None)
    return mending


def _other(mending: _Mending, branch: Branch) -> _Mending:
    """Another line: the prefix up to where it leaves, a mark, and what it says."""
    expected = mending.kept
    why = Break(None, f"another line of events leaves the main one here, in front of seq {branch.start}; this is it")
    mending.gap(why, (expected, branch.start - 1) if branch.start > expected else None)
    expected = branch.start
    for index, entry in enumerate(branch.records):
        odd = index in branch.odd
        if entry.seq > expected and not odd:
            mending.gap(_missing(expected, entry.seq - 1), (expected, entry.seq - 1))
        mending.place(entry, odd)
        if not odd:
            expected = last_seq(entry) + 1
    return mending


def _before(prefix: Sequence[ev.Entry], seq: int) -> Iterator[ev.Entry]:
    """The entries in front of a seq; the run that it may be inside of, as chunks."""
    for entry in prefix:
        if last_seq(entry) < seq:
            yield entry
            continue
        yield from (event for event in expand(entry) if event.seq < seq)
        return


def _missing(first: int, last: int) -> Break:
    return Break(None, f"events {first} to {last} are missing" if last > first else f"event {first} is missing")
