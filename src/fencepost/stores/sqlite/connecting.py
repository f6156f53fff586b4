"""How a connection to a database has to be before anything is read or written through it.

Rules:
    1. A linked SQLite that can corrupt a database, and a network file system, are refused before anything is opened.
    2. What makes a commit durable is set on each connection that writes, and read back: WAL, synchronous FULL, and on
       macOS the full sync. SQLite ignores a setting that it does not take, so only the answer counts. So is that what
       is deleted is overwritten.
    3. A file that is not ours is left alone, with an error that says whose it is, as far as that can be said.
    4. Waiting for another process is bounded, and the pauses are short and uneven: many who wait come to their turn.
"""

from __future__ import annotations

import contextlib
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw

from fencepost.errors import DamagedError, StoreError, UnsupportedError, UsageError
from fencepost.stores.sqlite.causes import cause
from fencepost.stores.sqlite.mounts import refuse_network
from fencepost.stores.sqlite.place import Place
from fencepost.stores.sqlite.schema import APPLICATION_ID, FORMAT, create_tables, refuse_library

_LONGEST_PAUSE = 0.004
_PAUSE = 0.0005
_FULL = 2
_ANOTHER = "Name another file with --store sqlite:FILE"


class Patience:
    """A busy handler that gives up after some seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = 0.0

    def __call__(self, attempts: int) -> bool:
        """Whether SQLite should try again."""
        now = time.monotonic()
        if attempts == 0:
            self._deadline = now + self._seconds
        if now >= self._deadline:
            return False
        time.sleep(min(_LONGEST_PAUSE, _PAUSE * (attempts + 1)) * random.uniform(0.2, 1.0))  # noqa: S311 - no secret
        return True


def refuse_surroundings(place: Place) -> None:
    """Refuse the library or the file system.

    Raises:
        UnsupportedError: one of them cannot keep a database whole.
    """
    refuse_library(apsw.sqlite_lib_version())
    refuse_network(place.file)


def open_writer(place: Place, vfs: str | None, patience: float) -> apsw.Connection:
    """A connection that may write, to a database that is ours, or is made so.

    Args:
        vfs: SQLite's own way to the operating system, by name; None for the default.
        patience: seconds to wait for another process at most.

    Raises:
        StoreError: it cannot be opened or is not ours; see the rules.
        UsageError: another application's file.
        OSError: the file cannot be made.
    """
    refuse_surroundings(place)
    place.make()
    place.make_file()
    connection = _connect(str(place.file), apsw.SQLITE_OPEN_READWRITE, vfs, patience, place.file)
    try:
        if not is_ours(connection, place):
            _make_ours(connection, place)
        _set_durable(connection, place.file, patience)
        place.sync()
    except apsw.Error as error:
        told = cause(error, connection, "opening", place.file)
        close(connection)
        raise told from error
    except BaseException:
        close(connection)
        raise
    return connection


def open_reader(place: Place, vfs: str | None, patience: float, *, untouched: bool = False) -> apsw.Connection:
    """A connection that cannot write.

    Args:
        untouched: nobody writes to the file, and it has nothing beside it that belongs to it.

    Raises:
        StoreError: it cannot be opened.
    """
    name = f"{place.file.as_uri()}?immutable=1" if untouched else str(place.file)
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return _connect(name, flags, vfs, patience, place.file)


def open_copy(copy: Path, place: Place) -> apsw.Connection:
    """A connection to a private copy of the database, which SQLite may put in order.

    Raises:
        StoreError: it cannot be opened.
    """
    return _connect(str(copy), apsw.SQLITE_OPEN_READWRITE, None, 0, place.file)


def _connect(name: str, flags: int, vfs: str | None, patience: float, file: Path) -> apsw.Connection:
    try:
        connection = apsw.Connection(name, flags=flags, vfs=vfs)
    except apsw.Error as error:
        raise cause(error, None, "opening", file) from error
    connection.set_busy_handler(Patience(patience))
    connection.pragma("trusted_schema", 0)
    connection.pragma("cell_size_check", 1)
    return connection


def close(connection: apsw.Connection) -> None:
    """Let a connection go, whatever state it is in."""
    with contextlib.suppress(apsw.Error):  # what mattered was committed, or is reported already
        connection.close(True)


def roll_back(connection: apsw.Connection) -> None:
    """End the transaction that is open, if one is."""
    if connection.in_transaction:
        with contextlib.suppress(apsw.Error):  # then the connection is no good, and what comes next says so
            connection.execute("ROLLBACK")


def is_ours(connection: apsw.Connection, place: Place) -> bool:
    """Whether the database is one of ours; False for one without anything in it.

    Raises:
        UnsupportedError: it is, and newer than this release.
        UsageError: it is another application's.
        DamagedError: it was ours and cannot be read any more.
        apsw.Error: the medium.
    """
    try:
        with _one_moment(connection):
            application, version = connection.pragma("application_id"), connection.pragma("user_version")
            tables = connection.execute("SELECT count(*) FROM sqlite_schema").get if application == 0 else None
    except apsw.NotADBError:
        raise _not_a_database(place) from None
    if (application, version, tables) == (0, 0, 0):
        if place.watermark.exists() and place.size == 0:
            raise DamagedError(
                f"{place.file} is empty, and was a database of fencepost's",
                next_act=f"Restore it, or remove {place.watermark} to begin anew",
            )
        return False
    if application != APPLICATION_ID:
        raise UsageError(f"{place.file} is a database of another application's", next_act=_ANOTHER)
    if version > FORMAT:
        raise UnsupportedError(
            f"{place.file} was written by a newer fencepost (format {version}; this one knows {FORMAT})"
        )
    return True


@contextlib.contextmanager
def _one_moment(connection: apsw.Connection) -> Iterator[None]:
    """Let all questions of a block be answered from one state of the database: another process may be making it."""
    if connection.in_transaction:
        yield
        return
    connection.execute("BEGIN")
    try:
        yield
    finally:
        roll_back(connection)


def _not_a_database(place: Place) -> StoreError | UsageError:
    if place.watermark.exists():
        return DamagedError(f"{place.file} is not a database any more: its first page is not what was written")
    return UsageError(f"{place.file} is not a SQLite database", next_act=_ANOTHER)


def _make_ours(connection: apsw.Connection, place: Place) -> None:
    """Create the tables, once, whoever else is about to."""
    connection.pragma("synchronous", _FULL)
    connection.execute("BEGIN IMMEDIATE")
    try:
        if not is_ours(connection, place):
            create_tables(connection)
        connection.execute("COMMIT")
    finally:
        roll_back(connection)


def _set_durable(connection: apsw.Connection, file: Path, seconds: float) -> None:
    """Rule 2."""
    _write_ahead(connection, Patience(seconds))
    wanted = {"synchronous": _FULL, "secure_delete": 1}
    if sys.platform == "darwin":
        wanted |= {"fullfsync": 1, "checkpoint_fullfsync": 1}
    for name, value in wanted.items():
        connection.pragma(name, value)
        answer = connection.pragma(name)
        if answer != value:
            raise UnsupportedError(f"{file}: SQLite does not take {name}={value}, it stays at {answer}")
    if connection.pragma("journal_mode") != "wal":
        raise UnsupportedError(f"{file}: SQLite does not keep a write-ahead log there")


def _write_ahead(connection: apsw.Connection, patience: Patience) -> None:
    """Turn to WAL. That needs the database for itself for a moment, and SQLite does not wait for it by itself."""
    attempts = 0
    while True:
        try:
            connection.pragma("journal_mode", "wal")
            return
        except apsw.BusyError:
            if not patience(attempts):
                raise
        attempts += 1
