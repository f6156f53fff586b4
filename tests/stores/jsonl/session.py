"""Sessions on disks that fail on demand."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.jsonl.handle import FileHandle
from tests.stores.faults import FaultyDisk
from tests.stores.sample import header, notes

Scenario = Callable[[JsonlStore, FileHandle, FaultyDisk], Awaitable[None]]


def run(root: Path, scenario: Scenario) -> None:
    """A session with two acknowledged notes, on a disk that fails on demand."""

    async def main() -> None:
        disk = FaultyDisk()
        async with store_at(root, disk) as store:
            handle = await store.create(header())
            await handle.append(notes(0, 2), 0)
            await scenario(store, handle, disk)

    asyncio.run(main())


@contextlib.asynccontextmanager
async def store_at(root: Path, disk: FaultyDisk | None = None) -> AsyncIterator[JsonlStore]:
    """A store that is closed at the end."""
    store = JsonlStore(root, disk=disk)
    try:
        yield store
    finally:
        await store.close()


def log_of(root: Path) -> bytes:
    """The bytes of the session's log."""
    return (root / "s1" / "log.jsonl").read_bytes()


def write_session(root: Path, data: bytes, session: str = "s1") -> Path:
    """Put a log there; returns the session's directory."""
    place = root / session
    place.mkdir(parents=True)
    (place / "log.jsonl").write_bytes(data)
    return place


def owning(root: Path, scenario: Callable[[JsonlStore, FileHandle], Awaitable[None]]) -> None:
    """Own the session that stands there."""

    async def main() -> None:
        async with store_at(root) as store:
            await scenario(store, await store.own("s1"))

    asyncio.run(main())


def forked(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; returns its exit status."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        work()
        status = 0
    finally:
        os._exit(status)
