"""Connections that only read: a few, lent to one thread at a time, and opened anew when another file is in the place.

Reading changes no byte of the database or its write-ahead log. SQLite does need FILE-shm, an index of the log that all
who use the database share, and makes it where it is missing. Where it cannot be made (a medium that takes no writes, or
has no space), there are two other ways: a database without a log behind it is read as one that nobody writes to, and
one with a log is copied to the directory for temporary files first.
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

from fencepost.stores.sqlite.connecting import close, is_ours, open_reader, refuse_surroundings
from fencepost.stores.sqlite.place import Place

_CHUNK = 1 << 20
_READ_ONLY = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
_NO_INDEX = (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError)
"""What SQLite says where it cannot make FILE-shm; whatever else it may mean, the other ways then fail as well."""

_State: TypeAlias = tuple[int, ...]


class Reader:
    """One connection, and what it was opened for."""

    def __init__(
        self, connection: apsw.Connection, state: _State, copy: tempfile.TemporaryDirectory[str] | None = None
    ) -> None:
        self.connection = connection
        self.state = state
        self._copy = copy

    def close(self) -> None:
        """Let it go, and the copy that it reads."""
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
            apsw.Error: the medium; what the block itself raises passes through.
            OSError: the file cannot be looked at.
        """
        reader = self._taken() or self._opened()
        if reader is None:
            yield None
            return
        try:
            yield reader.connection
        except BaseException:
            reader.close()
            raise
        if reader.connection.in_transaction:
            reader.connection.execute("ROLLBACK")
        with self._lock:
            self._idle.append(reader)

    def close(self) -> None:
        """Close what is idle. Connections that are lent are closed by whoever has them."""
        with self._lock:
            idle, self._idle = self._idle, []
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
            if reader.state in {self._state(shared=True), self._state(shared=False)}:
                return reader
            reader.close()

    def _state(self, *, shared: bool) -> _State:
        """What has to be as it was for a connection to be used again."""
        try:
            stat = self._place.file.stat()
        except FileNotFoundError:
            return ()
        if shared:
            return (stat.st_dev, stat.st_ino)
        return (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, self._log_size())

    def _log_size(self) -> int:
        try:
            return self._place.wal.stat().st_size
        except FileNotFoundError:
            return 0

    # --- opening ------------------------------------------------------------------------------------------------

    def _opened(self) -> Reader | None:
        refuse_surroundings(self._place)
        state = self._state(shared=True)
        if not state:
            return None
        try:
            return self._checked(str(self._place.file), state)
        except _NO_INDEX as error:
            with contextlib.suppress(apsw.Error, OSError):
                return self._opened_alone()
            raise error from None

    def _opened_alone(self) -> Reader | None:
        state = self._state(shared=False)
        if not self._log_size():
            return self._checked(f"{self._place.file.as_uri()}?immutable=1", state)
        copy = tempfile.TemporaryDirectory(prefix="fencepost-")
        target = Path(copy.name) / "copy"
        try:
            _copy_database(self._place.file, target, self._vfs or "")
            shutil.copyfile(self._place.wal, target.with_name("copy-wal"))
            reader = self._checked(str(target), state, copy)
        except BaseException:
            copy.cleanup()
            raise
        if reader is None:
            copy.cleanup()
        return reader

    def _checked(self, name: str, state: _State, copy: tempfile.TemporaryDirectory[str] | None = None) -> Reader | None:
        connection = open_reader(name, self._vfs, self._patience, self._place)
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
