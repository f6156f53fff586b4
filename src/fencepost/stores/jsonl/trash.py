"""Deleted sessions: whole directories, moved aside within the root.

    ROOT/.trash/DELETED-NAME    a session's directory: NAME its segment, DELETED when it came, in epoch ms
    ROOT/.trash/.gone-…         one that is being destroyed; no longer to be restored

Rules:
    1. A session goes in, and out again, by one rename of its directory: it is in one place or the other, and whole, at
       every moment. Both directories are synced, the one that it went to first.
    2. Whoever moves a session holds its lock, or finds it here, where nobody owns anything.
    3. What is to be destroyed is renamed first, durably: a half-destroyed session can't be restored as a damaged one.

It is no session store: `names` never makes a hidden segment, so a listing steps over it.
"""

from __future__ import annotations

import contextlib
import errno
import re
from pathlib import Path

import msgspec

from fencepost.stores.jsonl.disk import Disk

DIRECTORY = ".trash"

_ENTRY = re.compile(r"(\d+)-(.+)", re.DOTALL)
_GONE = ".gone-"


class Entry(msgspec.Struct, frozen=True, order=True):
    """One deleted session: when it was deleted, in epoch milliseconds, and the segment of its id."""

    deleted: int
    name: str


class Trash:
    """The trash of one root. Errors leave as the `OSError` that they are."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self.dir = root / DIRECTORY

    def path(self, entry: Entry) -> Path:
        """Where a deleted session's directory is."""
        return self.dir / f"{entry.deleted}-{entry.name}"

    def entries(self) -> list[Entry]:
        """What is here, the latest first."""
        found = (_ENTRY.fullmatch(name) for name in self._names())
        return sorted((Entry(int(match[1]), match[2]) for match in found if match), reverse=True)

    def _names(self) -> list[str]:
        try:
            return self._disk.names(self.dir)
        except FileNotFoundError:
            return []

    def put(self, name: str, now: int) -> None:
        """Move the directory of a session here, durably. Its owner is the caller."""
        if not self.dir.exists():
            with contextlib.suppress(FileExistsError):
                self._disk.mkdir(self.dir)
            self._disk.sync_dir(self._root)
        taken = {entry.deleted for entry in self.entries() if entry.name == name}
        while now in taken:  # deleted twice within a millisecond
            now += 1
        self._disk.rename(self._root / name, self.path(Entry(now, name)))
        self._disk.sync_dir(self.dir)
        self._disk.sync_dir(self._root)

    def take_back(self, entry: Entry) -> None:
        """Move a session back into the root, durably.

        Raises:
            FileNotFoundError: it is not here any more.
            FileExistsError: there is a directory in its place, with something in it.
        """
        try:
            self._disk.rename(self.path(entry), self._root / entry.name)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise FileExistsError(error.errno, error.strerror) from None
            raise
        self._disk.sync_dir(self._root)
        self._disk.sync_dir(self.dir)

    def purge(self, before: int) -> int:
        """Destroy what was deleted before a time, and what an earlier purge left; returns how many were new to that."""
        doomed = [entry for entry in self.entries() if entry.deleted < before]
        count = 0
        for entry in doomed:
            with contextlib.suppress(FileNotFoundError):  # restored, or purged by another process, since it was listed
                self._disk.rename(self.path(entry), self.dir / f"{_GONE}{entry.deleted}-{entry.name}")
                count += 1
        if count:
            self._disk.sync_dir(self.dir)
        for name in self._names():
            if name.startswith(_GONE):
                self._disk.remove_tree(self.dir / name)
        return count
