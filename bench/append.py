"""Append: `Journal.append` in memory, with a writer attached that hears of every event."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.live import STEP_GATES
from bench.report import Aim, Row
from bench.sample import durations
from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.journal.session import Journal
from fencepost.runtime.runtime import system_identity
from fencepost.stores.jsonl import JsonlStore

AIM = Aim("at most", 5)
NOTE = "Each append timed by itself, in steps of 100 chunks and 4 calls; the writer writes between two steps."
CHUNKS = 100
CALLS = 4


async def measure(directory: Path, steps: int) -> list[Row]:
    """Append what steps consist of: chunks, which a log is full of, and calls with their results."""
    store = JsonlStore(directory / "append")
    try:
        journal = await Journal.create(store, "append", "/", system_identity(), CORE)
        journal.append(ev.TurnStart, turn=1, gates=STEP_GATES, policy="checkpoint")
        stopwatch = Stopwatch(journal)
        for step in range(1, steps + 1):
            _step(stopwatch, step)
            await journal.flush()
    finally:
        await store.close()
    return [
        _row("append, a chunk", stopwatch, ev.AssistantChunk),
        _row("append, a call with its arguments", stopwatch, ev.ToolCall),
        _row("append, a result", stopwatch, ev.ToolResult),
    ]


class Stopwatch:
    """A journal, with the nanoseconds that each append took, by type."""

    def __init__(self, journal: Journal) -> None:
        self._append = journal.append
        self.spent: dict[type[ev.Event], list[int]] = {kind: [] for kind in ev.CORE_EVENTS}

    def append(self, kind: type[ev.Event], /, **fields: Any) -> None:
        """Append one event."""
        begun = time.perf_counter_ns()
        self._append(kind, **fields)
        self.spent[kind].append(time.perf_counter_ns() - begun)


def _row(name: str, stopwatch: Stopwatch, kind: type[ev.Event]) -> Row:
    return Row(name, "µs", durations(stopwatch.spent[kind]).scaled(1e-3), AIM, NOTE)


def _step(log: Stopwatch, step: int) -> None:
    log.append(ev.StepStart, turn=1, step=step)
    for _ in range(CHUNKS):
        log.append(ev.AssistantChunk, turn=1, step=step, delta=" gates", kind="text")
    names = [f"c_{step}_{number}" for number in range(CALLS)]
    asked = tuple(ev.CallRequest(name, "write_file", "{}") for name in names)
    log.append(
        ev.AssistantMessage, turn=1, step=step, message_id=f"m_{step}", content=asked, finish="tool_calls", usage=None
    )
    for name in names:
        arguments: dict[str, ev.Json] = {"path": "notes/plan.md", "content": "Three gates, one log.\n"}
        log.append(
            ev.ToolCall,
            turn=1,
            step=step,
            call_id=name,
            name="write_file",
            arguments=arguments,
            effect="idempotent",
            parent=None,
        )
    for name in names:
        content = (ev.Text("wrote 22 bytes to notes/plan.md"),)
        log.append(ev.ToolResult, turn=1, step=step, call_id=name, content=content, is_error=False, code="")
    log.append(ev.StepEnd, turn=1, step=step)
