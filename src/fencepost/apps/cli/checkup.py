"""What is wrong with one session, what is intact around it, and what can be claimed about each call. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fencepost.apps.cli.lines import intact
from fencepost.apps.cli.looking import status_for
from fencepost.core import events as ev
from fencepost.core.codec import last_seq
from fencepost.core.salvage import branches
from fencepost.core.verdict import Verdict
from fencepost.journal.inspect import Reading, SessionState, examine


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, and where: at which byte of the log, or row; null where that cannot be said."""

    offset: int | None
    reason: str
    length: int = 0
    unit: str = "byte"

    @property
    def sentence(self) -> str:
        """For people."""
        long = f", {self.length} bytes long" if self.length else ""
        return self.reason if self.offset is None else f"{self.unit} {self.offset}{long}: {self.reason}"


class Claim(msgspec.Struct, frozen=True):
    """What the log claims about one call."""

    call_id: str
    name: str
    verdict: Verdict
    code: str = ""


class Span(msgspec.Struct, frozen=True):
    """Events that follow one another, by seq."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first} to {self.last}" if self.last > self.first else str(self.first)


class Checkup(msgspec.Struct, frozen=True):
    """One session.

    Attributes:
        before: the events in front of whatever is wrong; all of them where nothing is.
        beyond: whole events behind it, in the order in which they stand there.
        second_lines: those of them that another writer wrote, each from where it leaves the first line.
        gaps: places where salvage marked that something is missing.
    """

    session: str
    state: SessionState
    problems: tuple[Problem, ...]
    tail_bytes: int
    calls: tuple[Claim, ...]
    before: Span | None = None
    beyond: tuple[Span, ...] = ()
    second_lines: tuple[Span, ...] = ()
    gaps: int = 0

    @property
    def unknown(self) -> int:
        """Calls whose outcome is unknown."""
        return sum(call.verdict == "outcome_unknown" for call in self.calls)


def check(reading: Reading) -> Checkup:
    """Look at a session that was read. Takes its time where the log is long."""
    found, before = examine(reading), intact(reading)
    return Checkup(
        session=found.session,
        state=found.state,
        problems=tuple(_problems(reading, found.state, found.problem)),
        tail_bytes=found.tail_bytes,
        calls=tuple(Claim(call.call_id, call.name, call.verdict, call.code) for call in found.calls),
        before=Span(0, last_seq(before[-1])) if before else None,
        beyond=tuple(spans(reading.beyond)),
        second_lines=tuple(_second_lines(before, reading.beyond)),
        gaps=len(reading.fold.gaps),
    )


def _problems(reading: Reading, state: SessionState, problem: str | None) -> Iterable[Problem]:
    damage = reading.stored.damage
    yield from (Problem(place.offset, place.reason, place.length, place.unit) for place in damage)
    if not damage and status_for(state):
        yield Problem(None, problem or state)


def _second_lines(before: Sequence[ev.Entry], beyond: Sequence[ev.Entry]) -> Iterable[Span]:
    _, *others = branches(before, beyond)
    return (Span(other.start, other.last) for other in others)


def spans(entries: Iterable[ev.Entry]) -> Iterable[Span]:
    """The stretches in which seqs follow one another."""
    first = last = None
    for entry in entries:
        if first is not None and last is not None and entry.seq != last + 1:
            yield Span(first, last)
            first = None
        first = entry.seq if first is None else first
        last = last_seq(entry)
    if first is not None and last is not None:
        yield Span(first, last)
