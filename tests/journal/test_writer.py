"""The writer over a handle that is honest, and slow or broken on demand: gates, windows, failures, cancels, the end."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core import events as ev
from fencepost.core.codec import CORE, expand
from fencepost.core.log import Log
from fencepost.errors import NoSpaceError, NotSavedError, PoisonedError
from fencepost.journal.writer import Writer
from fencepost.stores.base import StoredLog

HEADER = ev.Header("s1", 0, "/", 1)
FULL = NoSpaceError("no space left on /disk")
HOUR = 3_600_000


class Disk:
    """A handle that keeps what it is given, and checks the caller's half of the contract.

    `gate` holds every append until it is set; `faults` are raised in turn, one an append (None: no fault).
    """

    def __init__(self, entries=(), watermark=None):
        watermark = (entries[-1].seq if entries else -1) if watermark is None else watermark
        self.stored = StoredLog(session="s1", header=HEADER, entries=tuple(entries), watermark=watermark)
        self.events = list(entries)
        self.batches = []
        self.faults = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.began = asyncio.Queue()
        self.ended = asyncio.Queue()
        self.busy = False

    async def append(self, entries, expected_seq):
        assert not self.busy, "two appends in flight"
        assert expected_seq == len(self.events)
        batch = [event for entry in entries for event in expand(entry)]
        assert [event.seq for event in batch] == list(range(expected_seq, expected_seq + len(batch)))
        self.busy = True
        self.began.put_nowait(len(batch))
        try:
            await self.gate.wait()
            fault = self.faults.pop(0) if self.faults else None
            if fault is not None:
                raise fault
            self.batches.append(list(entries))
            self.events += batch
        finally:
            self.busy = False
            self.ended.put_nowait(len(batch))

    async def set_aside(self):
        return 0

    async def release(self):
        return None


def new_log(entries=()):
    return Log(HEADER, lambda: 1000, CORE, entries)


def note(log, text="x"):
    return log.append(ev.ToolNote, call_id="c", text=text)


class Rig:
    """A log, a writer and a disk, in that order of ownership."""

    def __init__(self, **options):
        self.disk = Disk()
        self.log = new_log()
        self.states = []
        self.writer = Writer(self.disk, self.log, on_state=self.states.append, **{"window_ms": HOUR, **options})

    def note(self, text="x"):
        return note(self.log, text)

    def sizes(self):
        return [len(batch) for batch in self.disk.batches]

    async def flushing(self):
        """A flush that has been called, and the write that it asked for has begun."""
        task = asyncio.create_task(self.writer.flush())
        await self.disk.began.get()
        return task


def answered_step(log):
    """One step whose answer asks for the call c1."""
    log.append(ev.TurnStart, turn=1, gates=("tool",), policy="p")
    log.append(ev.StepStart, turn=1, step=1)
    content = (ev.CallRequest("c1", "f", "{}"),)
    log.append(ev.AssistantMessage, turn=1, step=1, message_id="m", content=content, finish="tool_calls")


def result(log):
    return log.append(ev.ToolResult, turn=1, step=1, call_id="c1", content=())


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
