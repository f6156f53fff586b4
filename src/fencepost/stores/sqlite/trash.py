"""The trash of a database: sessions that were deleted, until they are restored or purged.

Only the row that names a session moves; its head and its batches stay where they are. Each function works in the
transaction that is open.
"""

from __future__ import annotations

import apsw

from fencepost.errors import SessionExistsError, SessionNotFoundError
from fencepost.stores.base import Trashed

_PUT = (
    "INSERT INTO trash (deleted, session, name, header, crc)"
    " SELECT ?, id, name, header, crc FROM session WHERE name = ?"
)
_NEWEST = "SELECT number, session FROM trash WHERE name = ? ORDER BY number DESC LIMIT 1"
_TAKE = (
    "INSERT INTO session (id, name, header, crc) SELECT session, name, header, crc FROM trash WHERE number = ?"
    " ON CONFLICT (name) DO NOTHING"
)
_CHAIN = (
    "WITH RECURSIVE chain (id) AS (SELECT batch FROM head WHERE session = ?1"
    " UNION SELECT prev FROM chain JOIN batch USING (id) WHERE session = ?1)"
)
_BEGIN = _CHAIN + " SELECT min(seq) FROM chain JOIN batch USING (id)"  # noqa: S608 - constants
_DESTROY = _CHAIN + " DELETE FROM batch WHERE id IN chain"  # noqa: S608 - likewise


def key_of(connection: apsw.Connection, session: str) -> int | None:
    """The row id of a session; None where there is none of that id."""
    row = connection.execute("SELECT id FROM session WHERE name = ?", (session,)).fetchone()
    return None if row is None else int(row[0])


def database(connection: apsw.Connection) -> str:
    """The id of the database."""
    return str(connection.execute("SELECT id FROM meta").get)


def alive(connection: apsw.Connection) -> list[int]:
    """The row ids of all sessions, those in the trash included."""
    return [int(key) for (key,) in connection.execute("SELECT id FROM session UNION SELECT session FROM trash")]


def put(connection: apsw.Connection, session: str, now: int) -> None:
    """Move a session into the trash. `now` is in epoch milliseconds.

    Raises:
        SessionNotFoundError: there is none of that id.
    """
    connection.execute(_PUT, (now, session))
    if not connection.changes():
        raise SessionNotFoundError(f"no session {session}")
    connection.execute("DELETE FROM session WHERE name = ?", (session,))


def entries(connection: apsw.Connection) -> list[Trashed]:
    """What is in the trash, the latest first."""
    found = connection.execute("SELECT name, deleted FROM trash ORDER BY number DESC")
    return [Trashed(str(name), int(deleted)) for name, deleted in found]


def newest(connection: apsw.Connection, session: str) -> int | None:
    """The row id of the session of that id which was deleted last; None where none was."""
    row = connection.execute(_NEWEST, (session,)).fetchone()
    return None if row is None else int(row[1])


def not_there(session: str) -> SessionNotFoundError:
    """No session of that id was deleted."""
    next_act = "List the trash with `fencepost sessions --trash`"
    return SessionNotFoundError(f"no session {session} in the trash", next_act=next_act)


def take(connection: apsw.Connection, session: str) -> None:
    """Take the session of that id which was deleted last out of the trash.

    Raises:
        SessionNotFoundError: none was.
        SessionExistsError: the id is taken.
    """
    row = connection.execute(_NEWEST, (session,)).fetchone()
    if row is None:
        raise not_there(session)
    connection.execute(_TAKE, (row[0],))
    if not connection.changes():
        raise SessionExistsError(f"session {session} is there already")
    connection.execute("DELETE FROM trash WHERE number = ?", (row[0],))


def deleted_before(connection: apsw.Connection, before: int) -> list[int]:
    """The row ids of the sessions that were deleted before a time, in epoch milliseconds."""
    return [int(key) for (key,) in connection.execute("SELECT session FROM trash WHERE deleted < ?", (before,))]


def destroy(connection: apsw.Connection, key: int) -> bool:
    """Destroy the session with that row id; whether it was still in the trash."""
    connection.execute("DELETE FROM trash WHERE session = ?", (key,))
    if not connection.changes():
        return False
    if connection.execute(_BEGIN, (key,)).get == 0:
        connection.execute(_DESTROY, (key,))
    else:  # the chain is broken, so all rows have to be looked at
        connection.execute("DELETE FROM batch WHERE session = ?", (key,))
    connection.execute("DELETE FROM head WHERE session = ?", (key,))
    return True
