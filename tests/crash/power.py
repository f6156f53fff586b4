"""The scenario, and repairs, under a power cut at every operation of the disk: what was synced is kept, and of the rest
every prefix, or all but one block. The simulator is `tests.stores.powercut`; the witness of a cut is the last one that
was noted before it.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from fencepost.core import events as ev
from fencepost.plugins.checkpoint import Checkpoint
from fencepost.stores.jsonl import JsonlStore
from tests.crash.boundaries import Tree, restore
from tests.crash.scenario import SESSION, Agent, play
from tests.crash.world import Witness, World
from tests.stores.powercut import Cut, Op, RecordingDisk, cuts

CRITICAL = (b'"type":"tool/call"', b'"type":"tool/result"')
"""Batches with one of these are cut at every byte."""


class Noted:
    """A recorder that notes the witness of each boundary in the story of a disk."""

    def __init__(self, disk: RecordingDisk, world: World) -> None:
        self.world = world
        self.witnesses: list[Witness] = []
        self._disk = disk

    def mark(self, kind: str, what: str) -> None:
        with self.world.lock:
            self.witnesses.append(self.world.witness())
            self._disk.mark(len(self.witnesses) - 1)

    def appended(self, event: ev.Event, size: int) -> None:
        self.mark("append", event.type_name())


class Powered(msgspec.Struct, frozen=True):
    """A run whose power can be cut anywhere.

    Attributes:
        events: all that it had in memory at its end.
        disk: what happened on its disk.
        base: a directory that was there before.
        root: the store's.
        witnesses: by the number that a cut calls `acknowledged`.
        begin: operations that had happened before the run began.
    """

    events: tuple[ev.Event, ...]
    disk: RecordingDisk
    base: Path
    root: Path
    witnesses: list[Witness]
    begin: int = 0

    def cuts(self, step: int, wanted: Callable[[Op], bool] = lambda op: True) -> Iterator[Cut]:
        """The cuts behind the operations that are wanted, with a prefix at each `step` bytes."""
        ops = self.disk.ops
        return (
            cut
            for cut in cuts(self.disk, self.base, step=step)
            if cut.after > self.begin and wanted(ops[cut.after - 1])
        )

    def sampled(self, step: int) -> Iterator[Cut]:
        """Every byte of the critical batches, every `step`-th of the others."""
        yield from self.cuts(1, is_critical)
        yield from self.cuts(step, lambda op: not is_critical(op))

    def tree(self, cut: Cut) -> Tree:
        """The files that a cut leaves, by their path below the root."""
        return {str(path.relative_to(self.root)): data for path, data in cut.files.items()}


def is_critical(op: Op) -> bool:
    """Whether an operation writes a batch in which a call begins or ends."""
    return any(name in op.data for name in CRITICAL)


def powered_run(place: Path, *, filler: str = "", disk: RecordingDisk | None = None) -> Powered:
    """The scenario, from nothing, in a directory that is not there yet."""
    disk = disk or RecordingDisk()
    recorder = Noted(disk, World())
    root = place / "sessions"
    events = asyncio.run(play(root, recorder, disk, Checkpoint(), filler=filler))
    return Powered(events, disk, place, root, recorder.witnesses)


class AdoptingDisk(RecordingDisk):
    """A recording disk under which files are already, all of them durable."""

    def __init__(self, base: Path, root: Path) -> None:
        super().__init__()
        directories = [root, *(path for path in sorted(root.rglob("*")) if path.is_dir())]
        for directory in directories:
            self.ops.append(Op("mkdir", directory))
        for path in sorted(root.rglob("*")):
            if path.is_file() and path.name != "lock":
                self._adopt(path)
        self.ops += [Op("sync_dir", directory) for directory in (base, *directories)]

    def _adopt(self, path: Path) -> None:
        inode, self._next = self._next, self._next + 1
        data = path.read_bytes()
        self._named[path] = inode
        self._sizes[inode] = len(data)
        self.ops += [Op("name", path, inode), Op("write", inode=inode, data=data), Op("sync", inode=inode)]


def powered_repair(place: Path, files: Tree, witness: Witness) -> Powered:
    """The repair of an interrupted log, all of whose bytes are durable."""
    root = place / "sessions"
    restore(files, root)
    disk = AdoptingDisk(place, root)
    begin = len(disk.ops)
    agent = Agent(JsonlStore(root, disk=disk), World(), life="repair", policy=Checkpoint())

    async def repair() -> tuple[ev.Event, ...]:
        async with agent.runtime as runtime:
            session = await runtime.resume(SESSION)
            return tuple(event for event in session.journal.log.events() if isinstance(event, ev.Event))

    return Powered(asyncio.run(repair()), disk, place, root, [witness], begin)
