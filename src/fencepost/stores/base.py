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
from typing import Protocol, runtime_checkable

import msgspec

from fencepost.core.events import Entry, Header
from fencepost.core.verdict import NO_EVIDENCE, Evidence


class Damage(msgspec.Struct, frozen=True):
    """One place where durable bytes are not whole."""

    offset: int
    """Byte offset in the session's log (files), or the row's seq (databases)."""
    reason: str
    length: int = 0
    """Bytes concerned; 0 where that cannot be said."""


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
