"""Disks for the JSONL store: one that counts what it is asked for, and one that keeps no promise."""

from __future__ import annotations

from fencepost.stores.jsonl.disk import Disk


class CountingDisk(Disk):
    """The disk of this machine, counting.

    Attributes:
        syncs: calls of `sync_data`, those under way included.
        written: bytes that `write` took; the log's, for nothing else is written with it after the first append.
    """

    def __init__(self) -> None:
        self.syncs = 0
        self.written = 0

    def sync_data(self, fd: int) -> None:
        """Count, and do it."""
        self.syncs += 1
        super().sync_data(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Do it, and count."""
        taken = super().write(fd, data)
        self.written += taken
        return taken


class UnsyncedDisk(Disk):
    """A disk whose syncs do nothing: to lay down a log that is only going to be read."""

    def sync_data(self, fd: int) -> None:
        """Nothing."""
