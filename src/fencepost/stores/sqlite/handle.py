"""Ownership of one session, as the contract of `stores.base` wants it: appends that wait their turn.

Rules:
    1. One append at a time. A cancelled caller leaves only after its batch has landed or failed, and whoever comes next
       waits for that too: nothing lands out of order, and nothing lands after the release.
    2. In a forked child this handle owns nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fencepost.core.events import Entry
from fencepost.errors import ClosedError, LostOwnershipError
from fencepost.stores.base import StoredLog
from fencepost.stores.lock import SessionLock
from fencepost.stores.sqlite.group import Append, GroupWriter
from fencepost.stores.sqlite.sessionlog import SessionLog
from fencepost.stores.threads import Job


class SqliteHandle:
    """A session that this process owns. Made by `SqliteStore.create` and `own`."""

    def __init__(
        self,
        stored: StoredLog,
        log: SessionLog,
        lock: SessionLock,
        writer: GroupWriter,
        released: Callable[[SqliteHandle], None],
    ) -> None:
        self._stored = stored
        self._log = log
        self._lock = lock
        self._writer = writer
        self._released = released
        self._flight: Job[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "released" if self._closed else ("writing" if self._flight else "idle")
        return f"<SqliteHandle {self._stored.session} | next seq {self._log.head.next} | {state}>"

    @property
    def stored(self) -> StoredLog:
        """The log as it was read after ownership was taken."""
        return self._stored

    async def append(self, entries: Sequence[Entry], expected_seq: int) -> None:
        """Make one batch durable; see `Handle.append`. An empty batch is nothing to do."""
        if not entries:
            return
        while self._flight is not None and self._lock.held:
            await self._flight.drain()
        if self._closed:
            raise ClosedError(f"session {self._stored.session} was released")
        if not self._lock.held:
            raise LostOwnershipError(f"session {self._stored.session} belongs to the parent of this process")
        append = Append(self._log, tuple(entries), expected_seq)
        job = self._flight = self._writer.submit(append)
        try:
            await job.outcome()
        finally:
            self._flight = None
        if append.error is not None:
            raise append.error

    async def set_aside(self) -> int:
        """Nothing is ever torn in a database: a batch is there, or it is not."""
        return 0

    async def release(self) -> None:
        """Give ownership up, after the append in flight. Idempotent."""
        try:
            if self._flight is not None and self._lock.held:
                await self._flight.drain()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Give ownership up at once. For an owner that has no append in flight."""
        if not self._closed:
            self._closed = True
            self._lock.release()
            self._released(self)
