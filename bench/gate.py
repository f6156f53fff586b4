"""The gate, beside the yardstick: the cheapest way there is to make 300 bytes durable on this file system.

Both are measured in turns, a block of one and a block of the other, so that what else the machine does meanwhile
weighs on both alike.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from bench.live import in_a_step
from bench.report import Aim, Row
from bench.sample import Sample, durations
from fencepost.core import events as ev
from fencepost.journal.session import Journal
from fencepost.stores.jsonl import JsonlStore

SIZE = 300
BLOCK = 50
GATE_NOTE = f"Append one event, then flush: {SIZE} bytes in the log with the commit line. In turns with the raw writes."
RATIO_NOTE = "The median over the pairs of neighbouring blocks, each the quotient of the two blocks' medians."
PAYLOAD = "x" * 147
"""Makes the event's line and its commit line about `SIZE` bytes together."""


async def measure(directory: Path, blocks: int) -> list[Row]:
    """The raw write with its sync, the gate, and the quotient of the two."""
    store = JsonlStore(directory / "gate")
    fd = os.open(directory / "raw", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    raw: list[list[int]] = []
    gates: list[list[int]] = []
    try:
        journal = await in_a_step(store, "gate")
        for _ in range(blocks):
            raw.append(_raw_block(fd))
            gates.append(await _gate_block(journal))
    finally:
        os.close(fd)
        await store.close()
    return [
        Row("raw write + fdatasync", "µs", _whole(raw)),
        Row("gate", "µs", _whole(gates), None, GATE_NOTE),
        Row("gate / raw", "times", _quotients(gates, raw), Aim("at most", 1.4), RATIO_NOTE),
    ]


def _raw_block(fd: int) -> list[int]:
    payload = b"x" * SIZE
    sync = getattr(os, "fdatasync", os.fsync)
    spent = []
    for _ in range(BLOCK):
        begun = time.perf_counter_ns()
        os.write(fd, payload)
        sync(fd)
        spent.append(time.perf_counter_ns() - begun)
    return spent


async def _gate_block(journal: Journal) -> list[int]:
    spent = []
    for _ in range(BLOCK):
        begun = time.perf_counter_ns()
        journal.append(ev.AssistantChunk, turn=1, step=1, delta=PAYLOAD)
        await journal.flush()
        spent.append(time.perf_counter_ns() - begun)
    return spent


def _whole(blocks: list[list[int]]) -> Sample:
    return durations([spent for block in blocks for spent in block]).scaled(1e-3)


def _quotients(upper: list[list[int]], lower: list[list[int]]) -> Sample:
    pairs = zip(upper, lower, strict=True)
    return durations([statistics.median(above) / statistics.median(below) for above, below in pairs])
