"""Ownership of one session, as the contract of `stores.base` wants it: appends that wait for their round.

Rules:
    1. One append at a time. A cancelled caller leaves only after the round of its batch has ended, and whoever comes
       next waits for that too: nothing lands out of order, and nothing lands after the release.
    2. An append that went unanswered is remembered; the next one begins by finding out.
    3. In a forked child this handle owns nothing.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence

from fencepost.core.events import Entry
from fencepost.errors import ClosedError, DamagedError, LostOwnershipError, StoreError, UnsupportedError
from fencepost.stores.base import StoredLog
from fencepost.stores.postgres.claims import Claim
from fencepost.stores.postgres.rounds import Batch, Rounds
from fencepost.stores.threads import Job


class PostgresHandle:
    """A session that this process owns. Made by `PostgresStore.create` and `own`."""

    def __init__(
        self, stored: StoredLog, claim: Claim, rounds: Rounds, released: Callable[[PostgresHandle], Awaitable[None]]
    ) -> None:
        self.claim = claim
        self._stored = stored
        self._rounds = rounds
        self._released = released
        self._flight: Job[None] | None = None
        self._doubt = False
        self._closed = False
        self._pid = os.getpid()

    def __repr__(self) -> str:
        state = "released" if self._closed else "writing" if self._flight else "in doubt" if self._doubt else "idle"
        return f"<PostgresHandle {self._stored.session} | epoch {self.claim.epoch} | {state}>"

    @property
    def stored(self) -> StoredLog:
        """The log as it was read after ownership was taken."""
        return self._stored

    async def append(self, entries: Sequence[Entry], expected_seq: int) -> None:
        """Make one batch durable; see `Handle.append`. An empty batch is nothing to do.

        Raises, beyond the contract:
            MediumError: the server went away and did not come back in time. Whether the batch landed is found out
                before the next append, which may be the same batch, alone or with more behind it.
        """
        if not entries:
            return
        self._refuse()
        while self._flight is not None:
            await self._flight.drain()
            self._refuse()
        batch = Batch(self.claim, tuple(entries), expected_seq, doubt=self._doubt)
        job = self._flight = self._rounds.submit(batch)
        try:
            await job.outcome()
        finally:
            self._doubt = batch.doubt
            self._flight = None

    async def set_aside(self) -> int:
        """Nothing is ever torn here: a transaction lands whole or not at all."""
        return 0

    async def release(self) -> None:
        """Give ownership up, after the append in flight. Idempotent. If the server is away, the lease runs out."""
        await self.settle()
        if not self._closed:
            self._closed = True
            if self._ours:
                await self._released(self)

    async def settle(self) -> None:
        """Wait for the append in flight."""
        if self._flight is not None and self._ours:
            await self._flight.drain()

    def close(self) -> None:
        """Take no more appends; the one who calls gives ownership up."""
        self._closed = True

    @property
    def _ours(self) -> bool:
        return self._pid == os.getpid()

    def _refuse(self) -> None:
        session = self._stored.session
        if self._closed:
            raise ClosedError(f"session {session} was released")
        if not self._ours:
            raise LostOwnershipError(f"session {session} belongs to the parent of this process")
        why = refusal(self._stored)
        if why is not None:
            raise why


def refusal(stored: StoredLog) -> StoreError | None:
    """The error that every append to this log raises, or None."""
    if stored.refusal is not None:
        return UnsupportedError(f"session {stored.session} cannot be continued: {stored.refusal}")
    if stored.damage:
        first = stored.damage[0]
        return DamagedError(f"session {stored.session} is damaged at seq {first.offset}: {first.reason}")
    return None
