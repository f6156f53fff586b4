"""Waiting for a write: the loop goes on, a cancel drains, nothing lands late."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.jsonl.handle import FileHandle
from tests.stores.faults import FaultyDisk
from tests.stores.jsonl.session import log_of, run
from tests.stores.sample import header, lines_of, log_bytes, note, notes


def test_a_slow_sync_does_not_stop_the_loop(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        come, go = disk.hold("sync_data")
        task = asyncio.create_task(handle.append([note(2)], 2))
        beats = 0
        while not come.is_set() or beats < 100:
            await asyncio.sleep(0)
            beats += 1
        other = await store.create(header("s2"))
        await other.append([note(0)], 0)
        assert not task.done()
        go.set()
        await task

    run(tmp_path, scenario)


def test_a_cancel_ends_the_wait_and_not_the_write(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        come, go = disk.hold("sync_data")
        first = asyncio.create_task(handle.append([note(2)], 2))
        await asyncio.to_thread(come.wait, 30)
        for _ in range(3):
            first.cancel()
            await asyncio.sleep(0)
        second = asyncio.create_task(handle.append([note(3)], 3))
        release = asyncio.create_task(handle.release())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
        assert not release.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.gather(second, release, return_exceptions=True)
        stored = await store.read("s1")
        assert lines_of(stored.entries) == lines_of(notes(0, len(stored.entries)))
        assert stored.watermark >= 2

    run(tmp_path, scenario)


def test_a_cancelled_append_that_failed_can_be_tried_again(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        come, go = disk.hold("write")
        disk.fail("sync_data", errno.EIO, loss="vanish")
        task = asyncio.create_task(handle.append([note(2)], 2))
        await asyncio.to_thread(come.wait, 30)
        task.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        await handle.append([note(2)], 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])

    run(tmp_path, scenario)
