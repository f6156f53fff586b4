"""Power cuts, simulated: a disk that remembers what was synced, and every directory that a cut could leave.

Use it in three steps:

    disk = RecordingDisk()              # give it to a JsonlStore, work, and call disk.mark(what was acknowledged)
    for cut in cuts(disk, base):        # every boundary, with every way to lose what was not synced
        cut.restore(base, place)        # the files as they come up after the cut, under another directory

`survey` does the rest for one session: it opens each of those with a plain `JsonlStore` and hands the `StoredLog` on.

The model. A file has the bytes of its last sync, and of what came later any prefix; or, for the last write of all, the
whole but one 512-byte block, which is NULs. A directory has the names of its last sync, and of the changes that came
later any prefix; a directory that was moved is in one place or the other, never in both. Files and directories lose
independently of each other. Bytes of a file with no durable name are gone.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fencepost.errors import SessionNotFoundError
from fencepost.stores.base import StoredLog
from fencepost.stores.jsonl import Disk, JsonlStore

BLOCK = 512

Kind = Literal["mkdir", "name", "unname", "write", "truncate", "sync", "sync_dir", "mark", "move"]


@dataclass(frozen=True)
class Op:
    """One thing that happened on the disk."""

    kind: Kind
    path: Path = Path()
    inode: int = 0
    data: bytes = b""
    offset: int = 0
    mark: int = 0
    source: Path = Path()
    """Of a directory that was moved to `path`, with all that is in it."""


class RecordingDisk(Disk):
    """The real disk, which also writes down what happens. Threads may share it."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._inodes: dict[int, int] = {}
        self._named: dict[Path, int] = {}
        self._sizes: dict[int, int] = {}
        self._next = 1
        self._lock = threading.RLock()

    def mark(self, acknowledged: int) -> None:
        """Note that so many entries are acknowledged by now."""
        with self._lock:
            self.ops.append(Op("mark", mark=acknowledged))

    def mkdir(self, path: Path) -> None:
        with self._lock:
            super().mkdir(path)
            self.ops.append(Op("mkdir", path))

    def create(self, path: Path) -> int:
        with self._lock:
            return self._born(super().create(path), path)

    def open_log(self, path: Path) -> int:
        with self._lock:
            return self._opened(super().open_log(path), path)

    def open_hint(self, path: Path) -> int:
        with self._lock:
            fd = super().open_hint(path)
            return self._opened(fd, path) if path in self._named else self._born(fd, path)

    def _born(self, fd: int, path: Path) -> int:
        inode, self._next = self._next, self._next + 1
        self._named[path] = self._inodes[fd] = inode
        self._sizes[inode] = 0
        self.ops.append(Op("name", path, inode))
        return fd

    def _opened(self, fd: int, path: Path) -> int:
        self._inodes[fd] = self._named[path]
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        with self._lock:
            taken = super().write(fd, data)
            inode = self._inodes[fd]
            self.ops.append(Op("write", inode=inode, data=bytes(data[:taken]), offset=self._sizes[inode]))
            self._sizes[inode] += taken
            return taken

    def overwrite(self, fd: int, data: bytes, offset: int) -> int:
        with self._lock:
            taken = super().overwrite(fd, data, offset)
            self.ops.append(Op("write", inode=self._inodes[fd], data=data[:taken], offset=offset))
            return taken

    def truncate(self, fd: int, length: int) -> None:
        with self._lock:
            super().truncate(fd, length)
            inode = self._inodes[fd]
            self.ops.append(Op("truncate", inode=inode, offset=length))
            self._sizes[inode] = length

    def sync_data(self, fd: int) -> None:
        super().sync_data(fd)
        with self._lock:
            self.ops.append(Op("sync", inode=self._inodes[fd]))

    def sync_dir(self, path: Path) -> None:
        super().sync_dir(path)
        with self._lock:
            self.ops.append(Op("sync_dir", path))

    def link(self, source: Path, target: Path) -> None:
        with self._lock:
            super().link(source, target)
            self._named[target] = self._named[source]
            self.ops.append(Op("name", target, self._named[source]))

    def rename(self, source: Path, target: Path) -> None:
        with self._lock:
            super().rename(source, target)
            if target.is_dir():
                self._named = {_moved(path, source, target): inode for path, inode in self._named.items()}
                self.ops.append(Op("move", target, source=source))
                return
            inode = self._named[target] = self._named.pop(source)
            self.ops += [Op("name", target, inode), Op("unname", source)]

    def unlink(self, path: Path) -> None:
        with self._lock:
            super().unlink(path)
            self._named.pop(path, None)
            self.ops.append(Op("unname", path))

    def rmdir(self, path: Path) -> None:
        with self._lock:
            super().rmdir(path)
            self.ops.append(Op("unname", path))

    def remove_tree(self, path: Path) -> None:
        with self._lock:
            for item in sorted(path.rglob("*"), reverse=True):
                (self.rmdir if item.is_dir() else self.unlink)(item)
            self.rmdir(path)


def _moved(path: Path, source: Path, target: Path) -> Path:
    return target / path.relative_to(source) if path.is_relative_to(source) else path


# --- what a cut can leave -------------------------------------------------------------------------------------------


@dataclass
class _File:
    durable: bytes = b""
    pending: list[Op] = field(default_factory=list)

    def now(self) -> bytes:
        content = self.durable
        for op in self.pending:
            content = _applied(content, op)
        return content

    def survivors(self, step: int) -> Iterator[tuple[str, bytes]]:
        """What may be there after a cut: every prefix of what was not synced, then the whole with one block lost."""
        content = self.durable
        yield "nothing unsynced", content
        for op in self.pending:
            if op.kind == "write":
                for count in range(step, len(op.data), step):
                    yield f"{count} bytes of a write", _applied(content, op, count)
            before, content = content, _applied(content, op)
            yield f"a {op.kind}", content
        if self.pending and self.pending[-1].kind == "write":
            for at in range(len(before) // BLOCK * BLOCK, len(content), BLOCK):
                lost = range(max(at, len(before)), min(at + BLOCK, len(content)))
                yield f"all but block {at // BLOCK}", content[: lost.start] + bytes(len(lost)) + content[lost.stop :]


def _applied(content: bytes, op: Op, count: int | None = None) -> bytes:
    if op.kind == "truncate":
        return content[: op.offset].ljust(op.offset, b"\0")
    data = op.data[:count]
    return content[: op.offset].ljust(op.offset, b"\0") + data + content[op.offset + len(data) :]


class _Machine:
    """The disk at one moment: what is durable, and what is only on its way."""

    def __init__(self) -> None:
        self.files: dict[int, _File] = {}
        self.names: dict[Path, int | None] = {}
        """Durable names; None for a directory."""
        self.renaming: list[Op] = []
        self.acknowledged = 0

    def take(self, op: Op) -> None:
        if op.kind in {"mkdir", "name", "unname", "move"}:
            self.renaming.append(op)
            if op.kind == "name":
                self.files.setdefault(op.inode, _File())
        elif op.kind in {"write", "truncate"}:
            self.files[op.inode].pending.append(op)
        elif op.kind == "sync":
            file = self.files[op.inode]
            file.durable, file.pending = file.now(), []
        elif op.kind == "sync_dir":
            for pending in [later for later in self.renaming if later.path.parent == op.path]:
                self.renaming.remove(pending)
                _rename(self.names, pending)
                if pending.kind == "move":  # what is still on its way was on its way to there
                    self.renaming = [
                        replace(later, path=_moved(later.path, pending.source, pending.path)) for later in self.renaming
                    ]
        else:
            self.acknowledged = op.mark

    def name_survivors(self) -> Iterator[dict[Path, int | None]]:
        names = dict(self.names)
        yield dict(names)
        for op in self.renaming:
            _rename(names, op)
            yield dict(names)


def _rename(names: dict[Path, int | None], op: Op) -> None:
    if op.kind == "unname":
        names.pop(op.path, None)
    elif op.kind == "move":
        for path in [path for path in names if path.is_relative_to(op.source)]:
            names[_moved(path, op.source, op.path)] = names.pop(path)
    else:
        names[op.path] = op.inode if op.kind == "name" else None


@dataclass(frozen=True)
class Cut:
    """One state that a power cut can leave.

    Attributes:
        after: how many operations had happened.
        acknowledged: the last mark before the cut.
        story: what survived, for a failing test's message.
    """

    after: int
    acknowledged: int
    story: str
    lost_block: bool
    dirs: frozenset[Path]
    files: dict[Path, bytes]

    def restore(self, base: Path, place: Path) -> None:
        """Put the files there, as they were under `base`."""
        dirs = {place / path.relative_to(base) for path in self.dirs}
        files = {place / path.relative_to(base): content for path, content in self.files.items()}
        place.mkdir(parents=True, exist_ok=True)
        for path in sorted(place.rglob("*"), reverse=True):
            if path.is_dir() and path not in dirs:
                path.rmdir()
            elif path.is_file() and path not in files:
                path.unlink()
        for path in sorted(dirs):
            path.mkdir(exist_ok=True)
        for path, content in files.items():
            path.write_bytes(content)


def cuts(disk: RecordingDisk, base: Path, *, step: int = 1) -> Iterator[Cut]:
    """Every state that a power cut between two operations can leave.

    Args:
        base: a directory that was there, durably, before.
        step: bytes between two prefixes of one write.
    """
    machine = _Machine()
    for after, op in enumerate(disk.ops, 1):
        machine.take(op)
        if op.kind != "mark":
            yield from _cuts_now(machine, base, after, step)


def _cuts_now(machine: _Machine, base: Path, after: int, step: int) -> Iterator[Cut]:
    for kept, names in enumerate(machine.name_survivors()):
        dirs = frozenset(path for path, inode in names.items() if inode is None and _reachable(path, names, base))
        here = {path: inode for path, inode in names.items() if inode is not None and path.parent in dirs | {base}}
        for inode in dict.fromkeys([*here.values(), None]):
            # One file at a time loses in every way; the others lose all that is not synced, or nothing.
            for others in ("none", "all"):
                for story, content in machine.files[inode].survivors(step) if inode is not None else [("", b"")]:
                    files = {
                        path: content
                        if each == inode
                        else (machine.files[each].durable if others == "none" else machine.files[each].now())
                        for path, each in here.items()
                    }
                    told = f"after {after} operations, {kept} names: {story}, {others} of the other files"
                    yield Cut(after, machine.acknowledged, told, "block" in story, dirs, files)


def _reachable(path: Path, names: dict[Path, int | None], base: Path) -> bool:
    return path == base or (path in names and _reachable(path.parent, names, base))


# --- looking at all of them -----------------------------------------------------------------------------------------

Check = Callable[[Cut, StoredLog | None, JsonlStore], Awaitable[None]]


async def survey(
    disk: RecordingDisk, base: Path, root: Path, session: str, place: Path, check: Check, *, step: int = 1
) -> int:
    """Open what every cut leaves with a plain store, and hand it to `check`; returns how many different ones.

    Args:
        base: a directory that was there, durably, before; `root`, the store's, is below it.
        place: where the files are put.
        check: gets the cut, the session or None where there is no such session, and the store.
    """
    store = JsonlStore(place / root.relative_to(base))
    seen: set[tuple[int, frozenset[tuple[Path, bytes]]]] = set()
    try:
        for cut in cuts(disk, base, step=step):
            state = (cut.acknowledged, frozenset(cut.files.items()))
            if state in seen:
                continue
            seen.add(state)
            cut.restore(base, place)
            assert set(await store.sessions()) <= {session}, cut.story
            try:
                stored = await store.read(session)
            except SessionNotFoundError:
                stored = None
            await check(cut, stored, store)
    finally:
        await store.close()
    return len(seen)
