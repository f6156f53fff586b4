"""A disk that fails on demand, and really leaves behind what such a failure leaves behind."""

from __future__ import annotations

import errno
import os
import threading
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fencepost.stores.jsonl import Disk

Loss = Literal["nothing", "vanish", "nul"]


@dataclass(frozen=True)
class Fault:
    """One call that fails."""

    error: int
    keep: int
    loss: Loss


@dataclass(frozen=True)
class Hold:
    """One call that waits."""

    come: threading.Event
    go: threading.Event


class FaultDueError(OSError):
    """What the failing call raises; never EINTR, which has a class of its own."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.error, os.strerror(fault.error))
        self.fault = fault


class FaultyDisk(Disk):
    """The real disk, but each call first looks whether a fault is due.

    Attributes:
        calls: how often each operation was called.
        at_most: bytes that one write takes.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.at_most: int | None = None
        self._due: dict[str, deque[Fault | Hold]] = {}
        self._synced: dict[int, int] = {}

    def fail(self, operation: str, error: int, times: int = 1, *, keep: int = 0, loss: Loss = "nothing") -> None:
        """Let the next `times` calls of `operation` fail with errno `error`.

        Args:
            keep: a failing write first really writes so many bytes.
            loss: what becomes of the bytes since the last sync when a sync fails.
        """

        self._due.setdefault(operation, deque()).extend([Fault(error, keep, loss)] * times)

    def hold(self, operation: str) -> tuple[threading.Event, threading.Event]:
        """Let the next call of `operation` wait; returns (it has come, let it go on)."""
        hold = Hold(threading.Event(), threading.Event())
        self._due.setdefault(operation, deque()).append(hold)
        return hold.come, hold.go

    def _look(self, operation: str) -> None:
        self.calls[operation] += 1
        due = self._due.get(operation)
        if not due:
            return
        now = due.popleft()
        if isinstance(now, Fault):
            if now.error == errno.EINTR:
                raise InterruptedError(now.error, os.strerror(now.error))
            raise FaultDueError(now)
        now.come.set()
        assert now.go.wait(30)

    # --- operations ---------------------------------------------------------------------------------------------

    def mkdir(self, path: Path) -> None:
        self._look("mkdir")
        super().mkdir(path)

    def create(self, path: Path) -> int:
        self._look("create")
        return self._known(super().create(path))

    def open_log(self, path: Path) -> int:
        self._look("open_log")
        return self._known(super().open_log(path))

    def _known(self, fd: int) -> int:
        self._synced[fd] = os.fstat(fd).st_size
        return fd

    def open_hint(self, path: Path) -> int:
        self._look("open_hint")
        return super().open_hint(path)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        try:
            self._look("write")
        except FaultDueError as due:
            os.write(fd, data[: due.fault.keep])
            raise
        return super().write(fd, data if self.at_most is None else data[: self.at_most])

    def overwrite(self, fd: int, data: bytes, offset: int) -> int:
        self._look("overwrite")
        return super().overwrite(fd, data, offset)

    def sync_data(self, fd: int) -> None:
        try:
            self._look("sync_data")
        except FaultDueError as due:
            self._lose(fd, due.fault.loss)
            raise
        super().sync_data(fd)
        self._synced[fd] = os.fstat(fd).st_size

    def _lose(self, fd: int, loss: Loss) -> None:
        size, synced = os.fstat(fd).st_size, self._synced[fd]
        if loss != "nothing":
            os.ftruncate(fd, min(size, synced))
        if loss == "nul":
            os.ftruncate(fd, size)

    def truncate(self, fd: int, length: int) -> None:
        self._look("truncate")
        super().truncate(fd, length)

    def link(self, source: Path, target: Path) -> None:
        self._look("link")
        super().link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self._look("rename")
        super().rename(source, target)

    def unlink(self, path: Path) -> None:
        self._look("unlink")
        super().unlink(path)

    def sync_dir(self, path: Path) -> None:
        self._look("sync_dir")
        super().sync_dir(path)

    def fstat(self, fd: int) -> os.stat_result:
        self._look("fstat")
        return super().fstat(fd)

    def read(self, path: Path, start: int = 0, limit: int | None = None) -> bytes:
        self._look("read")
        return super().read(path, start, limit)
