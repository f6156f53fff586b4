"""The gate, beside its store's yardstick (see `engines`).

Both are measured in turns, a block of one and a block of the other, so that what else the machine does meanwhile
weighs on both alike.
"""

from __future__ import annotations

import statistics
import time

from bench.engines import SIZE, Engine
from bench.live import in_a_step
from bench.report import Aim, Row
from bench.sample import Sample, durations
from fencepost.core import events as ev
from fencepost.journal.session import Journal
from fencepost.stores.urls import open_store

BLOCK = 50
GATE_NOTE = f"Append one event, then flush: {SIZE} bytes in the log with the commit line. In turns with the yardstick."
RATIO_NOTE = "The median over the pairs of neighbouring blocks, each the quotient of the two blocks' medians."
PAYLOAD = "x" * 147
"""Makes the event's line and its commit line about `SIZE` bytes together."""


async def measure(engine: Engine, blocks: int) -> list[Row]:
    """The yardstick, the gate, and the quotient of the two."""
    store = open_store(engine.url)
    raw: list[list[int]] = []
    gates: list[list[int]] = []
    try:
        journal = await in_a_step(store, "gate")
        for _ in range(blocks):
            raw.append(_raw_block(engine))
            gates.append(await _gate_block(journal))
    finally:
        await store.close()
    return [
        Row(engine.raw, "µs", _whole(raw)),
        Row("gate", "µs", _whole(gates), None, GATE_NOTE),
        Row("gate / raw", "times", _quotients(gates, raw), Aim("at most", 1.4), RATIO_NOTE),
    ]


def _raw_block(engine: Engine) -> list[int]:
    spent = []
    for _ in range(BLOCK):
        begun = time.perf_counter_ns()
        engine.once()
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
