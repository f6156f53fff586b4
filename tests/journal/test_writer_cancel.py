"""The writer under cancellation, and under many tasks at once: a wait can be ended, a write cannot."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.journal.rig import FULL, Disk, Rig, answered_step, new_log, note, result

from fencepost.errors import NotSavedError
from fencepost.journal.writer import Writer

# --- cancel -----------------------------------------------------------------------------------------------------


def test_cancelling_the_waiter_ends_the_wait_after_the_write():
    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        written = rig.note()
        flush = await rig.flushing()
        flush.cancel()
        await asyncio.sleep(0)
        assert not flush.done()
        rig.disk.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await flush
        assert rig.disk.events == [written]

    asyncio.run(scenario())


def test_a_waiter_that_is_cancelled_before_its_write_begins_still_sees_it_end():
    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        rig.note()
        first = await rig.flushing()
        rig.note()
        second = asyncio.create_task(rig.writer.flush())
        await asyncio.sleep(0)
        second.cancel()
        rig.disk.gate.set()
        await first
        with pytest.raises(asyncio.CancelledError):
            await second
        assert rig.sizes() == [1, 1]

    asyncio.run(scenario())


def test_a_cancel_in_the_tick_of_the_flush_waits_for_its_write_too():
    async def scenario():
        rig = Rig()
        rig.note()

        async def flush():
            asyncio.current_task().cancel()
            await rig.writer.flush()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.create_task(flush())
        assert rig.sizes() == [1]

    asyncio.run(scenario())


def test_a_second_cancellation_leaves_at_once_and_the_write_goes_on():
    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        rig.note()
        flush = await rig.flushing()
        flush.cancel()
        await asyncio.sleep(0)
        flush.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flush
        assert rig.disk.busy
        rig.disk.gate.set()
        assert await rig.disk.ended.get() == 1
        assert rig.sizes() == [1]

    asyncio.run(scenario())


def test_cancelling_one_waiter_leaves_the_others_waiting():
    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        rig.note()
        first = await rig.flushing()
        second = asyncio.create_task(rig.writer.flush())
        await asyncio.sleep(0)
        first.cancel()
        rig.disk.gate.set()
        await second
        assert first.cancelled() or await asyncio.wait([first])
        assert first.cancelled()

    asyncio.run(scenario())


def test_a_cancelled_waiter_of_a_failing_write_ends_cancelled():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [FULL]
        rig.disk.gate.clear()
        rig.note()
        flush = await rig.flushing()
        flush.cancel()
        await asyncio.sleep(0)
        rig.disk.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await flush

    asyncio.run(scenario())


def test_when_the_write_itself_is_torn_down_nothing_follows_it():
    """The loop ends under a live session: whether the batch landed is unknown, so no other may."""

    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        rig.note()
        flush = await rig.flushing()
        (drive,) = asyncio.all_tasks() - {asyncio.current_task(), flush}
        drive.cancel()
        with pytest.raises(NotSavedError):
            await flush
        rig.disk.gate.set()
        with pytest.raises(NotSavedError, match="cut off"):
            await rig.writer.flush()
        with pytest.raises(NotSavedError, match="cut off"):
            await rig.writer.close()
        assert rig.disk.batches == []

    asyncio.run(scenario())


def test_a_write_that_was_torn_down_before_it_began_is_made_by_the_next_flush():
    async def scenario():
        rig = Rig()
        answered_step(rig.log)
        result(rig.log)
        await asyncio.sleep(0)
        (drive,) = asyncio.all_tasks() - {asyncio.current_task()}
        drive.cancel()
        await asyncio.wait({drive})
        await rig.writer.flush()
        assert rig.sizes() == [4]

    asyncio.run(scenario())


# --- many tasks -------------------------------------------------------------------------------------------------


class Busy(Disk):
    """A disk whose appends take as many ticks, and fail as often, as a script says."""

    def __init__(self, script):
        super().__init__()
        self.script = list(script)

    async def append(self, entries, expected_seq):
        ticks, fails = self.script.pop(0) if self.script else (0, False)
        for _ in range(ticks):
            await asyncio.sleep(0)
        self.faults = [FULL if fails else None]
        await super().append(entries, expected_seq)


async def worker(log, writer, disk, acts):
    """One task of a session. A flush that returns proves that its events are on disk."""
    for act in acts:
        if act == "append":
            note(log)
        elif act == "tick":
            await asyncio.sleep(0)
        else:
            target = log.fold.next_seq
            waiter = asyncio.create_task(writer.flush())
            if act == "cancel":
                await asyncio.sleep(0)
                waiter.cancel()
            with contextlib.suppress(NotSavedError, asyncio.CancelledError):
                await waiter
                assert len(disk.events) >= target


acts = st.lists(st.sampled_from(["append", "append", "flush", "cancel", "tick"]), max_size=12)


@settings(max_examples=100, deadline=None)
@given(st.lists(acts, min_size=1, max_size=4), st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=12))
def test_however_tasks_interleave_the_disk_holds_a_prefix_and_nobody_hangs(tasks, script):
    async def scenario():
        disk, log = Busy(script), new_log()
        writer = Writer(disk, log, window_ms=0)
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            for each in tasks:
                group.create_task(worker(log, writer, disk, each))
        disk.script = []
        with contextlib.suppress(NotSavedError):  # a write that is still in flight may yet fail
            await writer.flush()
        await writer.close()
        assert disk.events == list(log.events())

    asyncio.run(scenario())
