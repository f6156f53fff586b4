"""Every place where a process can die: a copy of the store's directory, and of the world, at each of them.

A SIGKILL leaves the page cache whole, so what a killed process leaves is what its directory holds at that moment. The
run itself is not disturbed: it goes on, and each copy is judged as if it had ended there.
"""

import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

import msgspec

from fencepost.core import events as ev
from fencepost.core.projection import ModelRequest
from fencepost.runtime.hooks import Position
from fencepost.runtime.models import Model, ModelDelta, closing_stream
from fencepost.stores.jsonl import Disk
from tests.crash.world import Witness, World

Tree = dict[str, bytes]
"""The files below a directory, by relative path."""


def tree_of(root: Path) -> Tree:
    """All files below `root`."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def without_lock(tree: Tree) -> Tree:
    """The same without lock files, whose text is for people and not part of any log."""
    return {name: data for name, data in tree.items() if not name.endswith("/lock")}


def restore(tree: Tree, root: Path) -> None:
    """Put a copy back under `root`."""
    root.mkdir(mode=0o700, parents=True)
    for name, data in tree.items():
        path = root / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(data)


class Boundary(msgspec.Struct, frozen=True):
    """One place where the process could have died.

    Attributes:
        kind: `append`, `write`, `torn`, `sync`, `name`, `gate`, `body`, `request`, `approval` or `ack`.
        what: which one.
        files: the store's directory.
        witness: the world.
    """

    kind: str
    what: str
    files: Tree
    witness: Witness

    def __repr__(self) -> str:
        return f"<{self.kind}: {self.what}>"


class Recorder(Protocol):
    """Told of every place where the process could die."""

    world: World

    def mark(self, kind: str, what: str) -> None:
        """The run stands at a boundary; see `Boundary`."""

    def appended(self, event: ev.Event, size: int) -> None:
        """A subscriber of the log: an event was appended."""


class Copies:
    """A recorder that takes a copy of the directory and of the world each time."""

    def __init__(self, root: Path, world: World) -> None:
        self.root = root
        self.world = world
        self.boundaries: list[Boundary] = []

    def mark(self, kind: str, what: str) -> None:
        with self.world.lock:
            self.boundaries.append(Boundary(kind, what, tree_of(self.root), self.world.witness()))

    def appended(self, event: ev.Event, size: int) -> None:
        self.mark("append", event.type_name())


_COMMA = re.compile(rb",")


class SteppingDisk(Disk):
    """The disk of this machine, with a copy before and after each call that changes something.

    A write is also stopped in its middle, in front of and behind every line, and inside each of them: the kernel may
    end a large write at a page when a SIGKILL comes.
    """

    def __init__(self, recorder: Recorder, *, torn: bool) -> None:
        self._recorder = recorder
        self._torn = torn

    def _step(self, kind: str, what: str, act: Callable):
        with self._recorder.world.lock:
            self._recorder.mark(kind, f"before {what}")
            result = act()
            self._recorder.mark(kind, f"after {what}")
            return result

    def mkdir(self, path: Path) -> None:
        self._step("name", f"mkdir {path.name}", lambda: super(SteppingDisk, self).mkdir(path))

    def create(self, path: Path) -> int:
        return self._step("name", f"create {path.name}", lambda: super(SteppingDisk, self).create(path))

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return self._step("write", f"{len(data)} bytes", lambda: self._in_pieces(fd, bytes(data)))

    def _in_pieces(self, fd: int, data: bytes) -> int:
        done = 0
        for place in _cuts(data) if self._torn else ():
            super().write(fd, data[done:place])
            done = place
            self._recorder.mark("torn", f"{done} of {len(data)} bytes")
        super().write(fd, data[done:])
        return len(data)

    def overwrite(self, fd: int, data: bytes, offset: int) -> int:
        return self._step("write", "the hint", lambda: super(SteppingDisk, self).overwrite(fd, data, offset))

    def truncate(self, fd: int, length: int) -> None:
        self._step("write", f"truncate {length}", lambda: super(SteppingDisk, self).truncate(fd, length))

    def sync_data(self, fd: int) -> None:
        self._step("sync", "data", lambda: super(SteppingDisk, self).sync_data(fd))

    def sync_dir(self, path: Path) -> None:
        self._step("sync", f"directory {path.name}", lambda: super(SteppingDisk, self).sync_dir(path))

    def link(self, source: Path, target: Path) -> None:
        self._step("name", f"link {target.name}", lambda: super(SteppingDisk, self).link(source, target))

    def rename(self, source: Path, target: Path) -> None:
        self._step("name", f"rename {target.name}", lambda: super(SteppingDisk, self).rename(source, target))

    def unlink(self, path: Path) -> None:
        self._step("name", f"unlink {path.name}", lambda: super(SteppingDisk, self).unlink(path))


def _cuts(data: bytes) -> list[int]:
    """In each line: behind its second field, inside its last one, in front of its newline, and behind it."""
    places: set[int] = set()
    start = 0
    for line in data.splitlines(keepends=True) if b"\n" in data else [data]:
        early = [match.end() for match in _COMMA.finditer(line)][1:2]
        places.update(start + offset for offset in (*early, len(line) - 3, len(line) - 1, len(line)))
        start += len(line)
    return sorted(place for place in places if 0 < place < len(data))


class MarkedModel:
    """A model whose requests are seen by the world, with a copy when each leaves and when each piece comes."""

    def __init__(self, inner: Model, recorder: Recorder) -> None:
        self._inner = inner
        self._recorder = recorder
        self.provider = inner.provider
        self.model = inner.model
        self.settings = inner.settings
        self.body = inner.body
        self.close = inner.close

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self._recorder.world.send(request)
        self._recorder.mark("request", "left")
        async with closing_stream(self._inner.stream(request)) as stream:
            async for delta in stream:
                self._recorder.mark("request", f"piece {type(delta).__name__}")
                yield delta


class Marks:
    """A plugin that takes copies on the outside of each gate, and where results are about to be recorded."""

    name = "marks"
    requires = ()

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def apply(self, context) -> None:
        context.hook(lambda hooks: hooks.before_step, Position.BOUND, self._step)
        context.hook(lambda hooks: hooks.model_stream, Position.BOUND, self._stream)
        context.hook(lambda hooks: hooks.tool_execute, Position.BOUND, self._execute)
        context.hook(lambda hooks: hooks.tool_done, Position.OBSERVE, self._done)

    async def _step(self, plan, go_on):
        self._recorder.mark("gate", "step asked")
        await go_on(plan)
        self._recorder.mark("gate", "step passed")

    async def _stream(self, attempt, go_on):
        self._recorder.mark("gate", "request asked")
        async with closing_stream(go_on(attempt)) as stream:
            async for delta in stream:
                yield delta

    async def _execute(self, call, go_on):
        self._recorder.mark("gate", f"tool asked {call.event.name}")
        reply = await go_on(call)
        self._recorder.mark("gate", f"tool left {call.event.name}")
        return reply

    async def _done(self, done, go_on):
        reply = await go_on(done)
        self._recorder.mark("body", f"to be recorded {done.candidate.tool.name}")
        return reply
