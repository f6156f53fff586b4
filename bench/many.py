"""Gates per second with one, 16 and 256 sessions in one process and one store."""

from __future__ import annotations

import asyncio
import statistics
import time

from bench.engines import Engine
from bench.live import in_a_step
from bench.report import Row
from bench.sample import rates
from fencepost.core import events as ev
from fencepost.journal.session import Journal
from fencepost.stores.urls import open_store

SESSIONS = (1, 16, 256)
NOTE = "Every session appends one event, waits for its gate, and begins again. Rounds of all sizes in turns."


async def measure(engine: Engine, rounds: int, seconds: float) -> list[Row]:
    """Rounds of `seconds` with each number of sessions in turn."""
    store = open_store(engine.url)
    seen: dict[int, list[float]] = {count: [] for count in SESSIONS}
    try:
        journals = [await in_a_step(store, f"s{number}") for number in range(max(SESSIONS))]
        for _ in range(rounds):
            for count in SESSIONS:
                seen[count].append(await _rate(journals[:count], seconds))
    finally:
        await store.close()
    rows = [Row(f"gates, sessions: {count}", "1/s", rates(seen[count]), None, NOTE) for count in SESSIONS]
    alone = statistics.median(seen[1])
    sessions, _ = engine.gain
    gains = [rate / alone for rate in seen[sessions]]
    return [*rows, Row(f"{sessions} sessions / one", "times", rates(gains), engine.many, NOTE)]


async def _rate(journals: list[Journal], seconds: float) -> float:
    begun = time.perf_counter()
    counts = await asyncio.gather(*(_gates(journal, begun + seconds) for journal in journals))
    return sum(counts) / (time.perf_counter() - begun)


async def _gates(journal: Journal, until: float) -> int:
    count = 0
    while time.perf_counter() < until:
        journal.append(ev.AssistantChunk, turn=1, step=1, delta="x" * 147)
        await journal.flush()
        count += 1
    return count
