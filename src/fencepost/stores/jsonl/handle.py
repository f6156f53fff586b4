"""Ownership of one session, as the contract of `stores.base` wants it: appends that wait their turn in a thread.

Rules:
    1. One piece of work at a time. A cancelled caller leaves only after its write has ended, and whoever comes next
       waits for that too: nothing lands out of order, and nothing lands after the release.
    2. In a forked child this handle owns nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from fencepost.core.events import Entry
from fencepost.errors import ClosedError, LostOwnershipError
from fencepost.stores.base import StoredLog
from fencepost.stores.jsonl.logfile import LogFile
from fencepost.stores.lock import SessionLock
from fencepost.stores.threads import Job, Threads

T = TypeVar("T")


class FileHandle:
    """A session that this process owns. Made by `JsonlStore.create` and `own`."""

    def __init__(
        self,
        stored: StoredLog,
        log: LogFile,
        lock: SessionLock,
        threads: Threads,
        released: Callable[[FileHandle], None],
    ) -> None:
        self._stored = stored
        self._log = log
        self._lock = lock
        self._threads = threads
        self._released = released
        self._flight: Job[Any] | None = None
        self._closed = False

    def __repr__(self) -> str:
        state = "released" if self._closed else ("writing" if self._flight and not self._flight.landed else "idle")
        return f"<FileHandle {self._stored.session} | next seq {self._log.next_seq} | {state}>"

    @property
    def stored(self) -> StoredLog:
        """The log as it was read after ownership was taken."""
        return self._stored

    async def append(self, entries: Sequence[Entry], expected_seq: int) -> None:
        """Make one batch durable; see `Handle.append`. An empty batch is nothing to do."""
        if entries:
            await self._turn()
            await self._begin(partial(self._log.append, tuple(entries), expected_seq), self._log.hint).outcome()

    async def set_aside(self) -> int:
        """Move the torn tail out of the log; see `Handle.set_aside`."""
        await self._turn()
        return await self._begin(self._log.set_aside).outcome()

    async def release(self) -> None:
        """Give ownership up, after the append in flight. Idempotent."""
        try:
            if self._flight is not None and self._lock.held:
                await self._flight.drain()
        finally:
            self.let_go()

    def let_go(self) -> None:
        """Give ownership up at once. For an owner that has no append in flight."""
        if self._closed:
            return
        self._closed = True
        self._released(self)
        if self._lock.held:  # a forked child leaves the rest to its parent
            self._log.close()
            self._lock.release()

    async def _turn(self) -> None:
        while self._flight is not None and not self._flight.landed and self._lock.held:
            await self._flight.drain()

    def _begin(self, work: Callable[[], T], afterwards: Callable[[], None] | None = None) -> Job[T]:
        if self._closed:
            raise ClosedError(f"session {self._stored.session} was released")
        if not self._lock.held:
            raise LostOwnershipError(f"session {self._stored.session} belongs to the parent of this process")
        job = self._flight = self._threads.submit(work, afterwards)
        return job
