"""Reading around what is malformed: everything that can still be reached, and never an error for what cannot.

SQLite stops at the first page that makes no sense. So what stands behind it is asked for again, a little further on
each time: exactly where little is missing, in growing steps where much is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import apsw
import msgspec

from fencepost.stores.sqlite.causes import is_malformed
from fencepost.stores.sqlite.rows import COLUMNS, Row, rows_of

_EXACTLY = 4096
"""Ids that are tried one by one before the steps grow."""

_BEHIND = f"SELECT {COLUMNS} FROM batch WHERE id > ? AND session = ? ORDER BY id"  # noqa: S608 - constants


@contextlib.contextmanager
def _as_far_as_it_goes() -> Iterator[None]:
    """Let a block end where the database is malformed."""
    try:
        yield
    except apsw.Error as error:
        if not is_malformed(error):
            raise


def scan(connection: apsw.Connection, session: int) -> list[Row]:
    """All rows of a session that can be reached, in the order of their seqs.

    Args:
        session: its row id.

    Raises:
        apsw.Error: the medium.
    """
    found: dict[int, Row] = {}
    last, behind, tries = newest_batch(connection), 0, 0
    while behind <= last:
        try:
            for values in connection.execute(_BEHIND, (behind, session)):
                behind, tries = int(values[0]), 0
                _keep(found, values)
            break
        except apsw.Error as error:
            if not is_malformed(error):
                raise
            tries += 1
            behind += 1 if tries <= _EXACTLY else 1 << (tries - _EXACTLY)
    return sorted(found.values(), key=lambda row: (row.seq, row.id))


def _keep(found: dict[int, Row], values: tuple[object, ...]) -> None:
    try:
        (row,) = rows_of([values])
    except msgspec.ValidationError:
        return
    found[row.id] = row


def newest_batch(connection: apsw.Connection) -> int:
    """The largest id that a batch can have, as far as it can be found out; 0 if not at all."""
    newest = 0
    for question in ("SELECT batch FROM head WHERE session = 0", "SELECT max(id) FROM batch"):
        with _as_far_as_it_goes():
            answer = connection.execute(question).get
            newest = max(newest, answer if isinstance(answer, int) else 0)
    return newest


def names(connection: apsw.Connection) -> list[str]:
    """The ids of all sessions that can be reached: from both ends of the table, and from its index."""
    found: dict[str, None] = {}
    for question in (
        "SELECT name FROM session ORDER BY id",
        "SELECT name FROM session ORDER BY id DESC",
        "SELECT name FROM session ORDER BY name",
        "SELECT name FROM session ORDER BY name DESC",
    ):
        with _as_far_as_it_goes():
            for (name,) in connection.execute(question):
                if isinstance(name, str):
                    found[name] = None
    return list(found)


def session_row(connection: apsw.Connection, session: str) -> tuple[int, bytes, int] | None:
    """Row id, header and checksum of a session, if that can be reached, whatever the index says."""
    for order in ("", " DESC"):
        with _as_far_as_it_goes():
            for key, name, header, crc in connection.execute(
                f"SELECT id, name, header, crc FROM session ORDER BY id{order}"  # noqa: S608 - constants
            ):
                if name == session and isinstance(header, bytes) and isinstance(crc, int):
                    return key, header, crc
    return None


def head_row(connection: apsw.Connection, session: int) -> tuple[int, str, int, int] | None:
    """Epoch, writer, newest batch and next seq of a session, if that can be reached."""
    with _as_far_as_it_goes(), contextlib.suppress(msgspec.ValidationError):
        row = connection.execute("SELECT epoch, writer, batch, next FROM head WHERE session = ?", (session,)).fetchone()
        return msgspec.convert(row, tuple[int, str, int, int])
    return None
