"""The journal of a live session: opening is reading, repair is done once, and a refused resume touches nothing."""

import asyncio

import pytest
from tests.runtime.rig import Agent, TouchyStore, call, calls, identity, run
from tests.stores.sample import header, log_bytes, turn_with_call

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.codec import CORE
from fencepost.core.lifecycle import State
from fencepost.errors import (
    ClosedError,
    DamagedError,
    HeldError,
    NotSavedError,
    SessionNotFoundError,
    UndeclaredEventError,
    UnsupportedError,
)
from fencepost.journal.inspect import inspect
from fencepost.journal.session import Identity, Journal
from fencepost.plugins.approval import Approval
from fencepost.runtime.toolmaker import tool
from fencepost.stores.jsonl import JsonlStore

LATER = 1_800_000_000_000


def later():
    """An identity whose clock is years ahead."""
    return Identity("later", lambda: LATER, identity().fresh)


async def resume(root, session="s1", who=None):
    return await Journal.resume(JsonlStore(root), session, who or later(), CORE)


def put(root, content, session="s1"):
    """Leave a log as some process left it."""
    directory = root / session
    directory.mkdir(parents=True, mode=0o700)
    (directory / "log.jsonl").write_bytes(content)


def files(root):
    """Everything that a session is, to the byte; the lock file is text for people."""
    return {path: path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file() and path.name != "lock"}


# --- repair -----------------------------------------------------------------------------------------------------


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "a tree"


@tool
async def act() -> str:
    """Act."""
    return "done"


@tool(effect="idempotent")
async def put_it() -> str:
    """Put."""
    return "done"


@pytest.fixture(scope="module")
def whole():
    """The events of a turn with every kind of call, and of the beginning of another."""

    async def scenario():
        answers = [
            calls(call("act"), call("look"), call("look"), call("no_such")),
            calls(call("look")),
            "Done.",
            "Yes.",
        ]
        async with Agent(answers, tools=[act, look, put_it], plugins=[Approval("read")]) as agent:
            await agent.session.prompt("go")
            await agent.session.prompt("and?")
            return list(agent.log.events())

    return run(scenario)


def test_a_log_that_ends_anywhere_is_closed_once(whole, tmp_path):
    """Every prefix: what resume does, that it does it once, and that looking before told the same."""

    async def scenario():
        for length in range(1, len(whole) + 1):
            root = tmp_path / str(length)
            put(root, log_bytes(whole[:length]))
            before = files(root)
            seen = await inspect(JsonlStore(root), "s1")
            assert files(root) == before, "law 7"
            journal, recovery = await resume(root)
            fold, last = journal.log.fold, whole[length - 1]
            assert fold.state is State.IDLE
            assert not fold.owed
            added = list(journal.log.events(length))
            if seen.state == "clean":
                assert added == []
                assert files(root) == before, "opening is reading"
            else:
                owner, *closers = added
                assert (type(owner), owner.epoch, owner.resumed, owner.time) == (ev.SessionOwner, 2, True, LATER)
                assert {one.time for one in closers} == {last.time}
                assert all(one.synthetic for one in closers)
                assert closers[-1].reason == "interrupted"
                assert recovery.closed == len(closers)
                assert recovery.interrupted == fold.turn.number
            told = {item.call_id: (item.verdict, item.code) for item in seen.calls}
            written = {item.call.call_id: (item.verdict, item.code) for item in v.verdicts(fold)}
            assert told == written
            await journal.close()
            after = files(root)
            again, nothing = await resume(root)
            await again.close()
            assert files(root) == after, "doing it twice is doing it once"
            assert (nothing.interrupted, nothing.closed) == (None, 0)

    run(scenario)


def test_repair_is_durable_before_resume_returns(whole, tmp_path):
    async def scenario():
        put(tmp_path, log_bytes(whole[:5]))
        journal, _ = await resume(tmp_path)
        assert journal.watermark == journal.log.fold.next_seq - 1
        assert files(tmp_path)[tmp_path / "s1" / "log.jsonl"].count(b'"interrupted"') == 1
        await journal.close()

    run(scenario)


def test_the_torn_tail_is_set_aside_under_the_lock_before_the_first_append(tmp_path):
    async def scenario():
        torn = b'{"type":"tool/call","seq":5,"time":1,"turn":1,"step":1,"call_id":"call-1","na'
        put(tmp_path, log_bytes(turn_with_call()) + torn)
        before = files(tmp_path)
        seen = await inspect(JsonlStore(tmp_path), "s1")
        assert (seen.state, seen.tail_bytes) == ("interrupted", len(torn))
        assert [item.verdict for item in seen.calls] == ["outcome_unknown"]
        assert files(tmp_path) == before
        journal, recovery = await resume(tmp_path)
        assert recovery.set_aside == len(torn)
        assert [item.verdict for item in recovery.calls] == ["outcome_unknown"]
        assert journal.log.fold.owner.set_aside == len(torn)
        assert journal.log.fold.calls["call-1"].result.code == v.TOOL_OUTCOME_UNKNOWN
        await journal.close()
        kept = files(tmp_path)
        assert torn in kept.values(), "moved, not lost"
        assert torn not in kept[tmp_path / "s1" / "log.jsonl"]
        again, nothing = await resume(tmp_path)
        assert nothing.set_aside == 0
        await again.close()
        assert files(tmp_path) == kept

    run(scenario)


def test_evidence_that_an_earlier_owner_set_aside_still_counts(tmp_path):
    """Killed between setting the tail aside and repairing: the call that the tail names stays unknown (law 2)."""

    async def scenario():
        torn = b'{"type":"tool/call","seq":5,"time":1,"turn":1,"step":1,"call_id":"call-1","na'
        put(tmp_path, log_bytes(turn_with_call()) + torn)
        handle = await JsonlStore(tmp_path).own("s1")
        await handle.set_aside()
        await handle.release()
        journal, recovery = await resume(tmp_path)
        assert [(item.verdict, item.code) for item in recovery.calls] == [("outcome_unknown", v.TOOL_OUTCOME_UNKNOWN)]
        assert recovery.set_aside == 0
        assert journal.log.fold.calls["call-1"].result.code == v.TOOL_OUTCOME_UNKNOWN
        await journal.close()

    run(scenario)


# --- ownership --------------------------------------------------------------------------------------------------


def test_the_owner_is_written_before_the_first_append_and_never_on_opening(tmp_path):
    async def scenario():
        store = JsonlStore(tmp_path)
        journal = await Journal.create(store, "s1", "/", identity(), CORE)
        assert journal.log.entries == []
        assert await store.sessions() == []
        journal.append(ev.InputQueued, input_id="i1", target="turn", content=(ev.Text("hi"),))
        journal.append(ev.InputDropped, input_id="i1", reason="no")
        await journal.close()
        for epoch in (2, 3):
            journal, _ = await resume(tmp_path)
            await journal.close()
            journal, _ = await resume(tmp_path)
            journal.append(ev.ToolNote, call_id="c", text="x")
            await journal.close()
            owner = [one for one in journal.log.events() if isinstance(one, ev.SessionOwner)][-1]
            assert (owner.epoch, owner.resumed) == (epoch, True)

    run(scenario)


def test_an_append_that_is_refused_does_not_announce_the_owner():
    async def scenario():
        class Undeclared(ev.Event, frozen=True, tag="undeclared"):
            pass

        journal = await Journal.create(TouchyStore(), "s1", "/", identity(), CORE)
        with pytest.raises(UndeclaredEventError):
            journal.append(Undeclared)
        assert journal.log.entries == []
        await journal.close()
        with pytest.raises(ClosedError):
            journal.append(ev.ToolNote, call_id="c", text="x")

    run(scenario)


# --- refused, with nothing touched ------------------------------------------------------------------------------


def damaged():
    content = bytearray(log_bytes(turn_with_call()[:2], turn_with_call()[2:]))
    content[content.index(b"checkpoint")] ^= 1
    return bytes(content)


def illegal():
    entries = turn_with_call()
    return log_bytes([entries[0], *[type(one)(**{**fields(one), "seq": one.seq - 1}) for one in entries[2:]]])


def fields(event):
    return {name: getattr(event, name) for name in event.__struct_fields__}


def unknown_event():
    class Strange(ev.Event, frozen=True, tag="strange/thing"):
        pass

    return log_bytes([*turn_with_call(), Strange(5, 1)])


def newer():
    return log_bytes(turn_with_call()).replace(b'"format":1', b'"format":9')


REFUSED = {
    "damaged": (damaged, DamagedError, "damaged"),
    "no header": (lambda: b"\0" * 100, DamagedError, "damaged"),
    "empty": (lambda: b"", DamagedError, "damaged"),
    "an event that may not stand there": (illegal, DamagedError, "damaged"),
    "an event of nobody": (unknown_event, UnsupportedError, "unsupported"),
    "a newer format": (newer, (UnsupportedError, DamagedError), None),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_not_be_continued_is_refused_and_untouched(case, tmp_path):
    async def scenario():
        make, error, state = REFUSED[case]
        put(tmp_path, make())
        before = files(tmp_path)
        for _ in range(2):
            with pytest.raises(error, match="s1"):
                await resume(tmp_path)
            assert files(tmp_path) == before
        seen = await inspect(JsonlStore(tmp_path), "s1")
        assert state is None or seen.state == state
        assert seen.owner is None, "the lock is free again"
        assert seen.problem
        handle = await JsonlStore(tmp_path).own("s1")
        await handle.release()
        assert files(tmp_path) == before

    run(scenario)


def test_a_session_that_is_held_or_not_there(tmp_path):
    async def scenario():
        put(tmp_path, log_bytes(turn_with_call()))
        journal, _ = await resume(tmp_path)
        while not files(tmp_path).get(tmp_path / "s1" / "watermark"):  # noqa: ASYNC110
            await asyncio.sleep(0)  # nobody waits for the hint that the owner's thread leaves
        before = files(tmp_path)
        with pytest.raises(HeldError):
            await resume(tmp_path)
        with pytest.raises(SessionNotFoundError):
            await resume(tmp_path, "s2")
        assert files(tmp_path) == before
        await journal.close()

    run(scenario)


def test_a_resume_that_cannot_save_its_repair_frees_the_session():
    async def scenario():
        store = TouchyStore()
        handle = await store.create(header())
        await handle.append(turn_with_call(), 0)
        await handle.release()
        full = store.fail()
        with pytest.raises(NotSavedError):
            await Journal.resume(store, "s1", later(), CORE)
        assert store.released == ["s1", "s1"]
        stored = await store.read("s1")
        assert (stored.owner, len(stored.entries)) == (None, 5)
        full.off()
        journal, recovery = await Journal.resume(store, "s1", later(), CORE)
        assert recovery.interrupted == 1
        await journal.close()

    run(scenario)


def test_a_resume_that_is_cancelled_frees_the_session():
    async def scenario():
        store = TouchyStore()
        handle = await store.create(header())
        await handle.append(turn_with_call(), 0)
        await handle.release()
        still = store.hold()
        resuming = asyncio.create_task(Journal.resume(store, "s1", later(), CORE))
        await still.reached.wait()
        resuming.cancel()
        still.off()
        with pytest.raises(asyncio.CancelledError):
            await resuming
        assert (await store.read("s1")).owner is None

    run(scenario)


# --- proofs -----------------------------------------------------------------------------------------------------


def test_a_clearance_is_given_for_what_is_durable_only():
    async def scenario():
        store = TouchyStore()
        journal = await Journal.create(store, "s1", "/", identity(), CORE)
        event = journal.append(ev.ToolNote, call_id="c", text="x")
        with pytest.raises(NotSavedError):
            journal.proof(event)
        full = store.fail()
        with pytest.raises(NotSavedError):
            await journal.clear(event)
        full.off()
        clearance = await journal.clear(event)
        assert (clearance.seq, clearance.watermark) == (event.seq, event.seq)
        assert journal.proof(event) == clearance
        await journal.close()

    run(scenario)


def test_listeners_hear_of_the_first_failure_and_of_the_recovery():
    async def scenario():
        store, heard = TouchyStore(), []
        journal = await Journal.create(store, "s1", "/", identity(), CORE)
        journal.listen(heard.append)
        full = store.fail()
        for _ in range(3):
            journal.append(ev.ToolNote, call_id="c", text="x")
            with pytest.raises(NotSavedError):
                await journal.flush()
        assert journal.unsaved is not None
        full.off()
        await journal.flush()
        await journal.close()
        assert [type(one) for one in heard] == [NotSavedError, type(None)]
        assert journal.unsaved is None

    run(scenario)
