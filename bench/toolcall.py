"""What the gates cost where they are paid: a no-op tool call through the whole loop.

The same conversation runs in two compositions in turns, as shipped on a JSONL store, and without the checkpoint policy
on a memory store. A step is timed from one entry of the tool's body to the next, so a sample is one model request that
costs nothing, one call, and all that the runtime does around them.
"""

from __future__ import annotations

import statistics
import time
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

import fencepost
from bench.disks import CountingDisk
from bench.report import Aim, Row
from bench.sample import Sample, durations
from fencepost.runtime.tools import Tool
from fencepost.stores.base import Store
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.memory import MemoryStore
from fencepost.testing.scripted import Item, ScriptedModel

STEPS = 25
"""Steps of one turn. A turn grows slower with what it has to send, so both compositions run equally long ones."""

NOTE = "From one entry of the tool's body to the next: one request that costs nothing, one call, no other tool."
ADDED_NOTE = "Of each pair of neighbouring turns the difference of the two medians."


class Entry(msgspec.Struct, frozen=True):
    """The moment when the tool's body was entered, and what the disk had done by then."""

    at: int
    syncs: int
    written: int


class Bench:
    """One composition, open, with a tool that does nothing but look at the clock."""

    def __init__(self, store: Store, *, gates: bool, disk: CountingDisk) -> None:
        self._disk = disk
        self._entered: list[Entry] = []
        call = {"function": {"name": "noop", "arguments": "{}"}}
        answers: list[Item | list[Item]] = [{"content": "", "tool_calls": [call]} for _ in range(STEPS)]
        model = ScriptedModel([*answers, "Done."])
        self.runtime = fencepost.open(store, model=model, tools=[self._noop()], gates=gates)

    def _noop(self) -> Tool:
        @fencepost.tool(effect="write")
        async def noop() -> str:
            """Do nothing."""
            self._entered.append(Entry(time.perf_counter_ns(), self._disk.syncs, self._disk.written))
            return "done"

        return noop

    async def turn(self) -> list[Entry]:
        """One turn of a new session: its entries into the tool's body."""
        self._entered.clear()
        session = await self.runtime.create()
        result = await session.prompt("Call it.")
        await session.close()
        assert result.reason == "completed", result
        assert len(self._entered) == STEPS
        return list(self._entered)


async def measure(directory: Path, turns: int) -> list[Row]:
    """Run `turns` turns of each composition."""
    disk = CountingDisk()
    shipped = Bench(JsonlStore(directory / "toolcall", disk=disk), gates=True, disk=disk)
    ungated = Bench(MemoryStore(), gates=False, disk=CountingDisk())
    async with shipped.runtime, ungated.runtime:
        pairs = [(await shipped.turn(), await ungated.turn()) for _ in range(turns)]
    added = [statistics.median(_steps(gated)) - statistics.median(_steps(free)) for gated, free in pairs]
    return [
        _row("tool step, shipped", [step for gated, _ in pairs for step in _steps(gated)]),
        _row("tool step, no gates, in memory", [step for _, free in pairs for step in _steps(free)]),
        Row("added by gates and store", "ms", durations(added).scaled(1e-6), Aim("at most", 1), ADDED_NOTE),
        Row("fdatasyncs of a tool step", "", _per_step(pairs, "syncs"), Aim("at most", 3)),
        Row("log of a tool step", "bytes", _per_step(pairs, "written"), Aim("under", 1024)),
    ]


def _steps(entries: list[Entry]) -> list[int]:
    return [after.at - before.at for before, after in pairwise(entries)]


def _row(name: str, steps: list[int]) -> Row:
    return Row(name, "ms", durations(steps).scaled(1e-6), None, NOTE)


def _per_step(pairs: list[tuple[list[Entry], list[Entry]]], what: Literal["syncs", "written"]) -> Sample:
    ends = [(gated[0], gated[-1]) for gated, _ in pairs]
    return durations([(getattr(last, what) - getattr(first, what)) / (STEPS - 1) for first, last in ends])
