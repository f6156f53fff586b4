"""What a store is: the durability contract, written as before and after.

A store keeps the logs of many sessions. It knows entries, not turns; it decides nothing about verdicts. One writer
per session: `create` and `own` take ownership and give a `Handle`; everything else only reads.

The promise that all laws rest on is `Handle.append`. One contract suite, `tests/stores/contract.py`, runs against
every store under every fault.

What a store refuses to be: a cache, a queue or a scheduler. Batching, watermarks and retries belong to the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec

from fencepost.core.events import Entry, Header
from fencepost.core.verdict import NO_EVIDENCE, Evidence
from fencepost.errors import HeldError, UsageError


class Damage(msgspec.Struct, frozen=True):
    """One place where durable bytes are not whole."""

    offset: int
    """Byte offset in the session's log (files), or the row's seq (databases)."""
    reason: str
    length: int = 0
    """Bytes concerned; 0 where that cannot be said."""
    unit: Literal["byte", "row"] = "byte"
    """What `offset` counts."""

    @property
    def where(self) -> str:
        """The place, in two words for people."""
        return f"{self.unit} {self.offset}"


class Owner(msgspec.Struct, frozen=True):
    """Who holds a session: text for people. The lock itself decides, never these numbers (law 8)."""

    pid: int
    host: str
    since: int
    """Epoch milliseconds."""


class StoredLog(msgspec.Struct, frozen=True, kw_only=True):
    """A session as it is stored, read without changing a byte.

    Attributes:
        header: None where it cannot be read.
        entries: the intact prefix: dense from seq 0 (law 6).
        beyond: whole entries on the far side of the first damage, for showing and exporting only.
        watermark: seq of the last event that the store acknowledged, -1 if none.
        size: bytes of the stored log.
        tail_bytes: torn bytes at the end that `Handle.set_aside` will move out of the log.
        evidence: what those bytes, and bytes set aside earlier, name.
        damage: not empty: read-only, never cut.
        refusal: why this release cannot continue the log (newer format, unknown event), or None.
        owner: who holds the session now, or None if its lock is free.
        updated: when the log last changed, epoch milliseconds.
    """

    session: str
    header: Header | None
    entries: Sequence[Entry]
    beyond: Sequence[Entry] = ()
    watermark: int = -1
    size: int = 0
    tail_bytes: int = 0
    evidence: Evidence = NO_EVIDENCE
    damage: tuple[Damage, ...] = ()
    refusal: str | None = None
    owner: Owner | None = None
    updated: int = 0


@runtime_checkable
class Handle(Protocol):
    """Ownership of one session. Not shared between processes; not inherited by children."""

    @property
    def stored(self) -> StoredLog:
        """The log as it was read after ownership was taken."""
        ...

    async def append(self, entries: Sequence[Entry], expected_seq: int) -> None:
        """Make one batch durable.

        Before: `entries` are dense, the first has seq `expected_seq`, and that is the next seq of the stored log.
        At most one append of a handle is in flight.

        After, on return: the whole batch survives a power cut, as does everything before it, and so does the
        session's name. Until then nothing may be concluded about it.

        After, on raise: the log reads as it did before the call, or the batch is a torn tail that the next append,
        or the next owner, deals with. The same batch may be appended again; it is then there once.

        Raises:
            NoSpaceError, ReadOnlyError, PermissionDeniedError, MediumError: by the cause that the OS gave.
            LostOwnershipError: someone else wrote since; nothing of the batch lands.
            PoisonedError: an earlier failure could not be rolled back; every later call raises it too.
            EncodingRefusedError: an event cannot be written in this store's form.
        """
        ...

    async def set_aside(self) -> int:
        """Move the torn tail into a side file, durably, and cut it off the log; returns the bytes moved.

        Idempotent, and safe against a crash in the middle: the evidence in the tail is never lost.
        """
        ...

    async def release(self) -> None:
        """Give ownership up. Idempotent. Waits for an append in flight."""
        ...


@runtime_checkable
class Store(Protocol):
    """A place where logs are durable.

    Attributes:
        url: how this store is named on a command line.
        durable: False for memory: nothing survives the process, and every face says so.
    """

    @property
    def url(self) -> str:
        """How this store is named on a command line."""
        ...

    @property
    def durable(self) -> bool:
        """Whether what is appended survives the process."""
        ...

    @property
    def ownership(self) -> str:
        """What keeps a second writer out, in a few words for people."""
        ...

    def files(self, session: str) -> Path:
        """A directory for what belongs to a session and is too large for its log; made by whoever first writes."""
        ...

    async def create(self, header: Header) -> Handle:
        """Take ownership of a new session.

        After: nobody else can create or own this id. Nothing is listed before the first append; that one makes
        header and batch visible together, or neither.

        Raises:
            SessionExistsError: the id is taken; nothing was overwritten.
            HeldError: another process is about to create it.
        """
        ...

    async def own(self, session: str) -> Handle:
        """Take ownership of a stored session, then read it. Changes no byte of the log (law 7).

        Raises:
            SessionNotFoundError, HeldError.
        """
        ...

    async def read(self, session: str) -> StoredLog:
        """Read a session without taking it, beside a living owner too. Changes no byte.

        Raises:
            SessionNotFoundError: no such session here. Never for one that is merely damaged.
        """
        ...

    async def sessions(self) -> list[str]:
        """The ids of all sessions, damaged ones included, in no particular order."""
        ...

    async def close(self) -> None:
        """Release what is still owned. Idempotent."""
        ...


class Trashed(msgspec.Struct, frozen=True):
    """A session that was deleted and can be restored."""

    session: str
    deleted: int
    """Epoch milliseconds."""


class Compressed(msgspec.Struct, frozen=True):
    """What compressing a log saved: its bytes before and after."""

    before: int
    after: int


@runtime_checkable
class Upkeep(Store, Protocol):
    """A store that can also look after sessions which nobody works on. All that ship can.

    Apart from `Store`, so that a small store of your own may leave it out: sessions in it run and are read all the
    same, its listings read every log, and commands that need one of these say that the store has no such thing.
    """

    async def revisions(self) -> dict[str, str]:
        """For each session that `sessions` lists, a token that differs whenever what `read` gives differs, owner aside.

        Cheap: no log is read. A token means nothing outside of its store, and its form may change with each release.
        """
        ...

    async def owner(self, session: str) -> Owner | None:
        """Who holds a session now, by its lock alone; None if nobody does, or there is no such session."""
        ...

    async def delete(self, session: str) -> None:
        """Move a session into the store's trash, damaged or not.

        Before: nobody owns it.

        After, on return: it is not listed, not read and not owned; its id is free; `restore` brings it back, and all of
        this survives a power cut. Nothing of it is lost. After a cut in the middle it is in one place or the other.

        Raises:
            SessionNotFoundError, HeldError: nothing was touched.
        """
        ...

    async def trash(self) -> list[Trashed]:
        """What is in the trash, the latest first. An id can be there several times. Changes no byte."""
        ...

    async def restore(self, session: str) -> None:
        """Take the session of that id which was deleted last out of the trash.

        After, on return: it reads as it did before it was deleted, durably.

        Raises:
            SessionNotFoundError: it is not in the trash.
            SessionExistsError: the id is taken again; the trash is as it was.
            HeldError: somebody is about to take the id.
        """
        ...

    async def purge(self, before: int) -> int:
        """Destroy what was deleted before a time; returns how many sessions.

        After a power cut in the middle each session is in the trash, whole, or gone.

        Args:
            before: epoch milliseconds.
        """
        ...

    async def compress(self, session: str) -> Compressed:
        """Store a log in fewer bytes. It reads as it did; the first append of an owner undoes it.

        Before: nobody owns it. A log that is compressed already is left as it is.

        After, on return: the compressed form is durable, and was read back and compared before the other one went.
        After a cut in the middle there is one whole log.

        Raises:
            SessionNotFoundError, HeldError: nothing was touched.
            DamagedError, UnsupportedError: such a log is never touched.
            UsageError: this store has no such form.
        """
        ...


@runtime_checkable
class Fenced(Store, Protocol):
    """A store that can take a session from an owner who lives: each append proves anew that it is the owner's.

    Where an OS lock is all that keeps two writers apart this cannot be: the lock is its holder's until that one ends.
    """

    async def take_over(self, session: str) -> Handle:
        """Take ownership of a stored session, whoever has it, then read it. Changes no byte of the log (law 7).

        After, on return: nothing that an earlier owner appends from now on lands; it gets a `LostOwnershipError`. What
        it had appended before is in the log that was read.

        Raises:
            SessionNotFoundError: no such session here.
        """
        ...


class Footing(msgspec.Struct, frozen=True, kw_only=True):
    """What a store's promise stands on, as far as it can be asked for.

    Attributes:
        directory: where its files are, or will be; None where it has none on this host. `SCHEME:PATH`, with the scheme
            of its URL and a path below that directory, names another store of its kind, whose promise stands on the
            same medium: it can be tried out.
        settings: what its engine says of itself, by name.
        problems: with which of it the promise cannot be kept, one sentence each.
        note: what has to be known about the rest.
    """

    directory: Path | None = None
    settings: dict[str, str] = {}
    problems: tuple[str, ...] = ()
    note: str = ""


@runtime_checkable
class Footed(Store, Protocol):
    """A store that can say what its promise stands on."""

    async def footing(self) -> Footing:
        """What its promise stands on. Changes no byte."""
        ...


async def own(store: Store, session: str, *, takeover: bool) -> Handle:
    """Take ownership of a stored session, then read it; see `Store.own`.

    Args:
        takeover: take it from an owner who lives, where the store can; from one who does not it is taken either way.

    Raises:
        SessionNotFoundError, HeldError: as `Store.own`.
        UsageError: an owner lives, and this store cannot take a session from one.
    """
    if not takeover:
        return await store.own(session)
    if isinstance(store, Fenced):
        return await store.take_over(session)
    try:
        return await store.own(session)
    except HeldError as error:
        holder = (await store.read(session)).owner
        who = f"PID {holder.pid} on {holder.host}" if holder is not None and holder.pid else "that process"
        raise UsageError(
            f"{error}, by {store.ownership}; that cannot be taken over while its holder lives", next_act=f"End {who}"
        ) from error


def upkeep_of(store: Store, doing: str) -> Upkeep:
    """The store, if it can look after sessions.

    Args:
        doing: what is wanted, for the message.

    Raises:
        UsageError: it cannot.
    """
    if isinstance(store, Upkeep):
        return store
    raise UsageError(f"the store {store.url} cannot do this: {doing}", next_act="Copy the session to another store")
