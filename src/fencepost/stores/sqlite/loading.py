"""A session as it stands in the database, read in one transaction without changing a byte.

The way that is always right: from the head back along `prev`. Rows of one session often stand close together, so they
are fetched by stretches of ids, which grow where the session is dense and shrink where it is not. Anything that does
not fit sends the reading into `salvage`.
"""

from __future__ import annotations

import zlib

import apsw
import msgspec

from fencepost.core import codec
from fencepost.core.events import Entry
from fencepost.core.verdict import NO_EVIDENCE, Evidence
from fencepost.errors import DamagedError, StoreError, UnsupportedError
from fencepost.stores.base import Damage, Owner, StoredLog
from fencepost.stores.headers import format_of, newer, read_header
from fencepost.stores.sqlite import salvage
from fencepost.stores.sqlite.causes import is_malformed
from fencepost.stores.sqlite.connecting import roll_back
from fencepost.stores.sqlite.place import Place
from fencepost.stores.sqlite.rows import COLUMNS, Read, Row, checksum, read_rows, rows_of
from fencepost.stores.sqlite.schema import given
from fencepost.stores.sqlite.sessionlog import Head
from fencepost.stores.sqlite.watermark import Noted, noted

_NAMED = "SELECT id, header, crc FROM session WHERE name = ?"
_HEAD = "SELECT epoch, writer, batch, next FROM head WHERE session = ?"
_STRETCH = (
    f"SELECT {COLUMNS} FROM batch"  # noqa: S608 - a constant
    " WHERE id <= ?1 AND id > ?1 - ?2 AND session = ?3 ORDER BY id DESC"
)
_HEADS = "SELECT name, id, epoch, batch, next FROM session LEFT JOIN head ON head.session = session.id"
_SHORTEST, _FIRST, _LONGEST = 1, 64, 4096


class Loaded(msgspec.Struct, frozen=True):
    """A session that was read, and the head that an owner goes on from; None where it cannot be gone on from."""

    stored: StoredLog
    head: Head | None

    def refusal(self) -> tuple[type[StoreError], str] | None:
        """The error that every append to this log raises, or None."""
        stored = self.stored
        if stored.refusal is not None:
            return UnsupportedError, f"session {stored.session} cannot be continued: {stored.refusal}"
        if stored.damage:
            first = stored.damage[0]
            return DamagedError, f"session {stored.session} is damaged at seq {first.offset}: {first.reason}"
        return None

    def owned_by(self, owner: Owner | None) -> StoredLog:
        """The log, with who holds it."""
        return msgspec.structs.replace(self.stored, owner=owner)


class ChainError(Exception):
    """The rows of a session do not lead from its head to its beginning; the message is the clause that says how."""


def names(connection: apsw.Connection) -> list[str]:
    """The ids of all sessions.

    Raises:
        apsw.Error: the table cannot be read, or not to its end.
    """
    return [str(name) for (name,) in connection.execute("SELECT name FROM session")]


def revisions(connection: apsw.Connection, place: Place) -> dict[str, str]:
    """For each session a token that changes with its log, and with what is known of lost commits.

    Raises:
        apsw.Error: they cannot be told.
    """
    note = noted(place.watermark)
    connection.execute("BEGIN")
    try:
        lost = connection.execute("SELECT count(*) FROM lost").get
        doubt = f"{lost}-{note.batch if note.ahead_of(*given(connection)) else ''}"
        return {
            str(name): f"{key}-{epoch}-{batch}-{following}-{doubt}"
            for name, key, epoch, batch, following in connection.execute(_HEADS)
        }
    finally:
        roll_back(connection)


def exists(connection: apsw.Connection, session: str) -> bool:
    """Whether there is a session of that id.

    Raises:
        apsw.Error: that cannot be said.
    """
    return connection.execute(_NAMED, (session,)).fetchone() is not None


def head_of(connection: apsw.Connection, session: str) -> Head | None:
    """Where a session's log ends now; None without such a session.

    Raises:
        apsw.Error: it cannot be read.
    """
    found = connection.execute(_NAMED, (session,)).fetchone()
    return None if found is None else _head(connection, found[0])


def _head(connection: apsw.Connection, key: int) -> Head | None:
    row = connection.execute(_HEAD, (key,)).fetchone()
    return None if row is None else Head(key, *row)


def load(connection: apsw.Connection, place: Place, session: str, vocabulary: codec.Vocabulary | None) -> Loaded | None:
    """Read a session; None where there is none of that id.

    Args:
        vocabulary: the declared event types; without one, types beyond the core's are kept and not judged.

    Raises:
        apsw.Error: the medium. Never for a session that is merely damaged.
    """
    note = noted(place.watermark)
    connection.execute("BEGIN")
    try:
        return _load(connection, note, session, vocabulary)
    except apsw.Error as error:
        if not is_malformed(error):
            raise
        return _load_around(connection, place, session, vocabulary, str(error))
    finally:
        roll_back(connection)


def _load(connection: apsw.Connection, note: Noted, session: str, vocabulary: codec.Vocabulary | None) -> Loaded | None:
    found = connection.execute(_NAMED, (session,)).fetchone()
    if found is None:
        return None
    key, line, crc = found
    head = _head(connection, key)
    try:
        if head is None:
            raise ChainError("the row that says where its log ends is missing")
        rows = walk(connection, head)
        read = read_rows(key, rows, head.next, vocabulary or codec.CORE)
    except ChainError as error:
        rows, read = _read_around(connection, key, head, vocabulary, str(error))
    read = msgspec.structs.replace(read, evidence=read.evidence.joined(_lost(connection, rows, note)))
    return judged(session, (line, zlib.crc32(line) == crc), read, rows, head, vocabulary)


def _load_around(
    connection: apsw.Connection, place: Place, session: str, vocabulary: codec.Vocabulary | None, why: str
) -> Loaded | None:
    """The same where pages are malformed. A session of which only the lock is left is one of which all is lost."""
    found = salvage.session_row(connection, session)
    if found is None:
        return nothing_left(place, session, why)
    key, line, crc = found
    row = salvage.head_row(connection, key)
    head = Head(key, *row) if row else None
    rows, read = _read_around(connection, key, head, vocabulary, why)
    return judged(session, (line, zlib.crc32(line) == crc), read, rows, head, vocabulary)


def _read_around(
    connection: apsw.Connection, key: int, head: Head | None, vocabulary: codec.Vocabulary | None, why: str
) -> tuple[list[Row], Read]:
    """What can be reached of a session's rows; there is damage in any case, `why` if nothing else."""
    rows = salvage.scan(connection, key)
    read = read_rows(key, rows, head.next if head else -1, vocabulary or codec.CORE)
    if not read.damage:
        evidence = Evidence(blind_at=(read.next_seq,))
        read = msgspec.structs.replace(read, damage=(Damage(read.next_seq, why, unit="row"),), evidence=evidence)
    return rows, read


def nothing_left(place: Place, session: str, why: str) -> Loaded | None:
    """A session that cannot be reached any more; None where there is no sign that it ever was."""
    if session not in place.locked_once():
        return None
    damage = Damage(0, f"nothing of it can be read any more from {place.file}: {why}", unit="row")
    return Loaded(StoredLog(session=session, header=None, entries=(), damage=(damage,)), None)


def suffix(
    connection: apsw.Connection, session: str, start: int, vocabulary: codec.Vocabulary | None
) -> list[Entry] | None:
    """The entries of a session from the one that holds seq `start` on; None without such a session.

    Raises:
        DamagedError: they are not whole.
        apsw.Error: the medium.
    """
    connection.execute("BEGIN")
    try:
        head = head_of(connection, session)
        rows = walk(connection, head, start) if head is not None else []
    except ChainError as error:
        raise DamagedError(f"session {session} is damaged behind seq {start}: {error}") from None
    finally:
        roll_back(connection)
    if head is None:
        return None
    read = read_rows(head.session, rows, head.next, vocabulary or codec.CORE, rows[0].seq if rows else head.next)
    if read.damage:
        first = read.damage[0]
        raise DamagedError(f"session {session} is damaged at seq {first.offset}: {first.reason}")
    return [entry for entry in read.entries if codec.last_seq(entry) >= start]


def walk(connection: apsw.Connection, head: Head, start: int = 0) -> list[Row]:
    """The rows of a session from the one that holds seq `start` on, in order.

    Raises:
        ChainError: they do not lead there.
    """
    rows: list[Row] = []
    want, length = head.batch, _FIRST
    while want:
        found = _stretch(connection, head.session, want, length, start)
        rows += found
        want = found[-1].prev if found[-1].seq > start else 0
        dense = len(found) * 2 >= length
        length = min(length * 8, _LONGEST) if dense else max(length // 8, _SHORTEST) if len(found) == 1 else length
    if rows and rows[0].next != head.next:
        raise ChainError(f"the head says that seq {head.next} is next, its batch that {rows[0].next} is")
    if rows and rows[-1].seq > start:
        raise ChainError(f"the batch {rows[-1].id} has none before it")
    rows.reverse()
    return rows


def _stretch(connection: apsw.Connection, session: int, want: int, length: int, start: int) -> list[Row]:
    """The chain from the batch `want` back, as far as `length` ids and the seq `start` reach: one row at least.

    A row that only claims to be the session's, and whose checksum says that it is not, is no concern of it.
    """
    try:
        rows = rows_of(connection.execute(_STRETCH, (want, length, session)).fetchall())
    except msgspec.ValidationError as error:
        raise ChainError(f"a batch has values that none can have: {error}") from None
    chain = []
    for row in rows:
        if row.id == want:
            chain.append(row)
            want = row.prev
            if row.seq <= start:
                break
        elif checksum(session, row.seq, row.next, row.data) == row.crc:
            raise ChainError(f"the batch {row.id} stands where {want} is the next one back")
    if not chain or want >= chain[-1].id:
        raise ChainError(f"the batch {want} is missing")
    return chain


def judged(
    session: str,
    header: tuple[bytes, bool],
    read: Read,
    rows: list[Row],
    head: Head | None,
    vocabulary: codec.Vocabulary | None,
) -> Loaded:
    """Put together what was read.

    Args:
        header: the bytes of the header, and whether they are what was written.
    """
    line, intact = header
    known = read_header(line) if intact else None
    if known is not None and known.session != session:
        known = None
    refusal = newer(format_of(line)) if intact else None
    damage = read.damage
    if refusal is None and known is None:
        damage = (Damage(0, "the header is not what was written", len(line), "row"), *damage)
    if refusal is None and vocabulary is not None:
        refusal = codec.refusal(read.entries)
    stored = StoredLog(
        session=session,
        header=known,
        entries=read.entries,
        beyond=read.beyond,
        watermark=read.next_seq - 1,
        size=len(line) + sum(len(row.data) for row in rows),
        evidence=read.evidence,
        damage=damage,
        refusal=refusal,
        updated=rows[-1].written if rows else 0,
    )
    return Loaded(stored, head)


def _lost(connection: apsw.Connection, rows: list[Row], note: Noted) -> Evidence:
    """What is known of commits that are gone: they may have held events of any session that was there before them."""
    newest, database = given(connection)
    gaps = [int(after) for (after,) in connection.execute("SELECT after FROM lost ORDER BY after")]
    if note.ahead_of(newest, database):
        gaps.append(newest)
    before = ([row.next for row in rows if row.id <= after] for after in gaps)
    blind = tuple(max(ends) for ends in before if ends)
    return Evidence(blind_at=blind) if blind else NO_EVIDENCE
