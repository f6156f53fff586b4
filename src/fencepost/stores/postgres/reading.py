"""A session as it stands in the database, read in one snapshot, block by block, without changing a byte."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from psycopg import Connection
from psycopg.rows import TupleRow

from fencepost.core import codec
from fencepost.core.events import Entry
from fencepost.stores.base import StoredLog
from fencepost.stores.postgres.claims import Look, stored_name
from fencepost.stores.postgres.rows import Assembly, read_header
from fencepost.stores.postgres.statements import Statements

BLOCK = 500
"""Rows that are decoded at once: about a millisecond, in which no other thread gets its turn."""


class Reading:
    """Reads sessions over one schema.

    Args:
        vocabulary: the declared event types; without one, types beyond the core's are kept and not judged.
    """

    def __init__(self, statements: Statements, vocabulary: codec.Vocabulary | None) -> None:
        self._say = statements
        self._vocabulary = vocabulary

    def whole(self, server: Connection[TupleRow], session: str) -> StoredLog | None:
        """A session from its first event on; None where nothing was ever appended under that id."""
        with _snapshot(server):
            row = server.execute(self._say.look, (stored_name(session),)).fetchone()
            found = Look(*row) if row is not None else None
            if found is None or found.next_seq == 0:
                return None
            assembly = Assembly(found.next_seq, self._vocabulary or codec.CORE)
            cursor = server.cursor(binary=True).execute(self._say.rows, (found.row,))
            while block := cursor.fetchmany(BLOCK):
                assembly.take(block)
        assembly.finish()
        return self._stored(session, found, assembly)

    def since(self, server: Connection[TupleRow], session: str, seq: int) -> list[Entry] | None:
        """The entries from the one on that holds `seq`; None where nothing was ever appended under that id."""
        with _snapshot(server):
            row = server.execute(self._say.look, (stored_name(session),)).fetchone()
            found = Look(*row) if row is not None else None
            if found is None or found.next_seq == 0:
                return None
            first = server.execute(self._say.row_of, (found.row, seq)).fetchone() or (None,)
            start = seq if first[0] is None else first[0]
            rows = server.cursor(binary=True).execute(self._say.rows_from, (found.row, start)).fetchall()
        if not rows:
            return []
        assembly = Assembly(found.next_seq, self._vocabulary or codec.CORE, start=rows[0][0])
        assembly.take(rows)
        return [entry for entry in assembly.entries if codec.last_seq(entry) >= seq]

    def _stored(self, session: str, found: Look, assembly: Assembly) -> StoredLog:
        header, refusal, flaw = read_header(found.header, found.header_crc)
        damage = (*((flaw,) if flaw else ()), *assembly.damage)
        if refusal is not None:
            damage = ()  # an older reader does not call a newer form damaged
        elif self._vocabulary is not None:
            refusal = codec.refusal(assembly.entries)
        return StoredLog(
            session=session,
            header=header,
            entries=assembly.entries,
            beyond=assembly.beyond,
            watermark=assembly.next_seq - 1,
            size=len(found.header) + assembly.size,
            evidence=assembly.evidence,
            damage=damage,
            refusal=refusal,
            owner=found.owner,
            updated=found.updated or 0,
        )


@contextlib.contextmanager
def _snapshot(server: Connection[TupleRow]) -> Iterator[None]:
    """Everything inside sees one state of the database, and can change nothing."""
    server.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    finally:
        if not server.closed:
            server.execute("COMMIT")  # of a transaction that failed: rolls back
