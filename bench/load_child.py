"""One load in a process of its own: prints how long it took and how much memory the process ever had.

python -m bench.load_child lay|inspect|resume URL [STEPS]
"""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path

import msgspec

from bench.biglog import SESSION, lay_down
from fencepost.core.codec import CORE
from fencepost.journal.inspect import inspect
from fencepost.journal.session import Journal
from fencepost.runtime.runtime import system_identity
from fencepost.stores.base import Store
from fencepost.stores.urls import open_store


class Load(msgspec.Struct, frozen=True):
    """What one process found.

    Attributes:
        events: in the log.
        seconds: for the load alone; starting the interpreter and importing the package are not in it.
        cpu: seconds of processor time in that.
        peak: bytes of memory that the process had at its highest, the interpreter's own included.
        before: the same before the load.
    """

    events: int
    seconds: float = 0
    cpu: float = 0
    peak: int = 0
    before: int = 0


def main(arguments: list[str]) -> None:
    """Do as the module says."""
    what, url = arguments[:2]
    if what == "lay":
        found = Load(lay_down(url, int(arguments[2])))
    else:
        found = asyncio.run(_load(open_store(url), resumes=what == "resume"))
    print(msgspec.json.encode(found).decode())


async def _load(store: Store, *, resumes: bool) -> Load:
    before, begun, worked = _peak(), time.perf_counter(), time.process_time()
    if resumes:
        journal, _ = await Journal.resume(store, SESSION, system_identity(), CORE)
        events = journal.log.fold.next_seq
    else:
        events = (await inspect(store, SESSION)).events
    load = Load(events, time.perf_counter() - begun, time.process_time() - worked, _peak(), before)
    await store.close()
    return load


def _peak() -> int:
    """The process's own high-water mark. What `getrusage` says can be the parent's: on Linux it outlives an exec."""
    status = Path("/proc/self/status")
    if status.is_file():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main(sys.argv[1:])
