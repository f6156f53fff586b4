"""Threads for blocking work: all of it is done, nobody leaves before it is, and any loop gets its own answers."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from fencepost.errors import ClosedError
from fencepost.stores.threads import Threads


def test_results_and_errors_come_back_to_the_one_who_asked() -> None:
    async def main() -> None:
        threads = Threads(3, "test")
        jobs = [threads.submit(lambda number=number: 10 // number) for number in range(5)]
        with pytest.raises(ZeroDivisionError):
            await jobs[0].outcome()
        assert await asyncio.gather(*(job.outcome() for job in jobs[1:])) == [10, 5, 3, 2]
        await threads.close()

    asyncio.run(main())


def test_no_more_threads_than_allowed_and_no_more_than_needed() -> None:
    names: set[str] = set()

    def work() -> None:
        names.add(threading.current_thread().name)

    async def main() -> None:
        threads = Threads(3, "few")
        for _ in range(50):
            await threads.submit(work).outcome()
        assert names == {"few-1"}
        together = threading.Barrier(3)
        await asyncio.gather(*(threads.submit(lambda: together.wait(30)).outcome() for _ in range(3)))
        await asyncio.gather(*(threads.submit(work).outcome() for _ in range(200)))
        assert names <= {"few-1", "few-2", "few-3"}
        await threads.close()

    asyncio.run(main())


def test_a_cancelled_waiter_drains_and_the_result_is_undone() -> None:
    async def main() -> None:
        threads, go, undone = Threads(1, "test"), threading.Event(), []
        job = threads.submit(lambda: go.wait(30) and "taken")
        waiter = asyncio.create_task(job.outcome(undo=undone.append))
        for _ in range(3):
            await asyncio.sleep(0)
            waiter.cancel()
        await asyncio.sleep(0)
        assert not waiter.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        assert undone == ["taken"]
        await threads.close()

    asyncio.run(main())


def test_closing_waits_for_the_work_and_takes_no_more() -> None:
    async def main() -> None:
        threads, go, done = Threads(2, "test"), threading.Event(), []
        job = threads.submit(lambda: done.append(go.wait(30)))
        closing = asyncio.create_task(threads.close())
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            threads.submit(int)
        assert not closing.done()
        go.set()
        await closing
        assert done == [True]
        await job.outcome()
        await threads.close()

    asyncio.run(main())


def test_what_nobody_waits_for_is_done_too() -> None:
    async def main() -> None:
        threads, after = Threads(1, "test"), threading.Event()
        assert await threads.submit(lambda: 1, after.set).outcome() == 1
        assert await asyncio.to_thread(after.wait, 30)
        await threads.close()

    asyncio.run(main())


def test_one_pool_in_two_loops_one_after_the_other_and_at_once() -> None:
    threads = Threads(2, "test")

    async def ask(count: int) -> list[int]:
        return [await threads.submit(lambda number=number: number).outcome() for number in range(count)]

    assert asyncio.run(ask(3)) == [0, 1, 2]
    answers: list[list[int]] = []
    loops = [threading.Thread(target=lambda: answers.append(asyncio.run(ask(300)))) for _ in range(3)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    assert answers == [list(range(300))] * 3
    asyncio.run(threads.close())


def test_where_there_is_no_eventfd_a_pipe_wakes_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "eventfd", raising=False)

    async def main() -> None:
        threads = Threads(3, "test")
        jobs = [threads.submit(lambda number=number: number) for number in range(200)]
        assert await asyncio.gather(*(job.outcome() for job in jobs)) == list(range(200))
        await threads.close()

    asyncio.run(main())


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system does not list a process's descriptors")
def test_no_descriptor_is_left_when_the_last_thread_has_ended() -> None:
    async def main() -> None:
        before = set(os.listdir("/proc/self/fd"))
        idle, busy = Threads(2, "idle"), Threads(2, "fd-test")
        await asyncio.gather(*(busy.submit(int).outcome() for _ in range(10)))
        assert set(os.listdir("/proc/self/fd")) > before
        await busy.close()
        await idle.close()
        for thread in [thread for thread in threading.enumerate() if thread.name.startswith("fd-test")]:
            await asyncio.to_thread(thread.join, 30)
        assert set(os.listdir("/proc/self/fd")) == before

    asyncio.run(main())


def test_the_threads_do_not_keep_the_process_alive() -> None:
    async def main() -> list[bool]:
        await Threads(1, "daemon-test").submit(int).outcome()
        return [thread.daemon for thread in threading.enumerate() if thread.name.startswith("daemon-test")]

    assert asyncio.run(main()) == [True]
