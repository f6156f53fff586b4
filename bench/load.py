"""Loading a huge log, each time in a process of its own: to look at it, and to go on with it."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from bench import biglog
from bench.engines import Engine
from bench.load_child import Load
from bench.report import Aim, Row
from bench.sample import durations

MEMORY = Aim("under", 200)
FULL = biglog.STEPS
MIB = 1 / (1 << 20)


async def measure(engine: Engine, loads: int, steps: int = FULL) -> list[Row]:
    """Lay the log down, then load it `loads` times for each purpose. The aims hold for the full log only."""
    laid = await _child("lay", engine.url, str(steps))
    note = f"{laid.events:,} events, in the page cache. Memory: the whole process, Python included."
    seconds = Aim("under", engine.load)
    rows = []
    for what, name in (("inspect", "load: read, fold, verdicts"), ("resume", "load: resume")):
        found = [await _child(what, engine.url) for _ in range(loads)]
        assert all(load.events == laid.events for load in found)
        memory = durations([float(load.peak) for load in found]).scaled(MIB)
        full = steps == FULL
        rows += [
            Row(name, "s", durations([load.seconds for load in found]), seconds if full else None, note),
            Row(f"{name}, processor time", "s", durations([load.cpu for load in found]), None, note),
            Row(f"{name}, peak", "MiB", memory, MEMORY if full else None, note),
        ]
    return rows


async def _child(*arguments: str) -> Load:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.load_child", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    if process.returncode:
        raise SystemExit(f"loading failed in a child process (exit code {process.returncode})")
    return msgspec.json.decode(output, type=Load)
