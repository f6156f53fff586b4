"""The files that belong to one database, all beside it.

    FILE                the database; SQLite keeps FILE-wal and FILE-shm beside it while somebody has it open, and
                        FILE-journal while it is being made
    FILE-locks/         one lock file for each session
    FILE-files/         one directory for each session that has large outputs
    FILE-trash/         the same of sessions that were deleted
    FILE-watermark      the newest batch that was acknowledged

Rules:
    1. Files have mode 0600 and directories 0700, whatever the umask; SQLite gives its companions the database's mode.
    2. Nobody but SQLite opens the database file itself once it is there: closing it would drop the locks that this
       process has on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from fencepost.stores.names import segment, session_of

FILE_MODE = 0o600
DIR_MODE = 0o700

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Place:
    """Where everything is."""

    def __init__(self, file: Path) -> None:
        self.file = file.absolute()
        self.wal = self._beside("-wal")
        self.journal = self._beside("-journal")
        self.locks = self._beside("-locks")
        self.watermark = self._beside("-watermark")
        self.trash = self._beside("-trash")
        self._files = self._beside("-files")
        self._made = False

    def _beside(self, suffix: str) -> Path:
        return self.file.with_name(self.file.name + suffix)

    def lock(self, session: str) -> Path:
        """The lock file of a session.

        Raises:
            UsageError: this cannot be a session's id.
        """
        return self.locks / f"{segment(session)}.lock"

    def files(self, session: str) -> Path:
        """The directory for a session's large outputs; made by whoever first writes there."""
        return self._files / segment(session)

    def locked_once(self) -> list[str]:
        """The ids of sessions that were owned at some time, from the names of their locks; shortened ones as such."""
        try:
            names = sorted(path.stem for path in self.locks.iterdir() if path.suffix == ".lock")
        except OSError:
            return []
        return [session_of(name) or name for name in names]

    @property
    def size(self) -> int:
        """Bytes of the database file; -1 where there is none.

        Raises:
            OSError: it cannot be looked at.
        """
        try:
            return self.file.stat().st_size
        except FileNotFoundError:
            return -1

    def make(self) -> None:
        """Make the directories that are missing, and make all names up to the root of the file system durable, once.

        Raises:
            OSError: that failed. Directories of others, which may not be opened, are no failure.
        """
        if self._made:
            return
        made = []
        for path in reversed([self.locks, *self.locks.parents]):
            with contextlib.suppress(FileExistsError):
                if not path.exists():
                    path.mkdir(DIR_MODE)
                    path.chmod(DIR_MODE)
                    made.append(path.parent)
        device = self.locks.stat().st_dev
        for path in self.locks.parents:
            if path.stat().st_dev != device:
                break
            try:
                sync_dir(path)
            except OSError:
                if path in made:
                    raise
        self._made = True

    def move(self, source: Path, target: Path) -> None:
        """Give a directory that may be there another place, durably; the place's own directory is made if need be.

        Raises:
            OSError: that failed, or the place is taken.
        """
        if not source.exists():
            return
        if not target.parent.exists():
            target.parent.mkdir(DIR_MODE, exist_ok=True)
            target.parent.chmod(DIR_MODE)
            sync_dir(target.parent.parent)
        source.rename(target)
        sync_dir(target.parent)
        sync_dir(source.parent)

    def make_file(self) -> None:
        """Make an empty database file where there is none; what is noted of an earlier one is no longer true.

        Raises:
            OSError: that failed.
        """
        if self.size < 0:
            self.watermark.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            fd = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
            os.fchmod(fd, FILE_MODE)
            os.close(fd)

    def sync(self) -> None:
        """Make the names of the database and its companions durable."""
        sync_dir(self.file.parent)


def sync_dir(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        else:
            os.fsync(fd)
    finally:
        os.close(fd)
