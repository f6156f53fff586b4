"""A stored session as JSON Lines: its header, then one line per event, in canonical form.

Chunks stand one by one; events that are not known here to the byte. Of a damaged session both sides are given, with one
line between that is no event:

    {"type":"gap","after":SEQ,"offset":N or null,"length":BYTES,"reason":"…","unit":"byte" or "row"}

`after` is the last event before it, -1 if there is none. Torn bytes at the end are no event.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import encode, expand, last_seq
from fencepost.journal.inspect import Reading


class Gap(msgspec.Struct, frozen=True, tag_field="type", tag="gap"):
    """A place in an export where something is missing."""

    after: int
    offset: int | None
    length: int
    reason: str
    unit: str = "byte"


def lines(reading: Reading) -> Iterator[bytes]:
    """The lines, without newlines."""
    if reading.stored.header is not None:
        yield encode(reading.stored.header)
    yield from _events(intact(reading))
    yield from (msgspec.json.encode(gap) for gap in gaps(reading))
    yield from _events(reading.beyond)


def _events(entries: Iterable[ev.Entry]) -> Iterator[bytes]:
    return (encode(event) for event in itertools.chain.from_iterable(map(expand, entries)))


def intact(reading: Reading) -> Sequence[ev.Entry]:
    """The entries in front of whatever is wrong; all of them where nothing is."""
    entries = reading.stored.entries
    if reading.broken is None:
        return entries
    return [entry for entry in entries if last_seq(entry) < reading.fold.next_seq]


def gaps(reading: Reading) -> list[Gap]:
    """The places where something is missing, or may not stand."""
    before = intact(reading)
    after = last_seq(before[-1]) if before else -1
    found = [Gap(after, place.offset, place.length, place.reason, place.unit) for place in reading.stored.damage]
    if reading.broken is not None:
        found.insert(0, Gap(after, None, 0, f"an event stands where it may not: {reading.broken}"))
    if not found and reading.stored.header is None:
        found.append(Gap(after, 0, 0, "the header cannot be read"))
    return found
