"""One session as its owner sees it: what the database has to say before a batch lands, and what it says afterwards.

Rules:
    1. The first append of an owner takes the epoch: it lands only if the head is what was read when ownership was
       taken, and leaves its own writer's token there. Later ones land only if that token, and the next seq, are still
       there. Comparing and changing are one statement, in the transaction that inserts (law 8).
    2. What is remembered changes only after the commit.
    3. After a commit that failed in doubt, the next append looks first: a batch that landed after all is taken back in
       the same transaction that writes it again, because it may be part of a larger one by then.

It is synchronous, and only the writer's thread uses it.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Sequence

import apsw
import msgspec

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.errors import LostOwnershipError, SessionExistsError, StoreError
from fencepost.stores.batches import batch_lines
from fencepost.stores.sqlite.rows import checksum

_NEW_SESSION = "INSERT INTO session (name, header, crc) VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING"
_NEW_HEAD = "INSERT INTO head VALUES (?, ?, ?, ?, ?)"
_MOVE = (
    "UPDATE head SET epoch = ?2, writer = ?3, batch = ?4, next = ?5"
    " WHERE session = ?1 AND epoch = ?6 AND writer = ?7 AND next = ?8"
)
_NEW_BATCH = "INSERT INTO batch VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
_NAMED = "SELECT h.session, epoch, writer, batch, next FROM head h JOIN session s ON s.id = h.session WHERE name = ?"


class Head(msgspec.Struct, frozen=True):
    """Where a log ends, and who may go on.

    Attributes:
        session: the session's row id; 0 before its first append.
        epoch: how many owners have appended.
        writer: the token of the newest of them.
        batch: the id of the newest batch, 0 if none.
        next: the seq behind it.
    """

    session: int = 0
    epoch: int = 0
    writer: str = ""
    batch: int = 0
    next: int = 0


class SessionLog:
    """The owner's end of one session.

    Args:
        header: of the session; needed where it is new.
        head: as it was read when ownership was taken; None where it cannot be gone on from.
        refusal: the error that every append raises, or None.
    """

    def __init__(
        self, session: str, header: ev.Header | None, head: Head | None, refusal: tuple[type[StoreError], str] | None
    ) -> None:
        self.session = session
        self.head = head or Head()
        self._header = codec.encode(header) if header is not None else b""
        self._token = secrets.token_hex(8)
        self._refusal = refusal
        self._doubt: set[int] = set()
        """Ids of batches that may have landed although their commit failed."""

    def lines(self, entries: Sequence[ev.Entry], expected_seq: int) -> tuple[bytes, int]:
        """The bytes of a batch, and the seq behind it.

        Raises:
            LostOwnershipError: `expected_seq` is not the next one.
            StoreError: this log takes nothing.
            IllegalEventError, EncodingRefusedError: see `batch_lines`.
        """
        if self._refusal is not None:
            kind, why = self._refusal
            raise kind(why)
        if expected_seq != self.head.next:
            raise LostOwnershipError(
                f"session {self.session}: seq {expected_seq} was to be appended where {self.head.next} is next"
            )
        return batch_lines(self.session, entries, expected_seq)

    def put(self, connection: apsw.Connection, batch: int, data: bytes, following: int, now: int) -> Head:
        """Write one batch in the transaction that is open; returns what `landed` gets once that is committed.

        Args:
            batch: its id.
            following: the seq behind it.
            now: epoch milliseconds.

        Raises:
            LostOwnershipError, SessionExistsError: somebody else wrote; nothing was changed.
            apsw.Error: the medium; the transaction has to be rolled back.
        """
        before = self._looked(connection) if self._doubt else self.head
        epoch = before.epoch + (before.writer != self._token)
        key = before.session or self._new(connection)
        after = Head(key, epoch, self._token, batch, following)
        if not before.session:
            connection.execute(_NEW_HEAD, (key, epoch, self._token, batch, following))
        else:
            expected = (before.epoch, before.writer, before.next)
            connection.execute(_MOVE, (key, epoch, self._token, batch, following, *expected))
            if not connection.changes():
                raise self._lost("its log goes on from another writer's batch, or is gone: somebody else wrote")
        crc = checksum(key, before.next, following, data)
        connection.execute(_NEW_BATCH, (batch, key, before.batch, before.next, following, now, crc, data))
        return after

    def _new(self, connection: apsw.Connection) -> int:
        """The row of a new session; returns its id."""
        connection.execute(_NEW_SESSION, (self.session, self._header, zlib.crc32(self._header)))
        if not connection.changes():
            raise SessionExistsError(f"session {self.session} is there already")
        return connection.last_insert_rowid()

    def _looked(self, connection: apsw.Connection) -> Head:
        """What the database says after a commit in doubt, with a batch that landed taken back."""
        row = connection.execute(_NAMED, (self.session,)).fetchone()
        found = Head(*row) if row else Head()
        if found.writer != self._token or found.batch not in self._doubt:
            return self.head
        connection.execute("DELETE FROM batch WHERE id = ?", (found.batch,))
        before = msgspec.structs.replace(found, batch=self.head.batch, next=self.head.next)
        connection.execute(
            "UPDATE head SET batch = ?, next = ? WHERE session = ?", (before.batch, before.next, before.session)
        )
        return before

    def landed(self, head: Head) -> None:
        """The batch is committed."""
        self.head = head
        self._doubt.clear()

    def doubted(self, batch: int) -> None:
        """The commit of `batch` failed, and what became of it is not known."""
        self._doubt.add(batch)

    def _lost(self, why: str) -> StoreError:
        """From now on every append raises this."""
        self._refusal = (LostOwnershipError, f"session {self.session}: {why}")
        return LostOwnershipError(self._refusal[1])
