# ruff: noqa: N802 - the names are SQLite's
"""A way to the real files for SQLite that counts, fails on demand, and remembers: an apsw VFS over the system's own.

    with Medium() as medium:
        store = SqliteStore(file, vfs=medium.name)
        medium.fail("sync", apsw.SQLITE_IOERR_FSYNC, suffix="-wal")

Operations are `open`, `read`, `write`, `truncate`, `sync` and `delete`; a suffix names the file ("" is the database).
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

import apsw

Operation = Literal["open", "read", "write", "truncate", "sync", "delete"]

_numbers = itertools.count()
_NEW_NAME = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL


@dataclass
class Fault:
    """Calls that fail: `operation` on files that end in `suffix`, `times` of them, with SQLite's `code`."""

    operation: Operation
    code: int
    suffix: str
    times: int


@dataclass(frozen=True)
class Op:
    """One thing that happened to a file, or to the names in the directory."""

    kind: Literal["name", "unname", "write", "truncate", "sync", "sync_names", "mark"]
    file: str = ""
    data: bytes = b""
    offset: int = 0
    mark: tuple[int, ...] = ()


class Medium(apsw.VFS):
    """See the module. Threads may share it.

    Attributes:
        calls: how often each operation was done to each file, as `(operation, suffix)`.
        ops: what happened, in order.
    """

    def __init__(self) -> None:
        self.name = f"medium-{next(_numbers)}"
        self.calls: Counter[tuple[str, str]] = Counter()
        self.ops: list[Op] = []
        self.known: set[str] = set()
        self.lock = threading.RLock()
        self._faults: list[Fault] = []
        self._holds: list[tuple[Operation, str, threading.Event, threading.Event]] = []
        super().__init__(self.name, "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    def fail(self, operation: Operation, code: int, *, suffix: str = "", times: int = 1) -> None:
        """Let the next `times` such calls fail."""
        self._faults.append(Fault(operation, code, suffix, times))

    def hold(self, operation: Operation, *, suffix: str = "") -> tuple[threading.Event, threading.Event]:
        """Let the next such call wait; returns (it has come, let it go on)."""
        come, go = threading.Event(), threading.Event()
        self._holds.append((operation, suffix, come, go))
        return come, go

    def heal(self) -> None:
        """Let nothing fail any more."""
        self._faults.clear()

    def mark(self, *acknowledged: int) -> None:
        """Note what is acknowledged by now."""
        with self.lock:
            self.ops.append(Op("mark", mark=acknowledged))

    def note(self, file: Path) -> None:
        """Note a file that SQLite does not know, as it is now: written and not synced."""
        with self.lock:
            if file.name not in self.known:
                self.known.add(file.name)
                self.ops.append(Op("name", file.name))
            self.ops.append(Op("write", file.name, file.read_bytes()))

    def sync_names(self) -> None:
        """Note that the directory was synced."""
        with self.lock:
            self.ops.append(Op("sync_names"))

    def look(self, operation: Operation, file: str) -> None:
        """Count a call, and raise what is due."""
        suffix = file[file.rindex("-") :] if "-" in file else ""
        with self.lock:
            self.calls[operation, suffix] += 1
            for fault in self._faults:
                if fault.operation == operation and fault.suffix == suffix and fault.times:
                    fault.times -= 1
                    raise apsw.exception_for(fault.code)
            due = [hold for hold in self._holds if hold[:2] == (operation, suffix)][:1]
            for hold in due:
                self._holds.remove(hold)
        for _, _, come, go in due:
            come.set()
            assert go.wait(30)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        assert path is not None
        file = os.path.basename(path)
        self.look("open", file)
        fresh = not os.path.exists(path) or (file not in self.known and not os.path.getsize(path))
        opened = _File(self, name, flags, file, names_later=fresh and bool(flags[0] & _NEW_NAME))
        with self.lock:
            if fresh:
                self.known.add(file)
                self.ops.append(Op("name", file))
        return opened

    def xDelete(self, name: str, syncdir: bool) -> None:
        file = os.path.basename(name)
        self.look("delete", file)
        with self.lock:
            super().xDelete(name, syncdir)
            self.known.discard(file)
            self.ops.append(Op("unname", file))
            if syncdir:
                self.ops.append(Op("sync_names"))


class _File(apsw.VFSFile):
    def __init__(self, medium: Medium, name: object, flags: list[int], file: str, *, names_later: bool) -> None:
        self.medium = medium
        self.file = file
        self.names_later = names_later
        """The first sync of a new journal syncs its directory too."""
        super().__init__("", name, flags)  # type: ignore[arg-type]

    def xRead(self, amount: int, offset: int) -> bytes:
        self.medium.look("read", self.file)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:
        self.medium.look("write", self.file)
        with self.medium.lock:
            super().xWrite(data, offset)
            self.medium.ops.append(Op("write", self.file, bytes(data), offset))

    def xTruncate(self, size: int) -> None:
        self.medium.look("truncate", self.file)
        with self.medium.lock:
            super().xTruncate(size)
            self.medium.ops.append(Op("truncate", self.file, offset=size))

    def xSync(self, flags: int) -> None:
        self.medium.look("sync", self.file)
        with self.medium.lock:
            super().xSync(flags)
            self.medium.ops.append(Op("sync", self.file))
            if self.names_later:
                self.names_later = False
                self.medium.ops.append(Op("sync_names"))
