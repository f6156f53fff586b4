"""A store that keeps logs in this process: for tests, and for runs that are meant to leave nothing behind.

It keeps the contract of `stores.base` to the letter but for one word: nothing survives the process, so `durable` is
False and every face of the product says so. Sessions are shared by all who use one `MemoryStore`; two stores share
nothing.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fencepost.core import codec
from fencepost.core.events import Entry, Header
from fencepost.errors import (
    ClosedError,
    EncodingRefusedError,
    HeldError,
    IllegalEventError,
    LostOwnershipError,
    SessionExistsError,
    SessionNotFoundError,
    UsageError,
)
from fencepost.stores.base import Compressed, Owner, StoredLog, Trashed

_SERIALS = itertools.count()


class MemoryStore:
    """Sessions in memory."""

    durable = False
    url = "memory:"
    ownership = "an entry in this process; nothing keeps another process out, and nothing is saved"

    def __init__(self) -> None:
        self._logs: dict[str, _MemoryLog] = {}
        self._files = Path(tempfile.gettempdir()) / f"fencepost-{secrets.token_hex(8)}"
        self._trash: list[tuple[int, _MemoryLog]] = []
        self._closed = False

    def __repr__(self) -> str:
        held = sum(log.holder is not None for log in self._logs.values())
        return f"<MemoryStore {len(self._logs)} sessions | {held} owned>"

    def files(self, session: str) -> Path:
        """A directory of its own for a session's large outputs; made by whoever first writes there."""
        return self._files / hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    async def create(self, header: Header) -> MemoryHandle:
        """Take ownership of a new session; see `Store.create`."""
        self._refuse_closed()
        if not header.session:
            raise UsageError("a session id may not be empty")
        log = self._logs.setdefault(header.session, _MemoryLog(header))
        if log.entries:
            raise SessionExistsError(f"session {header.session} is there already")
        log.header = header if log.holder is None else log.header
        return MemoryHandle(log)

    async def own(self, session: str) -> MemoryHandle:
        """Take ownership of a stored session; see `Store.own`."""
        return MemoryHandle(self._log(session))

    async def read(self, session: str) -> StoredLog:
        """Read a session beside whoever owns it; see `Store.read`."""
        return self._log(session).stored()

    async def sessions(self) -> list[str]:
        """The ids of all sessions."""
        self._refuse_closed()
        return [name for name, log in self._logs.items() if log.entries]

    async def revisions(self) -> dict[str, str]:
        """A token for each session; see `Upkeep.revisions`."""
        self._refuse_closed()
        return {name: f"{log.serial}.{log.next_seq}" for name, log in self._logs.items() if log.entries}

    async def owner(self, session: str) -> Owner | None:
        """Who holds a session now; see `Upkeep.owner`."""
        log = self._logs.get(session)
        return log.owner if log is not None else None

    async def delete(self, session: str) -> None:
        """Move a session into the trash; see `Upkeep.delete`."""
        log = self._log(session)
        if log.holder is not None:
            raise HeldError(f"session {session} is held in this process")
        self._trash.append((_now(), self._logs.pop(session)))

    async def trash(self) -> list[Trashed]:
        """What is in the trash; see `Upkeep.trash`."""
        return [Trashed(log.header.session, deleted) for deleted, log in reversed(self._trash)]

    async def restore(self, session: str) -> None:
        """Take a session out of the trash; see `Upkeep.restore`."""
        self._refuse_closed()
        found = next((item for item in reversed(self._trash) if item[1].header.session == session), None)
        if found is None:
            raise SessionNotFoundError(f"no session {session} in the trash")
        there = self._logs.get(session)
        if there is not None and there.entries:
            raise SessionExistsError(f"session {session} is there already")
        if there is not None and there.holder is not None:
            raise HeldError(f"session {session} is held in this process")
        self._trash.remove(found)
        self._logs[session] = found[1]

    async def purge(self, before: int) -> int:
        """Destroy what was deleted before a time; see `Upkeep.purge`."""
        kept = [item for item in self._trash if item[0] >= before]
        count = len(self._trash) - len(kept)
        self._trash = kept
        return count

    async def compress(self, session: str) -> Compressed:
        """Memory has no such form; see `Upkeep.compress`."""
        raise UsageError(f"session {session}: {self.url} keeps no compressed logs")

    async def close(self) -> None:
        """Release what is still owned. Idempotent. The sessions are gone with the store."""
        self._closed = True
        for log in self._logs.values():
            log.holder = None

    def _log(self, session: str) -> _MemoryLog:
        self._refuse_closed()
        log = self._logs.get(session)
        if log is None or not log.entries:
            raise SessionNotFoundError(f"no session {session} in memory")
        return log

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ClosedError("the store is closed")


class _MemoryLog:
    """One session: its entries, and who holds it."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.entries: list[Entry] = []
        self.size = 0
        self.updated = 0
        self.holder: MemoryHandle | None = None
        self.since = 0
        self.serial = next(_SERIALS)
        """Tells this log from an earlier one of the same id."""

    @property
    def owner(self) -> Owner | None:
        return Owner(os.getpid(), os.uname().nodename, self.since) if self.holder is not None else None

    @property
    def next_seq(self) -> int:
        return codec.last_seq(self.entries[-1]) + 1 if self.entries else 0

    def stored(self) -> StoredLog:
        return StoredLog(
            session=self.header.session,
            header=self.header,
            entries=tuple(self.entries),
            watermark=self.next_seq - 1,
            size=self.size,
            owner=self.owner,
            updated=self.updated,
        )


class MemoryHandle:
    """A session that is owned. Made by `MemoryStore.create` and `own`."""

    def __init__(self, log: _MemoryLog) -> None:
        if log.holder is not None:
            raise HeldError(f"session {log.header.session} is held in this process")
        log.holder = self
        log.since = _now()
        self._log = log
        self._stored = log.stored()
        self._released = False

    def __repr__(self) -> str:
        state = "released" if self._released else "owned"
        return f"<MemoryHandle {self._stored.session} | next seq {self._log.next_seq} | {state}>"

    @property
    def stored(self) -> StoredLog:
        """The log as it was read when ownership was taken."""
        return self._stored

    async def append(self, entries: Sequence[Entry], expected_seq: int) -> None:
        """Keep one batch; see `Handle.append`. An empty batch is nothing to do."""
        log = self._log
        if self._released:
            raise ClosedError(f"session {self._stored.session} was released")
        if log.holder is not self or (entries and expected_seq != log.next_seq):
            raise LostOwnershipError(f"session {self._stored.session}: this writer does not own seq {expected_seq}")
        if not entries:
            return
        for before, after in itertools.pairwise(entries):
            if after.seq != codec.last_seq(before) + 1:
                raise IllegalEventError(f"seq {after.seq} behind {codec.last_seq(before)} in one batch")
        if entries[0].seq != expected_seq:
            raise IllegalEventError(f"a batch that begins with seq {entries[0].seq} where {expected_seq} is next")
        try:
            size = sum(len(codec.encode(entry)) + 1 for entry in entries)
        except (TypeError, ValueError, OverflowError) as error:
            raise EncodingRefusedError(
                f"session {self._stored.session}: an event cannot be written: {error}"
            ) from error
        log.entries.extend(entries)
        log.size += size
        log.updated = _now()

    async def set_aside(self) -> int:
        """Nothing is ever torn here."""
        return 0

    async def release(self) -> None:
        """Give ownership up. Idempotent."""
        self._released = True
        if self._log.holder is self:
            self._log.holder = None


def _now() -> int:
    return time.time_ns() // 1_000_000
