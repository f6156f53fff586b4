"""The writer when the disk fails or fills: who is told, what is kept, and when it tries again."""

import asyncio
import contextlib

import pytest
from tests.journal.rig import FULL, Disk, Rig, new_log, note

from fencepost.errors import NoSpaceError, NotSavedError
from fencepost.journal.writer import Writer

# --- failure ----------------------------------------------------------------------------------------------------


def test_a_failed_flush_names_session_events_cause_and_what_to_do():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [FULL]
        rig.note()
        rig.note()
        with pytest.raises(NotSavedError) as caught:
            await rig.writer.flush()
        assert str(caught.value) == "session s1: events 0 to 1 are not saved: no space left on /disk"
        assert caught.value.next_act == NoSpaceError.next_act
        assert caught.value.__cause__ is FULL
        assert rig.writer.watermark == -1

    asyncio.run(scenario())


def test_a_failed_batch_goes_out_in_order_with_what_came_later():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [FULL, FULL]
        for _ in range(2):
            rig.note()
            with pytest.raises(NotSavedError):
                await rig.writer.flush()
        rig.note()
        await rig.writer.flush()
        assert rig.sizes() == [3]
        assert rig.disk.events == list(rig.log.events())

    asyncio.run(scenario())


def test_clients_are_told_once_when_saving_stops_and_once_when_it_goes_on():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [FULL, FULL, None, FULL]
        told = []
        for _ in range(5):
            rig.note()
            with contextlib.suppress(NotSavedError):
                await rig.writer.flush()
            told.append(list(rig.states))
        broken, again = rig.states[0], rig.states[2]
        assert isinstance(broken, NotSavedError)
        assert broken.__cause__ is FULL
        assert told == [[broken], [broken], [broken, None], [broken, None, again], [broken, None, again, None]]
        assert rig.writer.problem is None

    asyncio.run(scenario())


def test_the_next_event_tries_again_without_a_flush():
    async def scenario():
        rig = Rig(window_ms=1)
        rig.disk.faults = [FULL]
        rig.note()
        assert await rig.disk.ended.get() == 1
        rig.note()
        assert await rig.disk.ended.get() == 2
        assert rig.writer.watermark == 1

    asyncio.run(scenario())


def test_a_flush_is_not_failed_by_a_write_that_did_not_cover_it():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [FULL]
        rig.disk.gate.clear()
        rig.note()
        first = await rig.flushing()
        rig.note()
        second = asyncio.create_task(rig.writer.flush())
        await asyncio.sleep(0)
        rig.disk.gate.set()
        with pytest.raises(NotSavedError):
            await first
        await second
        assert rig.sizes() == [2]

    asyncio.run(scenario())


def test_every_flush_that_shared_a_failed_write_gets_an_error_of_its_own():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [FULL]
        rig.note()
        one, two = await asyncio.gather(rig.writer.flush(), rig.writer.flush(), return_exceptions=True)
        assert isinstance(one, NotSavedError)
        assert isinstance(two, NotSavedError)
        assert one is not two

    asyncio.run(scenario())


def test_a_bug_in_a_store_fails_the_flush_instead_of_hanging_it():
    async def scenario():
        rig = Rig()
        rig.disk.faults = [KeyError("oops")]
        rig.note()
        with pytest.raises(NotSavedError, match="KeyError: 'oops'") as caught:
            await rig.writer.flush()
        assert caught.value.next_act == NotSavedError.next_act
        await rig.writer.flush()
        assert rig.writer.watermark == 0

    asyncio.run(scenario())


def test_a_listener_that_raises_does_not_stop_the_writing():
    async def scenario():
        heard = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["exception"]))
        disk, log = Disk(), new_log()
        disk.faults = [FULL]

        def listener(_):
            raise RuntimeError("listener")

        writer = Writer(disk, log, on_state=listener)
        writer.on_watermark(listener)
        note(log)
        with pytest.raises(NotSavedError):
            await writer.flush()
        await writer.flush()
        assert [str(error) for error in heard] == ["listener"] * 3
        assert writer.watermark == 0

    asyncio.run(scenario())


# --- room -------------------------------------------------------------------------------------------------------


def test_there_is_room_until_the_bound():
    async def scenario():
        rig = Rig(bound=200)
        rig.note()
        with pytest.raises(StopIteration):
            rig.writer.room().send(None)

    asyncio.run(scenario())


def test_past_the_bound_the_loop_waits_until_its_bytes_are_written():
    async def scenario():
        rig = Rig(bound=200)
        rig.disk.gate.clear()
        rig.note("y" * 300)
        room = asyncio.create_task(rig.writer.room())
        await rig.disk.began.get()
        assert not room.done()
        rig.disk.gate.set()
        await room
        assert rig.writer.pending_bytes == 0

    asyncio.run(scenario())


def test_past_the_bound_on_a_full_disk_the_loop_is_told():
    async def scenario():
        rig = Rig(bound=200)
        rig.disk.faults = [FULL]
        rig.note("y" * 300)
        with pytest.raises(NotSavedError):
            await rig.writer.room()
        await rig.writer.room()
        assert rig.writer.watermark == 0

    asyncio.run(scenario())
