"""A note beside the database: the newest batch that was acknowledged.

It is written after the commit that it speaks of, unsynced, so it is never ahead of what was durable. A database that
ends before it lost commits, most likely with a `-wal` file that somebody removed or left behind. It only ever adds
doubt, so a failure to write it takes nothing away. It names its database: a new one in the old one's place owes it
nothing.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from fencepost.stores.sqlite.place import FILE_MODE

_FORM = b"%020d %s\n"
_TEXT = re.compile(rb"(\d{20}) ([0-9a-f]{16})\n")


class Noted(msgspec.Struct, frozen=True):
    """What the note says: the newest batch that was acknowledged, and of which database."""

    batch: int = 0
    database: str = ""

    def ahead_of(self, given: int, database: str) -> bool:
        """Whether a database, which has given ids up to `given`, ends before what was acknowledged.

        Before: the note was read before the database was looked at; a living writer moves both forward.
        """
        return self.database == database and self.batch > given


def noted(path: Path) -> Noted:
    """The note as it is now; an empty one where there is none, or it cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            match = _TEXT.fullmatch(file.read(64) or b"")
    except OSError:
        return Noted()
    return Noted(int(match[1]), match[2].decode()) if match else Noted()


class Watermark:
    """The note, as a writer keeps it."""

    def __init__(self, path: Path, database: str) -> None:
        self._path = path
        self._database = database.encode()
        self._fd = -1

    def note(self, batch: int) -> None:
        """Write down that `batch` was acknowledged."""
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
                os.fchmod(self._fd, FILE_MODE)
            os.pwrite(self._fd, _FORM % (batch, self._database), 0)
        except OSError:
            return

    def close(self) -> None:
        """Let the file go. Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)
