"""The tables of a database, and how to tell ours from any other.

    session   one row each: name and header, written once, by the session's first append.
    head      where each log ends, and who may go on: session, epoch and writer, the newest batch, the next seq. The row
              of session 0 is the database's own: its `batch` is the newest id ever given to a batch.
    batch     one row for each append, in the order of commits: `data` is its entries, each in its canonical form and
              closed by a newline, `crc` covers session, seqs and data. `prev` is the same session's batch before it.
    lost      batches that were acknowledged and are gone: everything behind `after` up to `until`.
    trash     rows of `session` that were deleted; their heads and batches stay where they are until they are purged.
    meta      the id of this database.

Why batches stand in the order of commits and not each with its session: one commit for the gates of 256 sessions then
writes some 30 pages instead of 256, and is four times as fast; a session's batches are found by following `prev`.
Measured for one session there is no difference. Why heads stand apart from sessions: 256 of them fit on three pages.
"""

from __future__ import annotations

import secrets

import apsw

from fencepost.errors import UnsupportedError

APPLICATION_ID = 0x66656E63
"""`fenc`, in the header of the file."""

FORMAT = 1
"""Version of the tables (`user_version`)."""

SOUND = (3, 51, 3)
"""The first SQLite that resets a write-ahead log without ever corrupting the database; 3.7.0 brought the fault."""

_TABLES = """
CREATE TABLE session (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL UNIQUE,
    header  BLOB NOT NULL,
    crc     INTEGER NOT NULL
) STRICT;
CREATE TABLE head (
    session INTEGER PRIMARY KEY,
    epoch   INTEGER NOT NULL,
    writer  TEXT NOT NULL,
    batch   INTEGER NOT NULL,
    next    INTEGER NOT NULL
) STRICT;
CREATE TABLE batch (
    id      INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    prev    INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    next    INTEGER NOT NULL,
    written INTEGER NOT NULL,
    crc     INTEGER NOT NULL,
    data    BLOB NOT NULL
) STRICT;
CREATE TABLE lost (
    after   INTEGER PRIMARY KEY,
    until   INTEGER NOT NULL
) STRICT;
CREATE TABLE trash (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    deleted INTEGER NOT NULL,
    session INTEGER NOT NULL,
    name    TEXT NOT NULL,
    header  BLOB NOT NULL,
    crc     INTEGER NOT NULL
) STRICT;
CREATE TABLE meta (
    id      TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;
INSERT INTO head VALUES (0, 0, '', 0, 0);
"""

_GIVEN = "SELECT batch, (SELECT id FROM meta) FROM head WHERE session = 0"


def refuse_library(version: str) -> None:
    """Refuse a SQLite that can corrupt what it is given.

    Args:
        version: as SQLite says it of itself, such as `3.54.0`.

    Raises:
        UnsupportedError: it is older than `SOUND`.
    """
    numbers = tuple(int(part) for part in version.split(".")[:3])
    if numbers < SOUND:
        raise UnsupportedError(
            f"the linked SQLite {version} can corrupt a database when its write-ahead log is reset (3.7.0 to 3.51.2)",
            next_act="Install apsw from its wheel, which brings its own SQLite: pip install 'fencepost[sqlite]'",
        )


def create_tables(connection: apsw.Connection) -> None:
    """Make an empty database ours, in the transaction that is open."""
    connection.execute(_TABLES)
    connection.execute("INSERT INTO meta VALUES (?)", (secrets.token_hex(8),))
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", FORMAT)


def given(connection: apsw.Connection) -> tuple[int, str]:
    """The newest id that the database has given to a batch, and the database's own.

    Raises:
        apsw.Error: they cannot be read. That they are missing is told as what it is: a malformed database.
    """
    batch, database = connection.execute(_GIVEN).get or (None, None)
    if not isinstance(batch, int) or not isinstance(database, str):
        raise apsw.exception_for(apsw.SQLITE_CORRUPT)
    return batch, database
