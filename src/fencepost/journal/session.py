"""The journal of one live session: its log in memory, its writer, and ownership of its stored form.

Rules:
    1. Opening is reading. `create` and `resume` write nothing by themselves but what repair has to (law 7).
    2. The first event that a new owner appends is preceded by `session/owner`.
    3. Repair runs under the lock, before anything else is appended, and is durable before `resume` returns.
    4. Only `proof` (and `clear`, which flushes first) makes a `Clearance`, when the watermark has passed the event.

What it refuses to be: it runs no turn, asks no model and knows no plugin.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import FORMAT, NotARecordError, Vocabulary, refusal
from fencepost.core.lifecycle import State
from fencepost.core.log import Log
from fencepost.core.repair import closers
from fencepost.core.verdict import CallVerdict, Evidence, verdicts
from fencepost.errors import ClosedError, DamagedError, IllegalEventError, NotSavedError, UnsupportedError
from fencepost.journal.writer import Writer
from fencepost.stores.base import Handle, Store, StoredLog, own

E = TypeVar("E", bound=ev.Event)
T = TypeVar("T")

MANY = 1000
"""Entries that are folded on the event loop at most: about a millisecond of work."""


class Clearance(msgspec.Struct, frozen=True):
    """Proof that the event `seq` was durable when this was made. Made by `Journal.proof` only."""

    seq: int
    watermark: int


class Identity(msgspec.Struct, frozen=True):
    """What the outside hands in: who we are, what time it is, and fresh names.

    Attributes:
        owner: this writer, for `session/owner`.
        clock: epoch milliseconds.
        fresh: a new unique id with the given prefix.
    """

    owner: str
    clock: Callable[[], int]
    fresh: Callable[[str], str]


class Recovery(msgspec.Struct, frozen=True):
    """What `resume` found and did.

    Attributes:
        calls: the verdict on every call of the interrupted turn, after settlement and before the closers.
        interrupted: the number of the turn that was open, or None for a clean log.
        set_aside: torn bytes that were moved into a side file.
        closed: events that were appended behind the new owner's line: by settlement, and by repair.
    """

    calls: tuple[CallVerdict, ...] = ()
    interrupted: int | None = None
    set_aside: int = 0
    closed: int = 0


class Journal:
    """See the module. Made by `create` or `resume`."""

    def __init__(self, handle: Handle, log: Log, identity: Identity, set_aside: int = 0) -> None:
        self.log = log
        self.identity = identity
        self._handle = handle
        self._set_aside = set_aside
        self._owned = False
        self._closed = False
        self._listeners: list[Callable[[NotSavedError | None], None]] = []
        self._writer = Writer(handle, log, on_state=self._tell)

    def __repr__(self) -> str:
        return f"<Journal {self.session} | next seq {self.log.fold.next_seq} | durable up to {self.watermark}>"

    @classmethod
    async def create(cls, store: Store, session: str, cwd: str, identity: Identity, vocabulary: Vocabulary) -> Journal:
        """Take a new session; nothing is stored before its first flush.

        Raises:
            SessionExistsError, HeldError: the id is taken.
        """
        header = ev.Header(session, identity.clock(), cwd, FORMAT)
        handle = await store.create(header)
        return cls(handle, Log(header, identity.clock, vocabulary), identity)

    @classmethod
    async def resume(
        cls,
        store: Store,
        session: str,
        identity: Identity,
        vocabulary: Vocabulary,
        *,
        takeover: bool = False,
        settle: Settler | None = None,
    ) -> tuple[Journal, Recovery]:
        """Take a stored session, set its torn tail aside, settle, close what was interrupted, and wait.

        Args:
            takeover: take it from an owner who lives, too; see `stores.base.own`.
            settle: called under the lock, in front of the closers, if calls have no result; may append results.

        Raises:
            SessionNotFoundError, HeldError: from the store; nothing was touched.
            UsageError: its owner lives, and this store cannot take it over.
            DamagedError, UnsupportedError: it may be read and not continued; nothing was touched.
            NotSavedError: the closers could not be made durable.
        """
        handle = await own(store, session, takeover=takeover)
        try:
            stored = handle.stored
            log = await off_loop(len(stored.entries), partial(load, stored, identity.clock, vocabulary))
            moved = await handle.set_aside() if stored.tail_bytes else 0
        except BaseException:
            await handle.release()
            raise
        journal = cls(handle, log, identity, moved)
        try:
            return journal, await journal._close_interrupted(stored, moved, settle)
        except BaseException:
            with contextlib.suppress(NotSavedError):  # what led here is the error that counts
                await journal.close()  # what was established until now is kept, if it can be
            raise

    async def _close_interrupted(self, stored: StoredLog, moved: int, settle: Settler | None) -> Recovery:
        fold = self.log.fold
        if fold.state is State.IDLE or fold.turn is None:
            return Recovery(set_aside=moved)
        began, turn = fold.next_seq, fold.turn.number
        if settle is not None and fold.owed:
            await settle(self, stored.evidence)
        at = fold.last_time
        found = tuple(item for item in verdicts(fold, stored.evidence) if item.call.turn == turn)
        for closer in closers(fold, stored.evidence):
            self.append(closer.cls, at=at, **closer.fields)
        await self.flush()
        return Recovery(found, turn, moved, fold.next_seq - began - 1)

    @property
    def session(self) -> str:
        """The session's id."""
        return self.log.header.session

    @property
    def watermark(self) -> int:
        """The seq up to which the store has acknowledged; -1 if nothing yet."""
        return self._writer.watermark

    @property
    def closed(self) -> bool:
        """Whether nothing more can be appended."""
        return self._closed

    @property
    def unsaved(self) -> NotSavedError | None:
        """Why the session is not being saved at present, or None."""
        return self._writer.problem

    def listen(self, listener: Callable[[NotSavedError | None], None]) -> None:
        """Call `listener` with the cause when saving begins to fail, and with None when it works again."""
        self._listeners.append(listener)

    def on_watermark(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Call `listener` with the new watermark whenever it moves; returns what ends that."""
        return self._writer.on_watermark(listener)

    def _tell(self, failure: NotSavedError | None) -> None:
        for listener in self._listeners:
            listener(failure)

    def append(self, cls: type[E], /, *, at: int | None = None, **fields: Any) -> E:
        """Append one event in memory. Never waits.

        Raises:
            IllegalEventError, UndeclaredEventError: see `Log.append`.
            ClosedError: the journal was closed.
        """
        if self._closed:
            raise ClosedError(f"session {self.session} is closed")
        if not self._owned and cls in self.log.vocabulary:
            self._owned = True
            self._announce()
        return self.log.append(cls, at=at, **fields)

    def _announce(self) -> None:
        last = self.log.fold.owner
        self.log.append(
            ev.SessionOwner,
            owner=self.identity.owner,
            epoch=last.epoch + 1 if last else 1,
            resumed=last is not None,
            set_aside=self._set_aside,
        )

    async def flush(self) -> None:
        """Wait until all that was appended before this call is durable.

        Raises:
            NotSavedError: it could not be made durable; it is kept and the next flush tries again.
        """
        await self._writer.flush()

    async def clear(self, event: ev.Event) -> Clearance:
        """Flush, and prove that `event` is durable.

        Raises:
            NotSavedError: it is not.
        """
        await self._writer.flush()
        return self.proof(event)

    def proof(self, event: ev.Event) -> Clearance:
        """Prove that `event` is durable already, without waiting.

        Raises:
            NotSavedError: it is not.
        """
        if self.watermark < event.seq:
            raise NotSavedError(f"session {self.session}: event {event.seq} is not saved")
        return Clearance(event.seq, self.watermark)

    async def room(self) -> None:
        """Wait while more is pending than the bound allows.

        Raises:
            NotSavedError: the store fails, so no room will come.
        """
        await self._writer.room()

    async def close(self) -> None:
        """Flush a last time and give the session up. Idempotent.

        Raises:
            NotSavedError: something could not be made durable; ownership is given up all the same.
        """
        if self._closed:
            return
        self._closed = True
        try:
            await self._writer.close()
        finally:
            await self._handle.release()


Settler: TypeAlias = Callable[[Journal, Evidence], Awaitable[None]]


def load(stored: StoredLog, clock: Callable[[], int], vocabulary: Vocabulary) -> Log:
    """The log of a session that may be continued. Takes its time where the log is long.

    Raises:
        DamagedError, UnsupportedError: it may not.
    """
    try:
        entries = vocabulary.know(stored.entries)
        header = continuable(stored, entries)
        return Log(header, clock, vocabulary, entries)
    except (IllegalEventError, NotARecordError) as error:
        raise DamagedError(f"session {stored.session} holds an event that may not stand there: {error}") from None


async def off_loop(size: int, work: Callable[[], T]) -> T:
    """What `work` gives; done in a thread if it goes over many entries, so that other sessions keep their beat."""
    return work() if size < MANY else await asyncio.to_thread(work)


def continuable(stored: StoredLog, entries: Sequence[ev.Entry]) -> ev.Header:
    """The header of a log that may be continued.

    Args:
        stored: as it was read.
        entries: its entries, those of declared plugins decoded.

    Raises:
        DamagedError, UnsupportedError: it may not.
    """
    if stored.damage or stored.header is None:
        first = stored.damage[0] if stored.damage else None
        where = f" at {first.where}: {first.reason}" if first else ": its header cannot be read"
        raise DamagedError(f"session {stored.session} is damaged{where}")
    why = stored.refusal or refusal(entries)
    if why is not None:
        raise UnsupportedError(f"session {stored.session} cannot be continued here: {why}")
    return stored.header
