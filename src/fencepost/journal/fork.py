"""A fork: a new session that begins as another one did.

Rules:
    1. The prefix is copied, event by event: a fork needs nobody, and outlives its parent (docs/notes/0005-forks.md).
    2. The parent is read, never taken and never touched; a living owner goes on beside it.
    3. A call that is open at the cut gets its closing result in the fork only. It is `not_started` there only if it
       certainly did not run in the parent either, before the cut or after it; the fork knows more than its own events.
    4. The fork appears whole or not at all: it is one append.

Prompts that were queued and not run at the cut are copied like all else. They wait in the fork, as after a crash, and
run when somebody says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import FORMAT, Vocabulary, expand, last_seq, pack
from fencepost.core.log import Log
from fencepost.core.repair import Closer, closers
from fencepost.core.verdict import TOOL_NOT_STARTED, Evidence, not_started_text, unknown_text, verdict_of
from fencepost.errors import UsageError
from fencepost.journal.session import Identity, load, off_loop
from fencepost.stores.base import Store, StoredLog


class Cut(msgspec.Struct, frozen=True):
    """Where a fork leaves its parent: behind an event, or behind a turn; behind all that is durable by default.

    Attributes:
        seq: the last event that is copied.
        turn: the last turn that is copied; up to the end of the log where it is still open.
    """

    seq: int | None = None
    turn: int | None = None


class Forked(msgspec.Struct, frozen=True):
    """A fork that is durable.

    Attributes:
        forked_at: seq of the last event that was copied.
        closed: events that were appended to close what was open there.
    """

    session: str
    parent: str
    forked_at: int
    closed: int


async def fork(
    store: Store, parent: str, to: str, identity: Identity, vocabulary: Vocabulary, cut: Cut | None = None
) -> Forked:
    """Make a new session out of the beginning of another one.

    Args:
        to: the new session's id.
        identity: who writes the closing events, and the clock.

    Raises:
        SessionNotFoundError: there is no such parent.
        SessionExistsError, HeldError: the new id is taken.
        UsageError: the parent has no such event or turn.
        DamagedError, UnsupportedError: the parent could not be continued either.
        StoreError: the fork could not be saved; there is none.
    """
    stored = await store.read(parent)
    make = partial(_made, stored, to, identity, vocabulary, cut or Cut())
    log, forked = await off_loop(len(stored.entries), make)
    handle = await store.create(log.header)
    try:
        await handle.append(list(pack(log.entries)), 0)
    finally:
        await handle.release()
    return forked


def _made(stored: StoredLog, to: str, identity: Identity, vocabulary: Vocabulary, cut: Cut) -> tuple[Log, Forked]:
    """The fork's log, in memory."""
    parent = load(stored, identity.clock, vocabulary)
    at = _seq(parent, cut)
    header = ev.Header(to, identity.clock(), parent.header.cwd, FORMAT, parent=parent.header.session, forked_at=at)
    log = Log(header, identity.clock, vocabulary, _prefix(parent.entries, at))
    owed = _closers(log, parent, stored)
    if owed:
        last = log.fold.owner
        epoch = last.epoch + 1 if last else 1
        log.append(ev.SessionOwner, at=log.fold.last_time, owner=identity.owner, epoch=epoch, resumed=last is not None)
    for closer in owed:
        log.append(closer.cls, at=log.fold.last_time, **closer.fields)
    return log, Forked(to, parent.header.session, at, log.fold.next_seq - at - 1)


def _seq(parent: Log, cut: Cut) -> int:
    """The seq of the last event to copy.

    Raises:
        UsageError: the parent has no such event or turn.
    """
    name, last = parent.header.session, parent.fold.next_seq - 1
    if cut.turn is not None:
        if cut.turn not in parent.fold.turns:
            count = len(parent.fold.turns)
            raise UsageError(f"session {name} has no turn {cut.turn}; it has {count} turn{'s' if count != 1 else ''}")
        ends = (entry.seq for entry in parent.entries if isinstance(entry, ev.TurnEnd) and entry.turn == cut.turn)
        return next(ends, last)
    if cut.seq is None:
        return last
    if not 0 <= cut.seq <= last:
        raise UsageError(f"session {name} has no event {cut.seq}; its events are 0 to {last}")
    return cut.seq


def _prefix(entries: Sequence[ev.Entry], at: int) -> Iterator[ev.Entry]:
    """The entries up to an event; the run that it may be inside of, as chunks."""
    for entry in entries:
        if last_seq(entry) <= at:
            yield entry
            continue
        for event in expand(entry):
            if event.seq <= at:
                yield event
        return


def _closers(log: Log, parent: Log, stored: StoredLog) -> list[Closer]:
    """What ends the open turn of the fork, its calls judged by all that the parent knows."""
    name = parent.header.session
    ran = frozenset(call for call in log.fold.owed if not _certainly_not_started(call, parent, stored))
    return [_reworded(closer, name) for closer in closers(log.fold, Evidence(named=ran))]


def _certainly_not_started(call: str, parent: Log, stored: StoredLog) -> bool:
    record = parent.fold.calls[call]
    if record.result is None and stored.owner is not None:
        return False  # its owner lives, and may be letting it go right now
    return verdict_of(record, parent.fold.turns[record.turn].gates, stored.evidence).verdict == "not_started"


def _reworded(closer: Closer, parent: str) -> Closer:
    if closer.cls is not ev.ToolResult:
        return closer
    if closer.fields["code"] == TOOL_NOT_STARTED:
        text = not_started_text(f"this session was forked from {parent} before the call was let go, which it never was")
    else:
        text = unknown_text(f"this session was forked from {parent} while the call was open, and there it may have run")
    return Closer(closer.cls, {**closer.fields, "content": (ev.Text(text),)})
