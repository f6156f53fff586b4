"""Connections that only read: a few, lent to one thread at a time, and opened anew when another file is in the place.

Reading changes no byte of the database or its write-ahead log. SQLite does need FILE-shm, an index of the log that all
who use the database share, and makes it where it is missing. Where it cannot (a medium that takes no writes, or has no
space), or where a killed process left FILE-journal, which has to be rolled back first, there are two other ways: a
database with nothing beside it is read as one that nobody writes to; any other is copied to the directory for temporary
files.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import apsw

from fencepost.stores.sqlite.causes import cause, is_malformed
from fencepost.stores.sqlite.connecting import close, is_ours, open_copy, open_reader, refuse_surroundings
from fencepost.stores.sqlite.place import Place

_CHUNK = 1 << 20
_READ_ONLY = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
_HAS_TO_WRITE = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError)
"""What SQLite says where it would have to write; whatever else it may mean, the other ways then fail as well."""

_State: TypeAlias = tuple[int, ...]
_Copy: TypeAlias = tempfile.TemporaryDirectory[str]


class Reader:
    """One connection, what it was opened for, and the copy that it reads, if it does."""

    def __init__(self, connection: apsw.Connection, state: _State, copy: _Copy | None) -> None:
        self.connection = connection
        self.state = state
        self._copy = copy

    def close(self) -> None:
        """Let it go."""
        close(self.connection)
        if self._copy is not None:
            self._copy.cleanup()


class Readers:
    """Reading connections to one database. Threads share it.

    Args:
        vfs: SQLite's own way to the operating system, by name; None for the default.
        patience: seconds to wait for another process at most.
    """

    def __init__(self, place: Place, vfs: str | None, patience: float) -> None:
        self._place = place
        self._beside = (place.wal, place.journal)
        self._vfs = vfs
        self._patience = patience
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[Reader] = []

    @contextlib.contextmanager
    def lent(self) -> Iterator[apsw.Connection | None]:
        """A connection for the time of a block; None where there is no database, or nothing in it.

        Raises:
            StoreError, UsageError: see `connecting`.
            DamagedError: the database is malformed, as far as the block looked.
            apsw.Error: the medium; what else the block itself raises passes through.
            OSError: the file cannot be looked at.
        """
        try:
            reader = self._taken() or self._opened()
            if reader is None:
                yield None
                return
            try:
                yield reader.connection
            except BaseException:
                reader.close()
                raise
        except apsw.Error as error:
            if is_malformed(error):
                raise cause(error, None, "reading", self._place.file) from error
            raise
        with self._lock:
            self._idle.append(reader)

    def close(self) -> None:
        """Close what is idle. Connections that are lent are closed by whoever has them."""
        with self._lock:
            idle, self._idle = self._idle, []
        if self._pid != os.getpid():
            _INHERITED.extend(idle)
            return
        for reader in idle:
            reader.close()

    def _taken(self) -> Reader | None:
        if self._pid != os.getpid():
            _INHERITED.extend(self._idle)
            self._start_over()
        while True:
            with self._lock:
                if not self._idle:
                    return None
                reader = self._idle.pop()
            if reader.state in {self._state(), self._state(alone=True)}:
                return reader
            reader.close()

    def _state(self, *, alone: bool = False) -> _State:
        """What has to be as it was for a connection to be used again; more of it where that follows no changes."""
        try:
            stat = self._place.file.stat()
        except FileNotFoundError:
            return ()
        if not alone:
            return (stat.st_dev, stat.st_ino)
        return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, *map(_size, self._beside))

    # --- opening ------------------------------------------------------------------------------------------------

    def _opened(self) -> Reader | None:
        refuse_surroundings(self._place)
        state = self._state()
        if not state:
            return None
        try:
            return self._checked(open_reader(self._place, self._vfs, self._patience), state)
        except _HAS_TO_WRITE as error:
            with contextlib.suppress(apsw.Error, OSError):
                return self._opened_alone()
            raise error from None

    def _opened_alone(self) -> Reader | None:
        state = self._state(alone=True)
        beside = [path for path in self._beside if _size(path)]
        if not beside:
            return self._checked(open_reader(self._place, self._vfs, self._patience, untouched=True), state)
        copy = tempfile.TemporaryDirectory(prefix="fencepost-")
        try:
            target = Path(copy.name) / self._place.file.name
            _copy_database(self._place.file, target, self._vfs or "")
            for path in beside:
                shutil.copyfile(path, target.with_name(path.name))
            reader = self._checked(open_copy(target, self._place), state, copy)
        except BaseException:
            copy.cleanup()
            raise
        if reader is None:
            copy.cleanup()
        return reader

    def _checked(self, connection: apsw.Connection, state: _State, copy: _Copy | None = None) -> Reader | None:
        try:
            ours = is_ours(connection, self._place)
            if ours:
                connection.execute("SELECT 1 FROM sqlite_schema").get  # noqa: B018 - opens the write-ahead log
        except BaseException:
            close(connection)
            raise
        if not ours:
            close(connection)
            return None
        return Reader(connection, state, copy)


_INHERITED: list[Reader] = []
"""In a forked child, the connections of its parent: SQLite forbids both to use and to close them."""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _copy_database(source: Path, target: Path, vfs: str) -> None:
    """Copy through SQLite, which alone can close the file without dropping this process's locks on it."""
    file = apsw.VFSFile(vfs, str(source), _READ_ONLY)
    try:
        with target.open("wb") as out:
            size = file.xFileSize()
            for offset in range(0, size, _CHUNK):
                out.write(file.xRead(min(_CHUNK, size - offset), offset))
    finally:
        file.xClose()
