"""The writer on good days: what a flush and a window write, where it begins, and how it ends."""

import asyncio
import contextlib

import pytest
from tests.journal.rig import FULL, HOUR, Disk, Rig, answered_step, new_log, note, result

from fencepost.core import events as ev
from fencepost.errors import NotSavedError, PoisonedError
from fencepost.journal.writer import Writer

# --- flush ------------------------------------------------------------------------------------------------------


def test_what_was_appended_is_durable_when_flush_returns():
    async def scenario():
        rig = Rig()
        first, second = rig.note(), rig.note()
        assert rig.writer.watermark == -1
        await rig.writer.flush()
        assert rig.disk.events == [first, second]
        assert rig.writer.watermark == 1
        assert rig.writer.pending_bytes == 0

    asyncio.run(scenario())


def test_a_flush_with_nothing_to_do_returns_at_once_and_writes_nothing():
    async def scenario():
        rig = Rig()
        with pytest.raises(StopIteration):
            rig.writer.flush().send(None)
        rig.note()
        await rig.writer.flush()
        with pytest.raises(StopIteration):
            rig.writer.flush().send(None)
        assert rig.sizes() == [1]

    asyncio.run(scenario())


def test_all_appends_and_flushes_of_one_tick_share_one_write():
    async def gate(rig, text):
        rig.note(text)
        await rig.writer.flush()

    async def scenario():
        rig = Rig()
        await asyncio.gather(*(gate(rig, str(number)) for number in range(8)))
        assert rig.sizes() == [8]

    asyncio.run(scenario())


def test_a_result_shares_the_write_of_the_gate_that_follows_when_its_task_has_ended():
    async def call(log):
        result(log)

    async def scenario():
        rig = Rig()
        answered_step(rig.log)
        await rig.writer.flush()
        await asyncio.wait({asyncio.create_task(call(rig.log))})
        rig.log.append(ev.StepEnd, turn=1, step=1)
        await rig.writer.flush()
        assert rig.sizes() == [3, 2]

    asyncio.run(scenario())


def test_flushes_that_the_write_in_flight_covers_share_it():
    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        rig.note()
        first = await rig.flushing()
        second = asyncio.create_task(rig.writer.flush())
        await asyncio.sleep(0)
        rig.disk.gate.set()
        await asyncio.gather(first, second)
        assert rig.sizes() == [1]

    asyncio.run(scenario())


def test_a_flush_does_not_wait_for_events_that_come_after_it():
    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        rig.note()
        flush = await rig.flushing()
        rig.note()
        rig.disk.gate.set()
        await flush
        assert (rig.writer.watermark, rig.sizes()) == (0, [1])

    asyncio.run(scenario())


def test_a_flush_that_the_write_in_flight_does_not_cover_gets_the_next_one():
    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        rig.note()
        first = await rig.flushing()
        rig.note()
        rig.note()
        second = asyncio.create_task(rig.writer.flush())
        await asyncio.sleep(0)
        rig.disk.gate.set()
        await asyncio.gather(first, second)
        assert rig.sizes() == [1, 2]

    asyncio.run(scenario())


def test_a_backlog_goes_out_as_one_batch_with_its_chunks_in_runs():
    async def scenario():
        rig = Rig(bound=1 << 30)
        rig.log.append(ev.TurnStart, turn=1, gates=(), policy="p")
        rig.log.append(ev.StepStart, turn=1, step=1)
        for number in range(10_000):
            rig.log.append(ev.AssistantChunk, turn=1, step=1, delta=f"{number} ")
        await rig.writer.flush()
        assert rig.disk.events == list(rig.log.events())
        (batch,) = rig.disk.batches
        assert [type(entry) for entry in batch] == [ev.TurnStart, ev.StepStart, *[ev.ChunkRun] * 3]

    asyncio.run(scenario())


def test_a_listener_hears_the_watermark_move_before_the_flush_returns():
    async def scenario():
        rig, heard = Rig(), []
        leave = rig.writer.on_watermark(heard.append)
        rig.disk.faults = [None, FULL]
        for _ in range(3):
            rig.note()
            with contextlib.suppress(NotSavedError):
                await rig.writer.flush()
            heard.append("flushed")
        leave()
        rig.note()
        await rig.writer.flush()
        assert heard == [0, "flushed", "flushed", 2, "flushed"]

    asyncio.run(scenario())


# --- without a flush --------------------------------------------------------------------------------------------


def test_events_are_written_when_their_window_ends():
    async def scenario():
        rig = Rig(window_ms=1)
        rig.note()
        rig.note()
        assert await rig.disk.ended.get() == 2
        rig.note()
        assert await rig.disk.ended.get() == 1
        assert rig.writer.watermark == 2

    asyncio.run(scenario())


def test_an_event_that_comes_during_a_write_is_written_when_its_own_window_ends():
    async def scenario():
        rig = Rig(window_ms=1)
        rig.disk.gate.clear()
        rig.note()
        await rig.disk.began.get()
        rig.note()
        rig.disk.gate.set()
        assert [await rig.disk.ended.get(), await rig.disk.ended.get()] == [1, 1]

    asyncio.run(scenario())


def test_a_result_does_not_wait_for_the_window():
    async def scenario():
        rig = Rig(window_ms=HOUR)
        answered_step(rig.log)
        done = result(rig.log)
        assert await rig.disk.ended.get() == 4
        assert rig.disk.events[-1] == done

    asyncio.run(scenario())


def test_a_result_that_comes_during_a_write_is_written_directly_after_it():
    async def scenario():
        rig = Rig(window_ms=HOUR)
        answered_step(rig.log)
        rig.disk.gate.clear()
        flush = await rig.flushing()
        result(rig.log)
        rig.disk.gate.set()
        await flush
        assert [await rig.disk.ended.get(), await rig.disk.ended.get()] == [3, 1]

    asyncio.run(scenario())


def test_a_window_survives_the_gates_that_come_before_its_end():
    """A timer that a gate made superfluous must not be the last one."""

    async def scenario():
        rig = Rig(window_ms=20)
        for _ in range(3):
            rig.note()
            await rig.writer.flush()
            assert await rig.disk.ended.get() == 1
        rig.note()
        assert await rig.disk.ended.get() == 1
        assert rig.writer.watermark == 3

    asyncio.run(scenario())


# --- opening ----------------------------------------------------------------------------------------------------


def stored_events(count):
    log = new_log()
    for _ in range(count):
        note(log)
    return list(log.entries)


def test_a_resumed_session_goes_on_behind_what_is_stored():
    async def scenario():
        disk = Disk(stored_events(3))
        log = new_log(disk.stored.entries)
        writer = Writer(disk, log)
        assert writer.watermark == 2
        await writer.flush()
        note(log)
        await writer.flush()
        assert [len(batch) for batch in disk.batches] == [1]
        assert writer.watermark == 3

    asyncio.run(scenario())


def test_stored_events_that_the_store_never_acknowledged_are_under_the_watermark_only_after_an_append():
    async def scenario():
        disk = Disk(stored_events(3), watermark=0)
        log = new_log(disk.stored.entries)
        writer = Writer(disk, log)
        assert writer.watermark == 0
        note(log)
        await writer.flush()
        assert writer.watermark == 3

    asyncio.run(scenario())


def test_the_seed_of_a_fork_is_pending_from_the_start():
    async def scenario():
        disk = Disk()
        seed = stored_events(3)
        writer = Writer(disk, new_log(seed))
        await writer.flush()
        assert disk.events == seed

    asyncio.run(scenario())


def test_a_log_that_does_not_begin_with_what_is_stored_is_refused():
    async def scenario():
        with pytest.raises(ValueError, match="does not begin with what is stored"):
            Writer(Disk(stored_events(3)), new_log(stored_events(2)))

    asyncio.run(scenario())


# --- close ------------------------------------------------------------------------------------------------------


def test_close_writes_what_is_pending_and_nothing_after():
    async def scenario():
        rig = Rig(window_ms=1)
        rig.note()
        await rig.writer.close()
        assert rig.sizes() == [1]
        rig.note()
        assert rig.writer.pending_bytes == 0
        with pytest.raises(NotSavedError, match="session s1: events 1 to 1 are not saved: the session is closed"):
            await rig.writer.flush()
        await rig.writer.close()
        assert rig.sizes() == [1]

    asyncio.run(scenario())


def test_close_waits_for_the_write_in_flight():
    async def scenario():
        rig = Rig()
        rig.disk.gate.clear()
        rig.note()
        flush = await rig.flushing()
        rig.note()
        close = asyncio.create_task(rig.writer.close())
        again = asyncio.create_task(rig.writer.close())
        await asyncio.sleep(0)
        assert not again.done()
        rig.disk.gate.set()
        await asyncio.gather(flush, close, again)
        assert rig.sizes() == [1, 1]

    asyncio.run(scenario())


def test_a_close_that_cannot_save_says_so_and_is_closed_all_the_same():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [PoisonedError("the writer is poisoned")]
        rig.note()
        with pytest.raises(NotSavedError, match="poisoned"):
            await rig.writer.close()
        with pytest.raises(NotSavedError, match="closed"):
            await rig.writer.flush()
        assert rig.disk.batches == []
        assert repr(rig.writer).startswith("<Writer s1 | closed | ")

    asyncio.run(scenario())


def test_its_repr_says_whether_the_session_is_saved():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [FULL]
        rig.note()
        assert repr(rig.writer).startswith("<Writer s1 | saved | ")
        with pytest.raises(NotSavedError):
            await rig.writer.flush()
        assert repr(rig.writer).startswith("<Writer s1 | not saved | ")

    asyncio.run(scenario())
