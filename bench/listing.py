"""The first page of a listing of many sessions: in this process, and as a command, Python's own start included."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from bench.report import Aim, Row
from bench.sample import durations
from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.journal.catalogue import Catalogue
from fencepost.runtime.config import cache_home
from fencepost.stores.jsonl import JsonlStore

FULL = 10_000
PAGE = 50
AIM = Aim("under", 200)


async def measure(directory: Path, rounds: int, sessions: int = FULL) -> list[Row]:
    """Lay `sessions` small sessions down, list them once without a catalogue, then `rounds` times with one."""
    root, home = directory / "listing", directory / "cache"
    await _lay(root, sessions)
    environ = {**os.environ, "XDG_CACHE_HOME": str(home)}
    first = await _page(root, environ)
    pages = [await _page(root, environ) for _ in range(rounds)]
    commands = [await _command(root, environ) for _ in range(rounds)]
    note = f"{sessions:,} sessions of 2 events, page of {PAGE}."
    aim = AIM if sessions == FULL else None
    return [
        Row("list: first page, no catalogue", "ms", durations([first]), None, note),
        Row("list: first page", "ms", durations(pages), aim, note),
        Row("list: first page, as a command", "ms", durations(commands), None, f"{note} The whole process."),
    ]


async def _lay(root: Path, sessions: int) -> None:
    store = JsonlStore(root)
    for number in range(sessions):
        name = f"20260101-{number:06d}-bench"
        handle = await store.create(ev.Header(name, 1_700_000_000_000 + number, "/", codec.FORMAT))
        owner = ev.SessionOwner(0, 1_700_000_000_000, "bench", 1, resumed=False)
        await handle.append([owner, ev.InputQueued(1, 1_700_000_000_000, "i", "turn", (ev.Text("a task"),))], 0)
        await handle.release()
    await store.close()


async def _page(root: Path, environ: dict[str, str]) -> float:
    """Milliseconds."""
    store = JsonlStore(root)
    begun = time.perf_counter()
    rows = await Catalogue(store, CORE, cache_home(environ)).rows(PAGE)
    took = time.perf_counter() - begun
    await store.close()
    assert rows
    return took * 1000


async def _command(root: Path, environ: dict[str, str]) -> float:
    """Milliseconds."""
    begun = time.perf_counter()
    words = (sys.executable, "-m", "fencepost", "sessions", "--store", f"jsonl:{root}")
    process = await asyncio.create_subprocess_exec(*words, env=environ, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0
    assert output
    return (time.perf_counter() - begun) * 1000
