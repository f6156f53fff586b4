"""Salvage: new sessions from the intact parts of a damaged one, in any store that reports damage.

Rules:
    1. The original is read, never taken and never touched (law 7).
    2. What goes where is decided by `core.salvage`; here it is only read, named and made durable.
    3. The main line gets the name that was asked for, a second one that name with `-2` behind it, and so on. Each
       appears whole or not at all, and none before all the names are taken.
    4. Only what is damaged is salvaged. An interrupted session is resumed, and loses nothing by it.

Large outputs in `Store.files` stay where they are; results name them by their path.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import FORMAT, NotARecordError, Vocabulary, last_seq, pack
from fencepost.core.salvage import Break, Line, salvage
from fencepost.errors import DamagedError, HeldError, UnsupportedError, UsageError
from fencepost.journal.inspect import fold_stored, state_of
from fencepost.journal.session import Identity, off_loop
from fencepost.stores.base import Store, StoredLog


class SalvagedLine(msgspec.Struct, frozen=True):
    """One new session, durable.

    Attributes:
        events: all of it.
        intact: those that stand at its beginning as they did in the original.
        gaps: places where something is missing.
        renumbered: whole events from beyond a gap, in their place again.
        wrapped: whole records from beyond a gap that could not be put into their place.
        closed: events that close what was open.
    """

    session: str
    events: int
    intact: int
    gaps: int
    renumbered: int
    wrapped: int
    closed: int


class SalvagedSession(msgspec.Struct, frozen=True):
    """What became of a damaged session: one new session, or one for each line of events that it held."""

    parent: str
    problem: str
    lines: tuple[SalvagedLine, ...]


def breaks_of(stored: StoredLog) -> list[Break]:
    """Everything that is wrong with a stored log, in order; empty where nothing is."""
    found = [Break(damage.offset, damage.reason, damage.length) for damage in stored.damage]
    if stored.header is None and not found:
        found.append(Break(0, "the header cannot be read"))
    if stored.tail_bytes:
        reason = f"{stored.tail_bytes} torn bytes at the end"
        found.append(Break(stored.size - stored.tail_bytes, reason, stored.tail_bytes))
    return found


def lines_of(stored: StoredLog, vocabulary: Vocabulary, owner: str = "salvage", at: int = 0) -> list[Line]:
    """The lines of events that a stored log holds, each legal and closed. Takes its time where the log is long."""
    entries, beyond = (list(_known(found, vocabulary)) for found in (stored.entries, stored.beyond))
    return salvage(entries, beyond, breaks_of(stored), stored.evidence, owner, at)


def _known(entries: Iterable[ev.Entry], vocabulary: Vocabulary) -> Iterator[ev.Entry]:
    """The entries, those of declared plugins decoded; one that is not whole stays unknown, to the byte."""
    for entry in entries:
        if isinstance(entry, ev.UnknownEvent):
            with contextlib.suppress(NotARecordError):
                (entry,) = vocabulary.know((entry,))
        yield entry


async def salvage_session(
    store: Store, parent: str, to: str, identity: Identity, vocabulary: Vocabulary, cwd: str
) -> SalvagedSession:
    """Make new sessions of what is intact in a damaged one.

    Args:
        to: the id of the new session; of further ones, what begins with it.
        identity: who writes the closing events, and the clock.
        cwd: the working directory where the original's header does not name one any more.

    Raises:
        SessionNotFoundError: there is no such session.
        SessionExistsError: a new id is taken; nothing was written.
        HeldError: somebody works on the original.
        UsageError: it is not damaged.
        UnsupportedError: it is of a newer release, or of a plugin that is not composed here.
        StoreError: a new session could not be saved; one that was saved before it is there.
    """
    stored = await store.read(parent)
    at = stored.updated or identity.clock()
    problem = await off_loop(len(stored.entries), lambda: _salvageable(stored, vocabulary))
    mended = await off_loop(len(stored.entries), partial(lines_of, stored, vocabulary, identity.owner, at))
    names = [to, *(f"{to}-{number}" for number in range(2, len(mended) + 1))]
    headers = [_header(stored, name, line, identity, cwd) for name, line in zip(names, mended, strict=True)]
    await _write(store, headers, mended)
    made = tuple(_told(name, line) for name, line in zip(names, mended, strict=True))
    return SalvagedSession(parent, problem, made)


async def _write(store: Store, headers: Sequence[ev.Header], mended: Sequence[Line]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        handles = []
        for header in headers:
            handle = await store.create(header)
            stack.push_async_callback(handle.release)
            handles.append(handle)
        for handle, line in zip(handles, mended, strict=True):
            await handle.append(list(pack(line.entries)), 0)


def _salvageable(stored: StoredLog, vocabulary: Vocabulary) -> str:
    """What is wrong with a session that may be salvaged, in a sentence.

    Raises:
        HeldError, UnsupportedError, UsageError: it may not.
    """
    name, (state, problem) = stored.session, state_of(fold_stored(stored, vocabulary))
    if stored.owner is not None:
        raise HeldError(f"session {name} is held by process {stored.owner.pid} on {stored.owner.host}")
    if state == "unsupported":
        raise UnsupportedError(f"session {name} cannot be salvaged here: {problem}")
    if state != "damaged" and not stored.tail_bytes:
        next_act = f"Go on with it, with `fencepost resume {name}`, or fork it"
        raise UsageError(f"session {name} is {state}, not damaged: there is nothing to salvage", next_act=next_act)
    return problem or state


def _header(stored: StoredLog, to: str, line: Line, identity: Identity, cwd: str) -> ev.Header:
    first = next(iter(breaks_of(stored)), None)
    return ev.Header(
        to,
        identity.clock(),
        stored.header.cwd if stored.header else cwd,
        FORMAT,
        parent=stored.session,
        forked_at=line.kept - 1 if line.kept else None,
        salvaged_at=-1 if first is None or first.offset is None else first.offset,
    )


def _told(name: str, line: Line) -> SalvagedLine:
    events = last_seq(line.entries[-1]) + 1 if line.entries else 0
    return SalvagedLine(name, events, line.kept, line.gaps, line.renumbered, line.wrapped, line.closed)


async def set_torn_aside(store: Store, session: str) -> int:
    """Move the torn bytes at the end of a session into a side file, and nothing else; returns how many.

    Raises:
        SessionNotFoundError: there is no such session.
        HeldError: somebody works on it; nothing was touched.
        DamagedError, UnsupportedError: it is never cut.
    """
    handle = await store.own(session)
    try:
        stored = handle.stored
        if stored.damage or stored.header is None:
            next_act = f"Write what is intact into a new session with `fencepost doctor {session} --salvage NEW`"
            first = f" at {stored.damage[0].where}: {stored.damage[0].reason}" if stored.damage else ""
            raise DamagedError(f"session {session} is damaged{first}; it is never cut", next_act=next_act)
        if stored.refusal is not None:
            raise UnsupportedError(f"session {session} is left as it is: {stored.refusal}")
        return await handle.set_aside() if stored.tail_bytes else 0
    finally:
        await handle.release()
