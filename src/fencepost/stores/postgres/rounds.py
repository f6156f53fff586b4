"""Group commit: the batches that wait, of all sessions of the process, go into one transaction, round after round.

Rules:
    1. One round at a time, on one connection. A batch waits for the round in flight and goes into the next one, so N
       gates at once cost two commits.
    2. Every batch is compared with its session's head by itself: one that may not land does not keep the others out.
    3. A batch whose answer was lost is in doubt. Before anything else is written for its session, the head is read
       back: either the batch is there, or it is appended now. Never both. Of a batch that comes back with more events
       behind it, only those are appended that are not there.
       A request that was given up may still arrive, even after the head was read. Then the one that followed it does
       not fit, and the head is read once more.
    4. What is in a round and is not known to have landed has failed (law 4).

What it refuses to be: a queue. Each session has at most one batch here; who waits for it stands in `handle`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from fencepost.core.codec import last_seq
from fencepost.core.events import Entry
from fencepost.errors import (
    ClosedError,
    DamagedError,
    EncodingRefusedError,
    FencepostError,
    LostOwnershipError,
    MediumError,
)
from fencepost.stores.postgres.address import Address
from fencepost.stores.postgres.causes import kind_of, typed
from fencepost.stores.postgres.claims import Claim, Claims, as_arrays
from fencepost.stores.postgres.link import Link, Reach, is_gone
from fencepost.stores.postgres.rows import Row, behind, to_rows
from fencepost.stores.postgres.statements import Statements
from fencepost.stores.postgres.wire import ask, byteas, numbers
from fencepost.stores.threads import Job, Threads

LARGEST = 8 * 1024 * 1024
"""Bytes at which a round takes no more batches."""

_GHOSTS = 5
"""Times that the head is read back for one batch; each request that was given up arrives once at most."""

_ABOUT_ONE = (EncodingRefusedError, DamagedError)
"""What one batch of a round can be guilty of; the others are then tried without it."""


class Batch:
    """One append on its way.

    Args:
        claim: under which it is made.
        entries: what is appended.
        expected_seq: where.
        doubt: whether an earlier append of this session went unanswered.
    """

    __slots__ = ("claim", "doubt", "entries", "error", "expected", "ghosts", "landed", "next_seq", "rows", "size")

    def __init__(self, claim: Claim, entries: Sequence[Entry], expected_seq: int, *, doubt: bool) -> None:
        self.claim = claim
        self.entries = entries
        self.expected = expected_seq
        self.next_seq = last_seq(entries[-1]) + 1
        self.doubt = doubt
        self.ghosts = 0
        """Times that the head was read back without finding all of it; as many requests may still arrive."""
        self.landed = False
        self.error: FencepostError | None = None
        self.rows: list[Row] = []
        self.size = 0

    @property
    def settled(self) -> bool:
        """Whether it is known what came of it."""
        return self.landed or self.error is not None

    def encode(self) -> None:
        """Make the rows.

        Raises:
            IllegalEventError, EncodingRefusedError: see `to_rows`.
        """
        self.rows = to_rows(self.claim.session, self.entries, self.expected)
        self.size = sum(len(body) for _, _, body in self.rows)

    def found_at(self, seq: int) -> None:
        """The head was read back: the log ends before `seq`. Keep what is not there yet."""
        self.doubt = False
        if seq >= self.next_seq:
            self.landed = True
            return
        self.ghosts += 1
        if seq > self.expected:
            self.entries, self.expected = behind(self.entries, seq), seq
            self.encode()


class Rounds:
    """The one who writes, for all sessions of a store in this process."""

    def __init__(self, address: Address, reach: Reach, statements: Statements, claims: Claims) -> None:
        self._address = address
        self._say = statements
        self._claims = claims
        self._lease = timedelta(seconds=address.lease)
        self._lease_text = f"{address.lease} seconds".encode()
        self._link = Link(reach)
        self._turn = threading.Lock()
        """Held by whoever uses the connection: the writer's thread, or the keeper's."""
        self._threads = Threads(1, "fencepost-postgres-writer")
        self._waiting: deque[Batch] = deque()

    def submit(self, batch: Batch) -> Job[None]:
        """Have a batch written in the next round; the job fails if it did not land.

        Raises:
            ClosedError: after `close`.
        """
        self._waiting.append(batch)
        try:
            return self._threads.submit(partial(self._settle, batch))
        except ClosedError:
            self._waiting.remove(batch)
            raise

    def renew(self, claims: Iterable[Claim]) -> None:
        """Give the sessions that are still ours a new lease.

        Raises:
            psycopg.Error: the server is away, or refuses.
        """
        rows, epochs = as_arrays(claims)
        with self._turn:
            self._link.run(lambda server: server.execute(self._say.renew, (self._lease, rows, epochs)), patient=False)

    async def close(self) -> None:
        """Take no more batches, and end once all are settled. Idempotent."""
        await self._threads.close()

    def hang_up(self) -> None:
        """Close the connection; blocks while it is used."""
        with self._turn:
            self._link.drop()

    # --- in the writer's thread ---------------------------------------------------------------------------------

    def _settle(self, batch: Batch) -> None:
        if not batch.settled:
            self._round(self._next_round())
        if batch.error is not None:
            raise batch.error
        if not batch.landed:
            raise MediumError(f"session {batch.claim.session}: nobody knows whether the append landed")

    def _next_round(self) -> list[Batch]:
        """What waits, oldest first, as much as one transaction should take; one batch of each session at most."""
        taken: dict[int, Batch] = {}
        size = 0
        while self._waiting and size < LARGEST and self._waiting[0].claim.row not in taken:
            batch = self._waiting.popleft()
            try:
                batch.encode()
            except FencepostError as error:
                batch.error = error
                continue
            taken[batch.claim.row] = batch
            size += batch.size
        return list(taken.values())

    def _round(self, batches: list[Batch]) -> None:
        try:
            with self._turn:
                self._link.run(partial(self._attempt, batches))
        except psycopg.Error as error:
            self._failed([batch for batch in batches if not batch.settled], error)

    def _failed(self, batches: list[Batch], error: psycopg.Error) -> None:
        if len(batches) > 1 and issubclass(kind_of(error.sqlstate), _ABOUT_ONE):
            for batch in batches:
                self._round([batch])
            return
        for batch in batches:
            batch.error = typed(error, f"session {batch.claim.session}: appending", self._address)
            batch.error.__cause__ = error

    def _attempt(self, batches: list[Batch], server: Connection[TupleRow]) -> None:
        """Settle them all; called again where the connection broke."""
        while pending := [batch for batch in batches if not batch.settled]:
            doubtful = [batch for batch in pending if batch.doubt]
            if doubtful:
                self._read_back(doubtful, server)
                pending = [batch for batch in pending if not batch.settled]
            if pending:
                self._append(pending, server)

    def _read_back(self, batches: list[Batch], server: Connection[TupleRow]) -> None:
        rows, epochs = as_arrays(batch.claim for batch in batches)
        ends: dict[int, int] = dict(server.execute(self._say.settle, (self._lease, rows, epochs)).fetchall())
        for batch in batches:
            if batch.claim.row in ends:
                batch.found_at(ends[batch.claim.row])
            else:
                self._lost(batch, server)

    def _append(self, batches: list[Batch], server: Connection[TupleRow]) -> None:
        for batch in batches:
            batch.doubt = True
        try:
            landed = self._append_all(batches, server)
        except psycopg.Error as error:
            if not is_gone(server, error):  # the server said that it rolled back
                for batch in batches:
                    batch.doubt = False
            raise
        for batch in batches:
            batch.landed = batch.claim.row in landed
            batch.doubt = not batch.landed and 0 < batch.ghosts < _GHOSTS
        for batch in batches:
            if not batch.landed and not batch.doubt:
                self._lost(batch, server)

    def _append_all(self, batches: list[Batch], server: Connection[TupleRow]) -> set[int]:
        rows = [row for batch in batches for row in batch.rows]
        said = (
            numbers(batch.claim.row for batch in batches),
            numbers(batch.claim.epoch for batch in batches),
            numbers(batch.expected for batch in batches),
            numbers(batch.next_seq for batch in batches),
            self._lease_text,
            numbers(batch.claim.row for batch in batches for _ in batch.rows),
            numbers(seq for seq, _, _ in rows),
            numbers(crc for _, crc, _ in rows),
        )
        return set(ask(server, self._say.append, said, byteas([body for _, _, body in rows])))

    def _lost(self, batch: Batch, server: Connection[TupleRow]) -> None:
        batch.error = LostOwnershipError(self._claims.lost(server, batch.claim))
        batch.doubt = False
