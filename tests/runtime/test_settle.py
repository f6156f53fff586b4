"""Asking the tools after a crash: each kind of answer, in each position, and whatever else a tool may do instead."""

import asyncio
import socket
import subprocess
import threading
import time
from pathlib import Path

import msgspec
import pytest
from tests.runtime.rig import TouchyStore, balanced, identity, run
from tests.runtime.settling import STORES, Left, digest, leave, results, runtime, store_at, teller

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.codec import CORE
from fencepost.core.projection import request
from fencepost.errors import HeldError, NotSavedError
from fencepost.journal.session import Journal
from fencepost.runtime import settle as settling
from fencepost.runtime.settlement import Completed, DidNotRun, StillRunning, Unknown
from fencepost.runtime.tools import ToolReply


class Survivor:
    """Something that lives on; says what it is told to when it is waited for, or ended."""

    def __init__(self, then=None):
        self.then = then or Completed("it ended", "exit code 0")
        self.asked = []

    async def wait(self):
        self.asked.append("wait")
        return self.then

    async def end(self):
        self.asked.append("end")
        return self.then


async def resumed(store, *tools, **options):
    """The verdicts and results after a resume, by call id, and the log."""
    async with runtime(store, *tools) as agent:
        session = await agent.resume("s1", **options)
        log = session.journal.log
        assert balanced(log)
        request(log)
        assert session.journal.watermark == log.fold.next_seq - 1
        found = {item.call.call_id: item for item in session.recovery.calls}
        return found, {name: record.result for name, record in log.fold.calls.items()}


async def one(said, *, left=None, options=None, **more):
    """What becomes of one call about which its tool says this."""
    store = TouchyStore()
    await leave(store, left or Left("c1"))
    seen = await runtime_preview(store, said)
    found, made = await resumed(store, teller(lambda _: said), **(options or {}))
    return found["c1"], made["c1"], seen


async def runtime_preview(store, said):
    async with runtime_keeping(store, teller(lambda _: said)) as agent:
        (view,) = (await agent.inspect("s1", settle=True)).calls
        return view


class runtime_keeping:  # noqa: N801 - reads as a block
    """A runtime whose store outlives it."""

    def __init__(self, store, *tools):
        self._runtime = runtime(store, *tools)

    async def __aenter__(self):
        return self._runtime

    async def __aexit__(self, *exc):
        return None


# --- each kind of settlement ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", STORES)
def test_what_was_established_is_the_result_and_says_so(kind, tmp_path):
    async def scenario():
        store = store_at(kind, tmp_path)
        await leave(store, Left("c1"))
        found, made = await resumed(store, teller(lambda _: Completed("paid 5", "receipt 17 of the bank")))
        assert (found["c1"].verdict, found["c1"].settled_by) == ("completed", "pay")
        result = made["c1"]
        assert (result.settled_by, result.evidence) == ("pay", "receipt 17 of the bank")
        assert (result.synthetic, result.is_error, result.code) == (False, False, "")
        text = ev.text_of(result.content)
        assert text.endswith("\npaid 5")
        assert "stablished after a crash by pay: receipt 17 of the bank" in text

    run(scenario)


def test_a_call_that_finished_badly_keeps_its_error():
    async def scenario():
        said = Completed(ToolReply("exit code 3", is_error=True, code="EXIT"), "receipt")
        found, result, _ = await one(said)
        assert (found.verdict, result.code, result.is_error, result.settled_by) == ("completed", "EXIT", True, "pay")

    run(scenario)


def test_a_call_that_had_no_effect_may_be_made_again():
    async def scenario():
        found, result, _ = await one(DidNotRun("no payment under this key"))
        assert (found.verdict, found.code, found.evidence) == (
            "not_started",
            v.TOOL_NOT_STARTED,
            "no payment under this key",
        )
        assert result.settled_by == "pay"
        assert "no payment under this key" in ev.text_of(result.content)
        assert "Retry it" in ev.text_of(result.content)

    run(scenario)


def test_nothing_known_leaves_what_repair_says():
    async def scenario():
        found, result, _ = await one(Unknown())
        assert (found.verdict, result.settled_by, result.evidence) == ("outcome_unknown", "", "")
        assert result.synthetic

    run(scenario)


def test_what_little_is_known_is_told():
    async def scenario():
        found, result, _ = await one(Unknown("the file is neither as before nor as after"))
        assert (found.verdict, result.settled_by) == ("outcome_unknown", "")
        assert result.evidence == "the file is neither as before nor as after"
        text = ev.text_of(result.content)
        assert "neither as before nor as after" in text
        assert "Outcome unknown" in text

    run(scenario)


def test_a_survivor_is_left_alone_if_nobody_says_else():
    async def scenario():
        survivor = Survivor()
        found, result, _ = await one(StillRunning(survivor, "process 17, since 12:00"))
        assert (found.verdict, result.code, result.settled_by) == ("outcome_unknown", v.TOOL_OUTCOME_UNKNOWN, "")
        assert result.evidence == "still running: process 17, since 12:00"
        assert "still running: process 17" in ev.text_of(result.content)
        assert survivor.asked == []

    run(scenario)


@pytest.mark.parametrize("running", ["wait", "end"])
@pytest.mark.parametrize(
    ("then", "verdict", "by", "part"),
    [
        (Completed("out", "exit code 0"), "completed", "pay", "exit code 0"),
        (DidNotRun("it ended in front of its effect"), "not_started", "pay", "in front of its effect"),
        (Unknown("killed by signal 9"), "outcome_unknown", "", "process 17); killed by signal 9"),
        (Unknown(), "outcome_unknown", "", "process 17"),
        (StillRunning(None, "process 18"), "outcome_unknown", "", "still running: process 18"),
        ("nonsense", "outcome_unknown", "", "process 17; pay gave str, which is no settlement"),
    ],
)
def test_a_survivor_is_waited_for_or_ended(running, then, verdict, by, part):
    async def scenario():
        survivor, told = Survivor(then), []
        said = StillRunning(survivor, "process 17")
        found, result, _ = await one(said, options={"running": running, "notify": told.append})
        assert survivor.asked == [running]
        assert (found.verdict, result.settled_by) == (verdict, by)
        assert part in result.evidence
        assert "process 17" in told[0].text
        assert ("waiting for" if running == "wait" else "ending") in told[0].text

    run(scenario)


@pytest.mark.parametrize("running", ["wait", "end"])
def test_a_survivor_that_cannot_be_spoken_to_is_still_running(running):
    async def scenario():
        found, result, _ = await one(StillRunning(object(), "process 17"), options={"running": running})
        assert found.verdict == "outcome_unknown"
        assert result.evidence.startswith("still running: process 17")
        assert "AttributeError" in result.evidence

    run(scenario)


def test_one_that_will_not_end_is_still_running():
    class Stubborn(Survivor):
        async def end(self):
            await asyncio.Event().wait()

    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1"))
        journal, _ = await Journal.resume(
            store,
            "s1",
            identity(),
            CORE,
            settle=lambda journal, evidence: settling.settle_calls(journal, evidence, how),
        )
        result = journal.log.fold.calls["c1"].result
        assert result.code == v.TOOL_OUTCOME_UNKNOWN
        assert result.evidence.startswith("still running: process 17; pay did not say within")
        await journal.close()

    async def settle(call):
        return StillRunning(Stubborn(), "process 17")

    tool = teller(settle)
    how = settling.Settling({"pay": tool}, Path("/nowhere"), "end", limit=0.05)
    run(scenario)


# --- whatever a tool does -----------------------------------------------------------------------------------------


class Rude(BaseException):
    """No Exception, and no exit."""


class Unshowable:
    def __str__(self):
        raise ValueError("no")

    __repr__ = __str__


def raising(error):
    def settle(call):
        raise error

    return settle


def later(settle):
    """The same as an async settle."""

    async def answer(call):
        await asyncio.sleep(0)
        return settle(call)

    return answer


def handing_on(settle):
    """The same as a plain function that gives something to await."""
    return lambda call: later(settle)(call)


WAYS = [lambda settle: settle, later, handing_on]


@pytest.mark.parametrize("way", WAYS, ids=["plain", "async", "awaitable"])
def test_a_plain_settle_and_an_async_one_are_asked_alike(way):
    async def scenario():
        asked = []

        def settle(call):
            asked.append(call)
            return Completed({"paid": 5}, "receipt")

        store = TouchyStore()
        await leave(store, Left("c1", effect="idempotent"), cwd="/tmp")
        found, made = await resumed(store, teller(way(settle)))
        assert found["c1"].verdict == "completed"
        assert ev.text_of(made["c1"].content).endswith('{"paid":5}')
        (call,) = asked
        assert (call.call_id, call.session_id, call.name) == ("c1", "s1", "pay")
        assert (call.arguments, call.effect, str(call.cwd)) == ({"text": "hello"}, "idempotent", "/tmp")
        assert call.let_go == 1_700_000_000_000
        assert call.files == store.files("s1")

    run(scenario)


@pytest.mark.parametrize("way", WAYS, ids=["plain", "async", "awaitable"])
@pytest.mark.parametrize(
    ("error", "part"),
    [
        (ValueError("the bank is closed"), "ValueError: the bank is closed"),
        (TimeoutError("no route"), "TimeoutError: no route"),
        (SystemExit(3), "SystemExit"),
        (Rude("gone"), "Rude"),
        (asyncio.CancelledError(), "ancelled"),
        (StopIteration("x"), "StopIteration"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_one_that_raises_has_said_nothing_but_why(way, error, part):
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1"), Left("c2", name="ask"))
        other = teller(lambda _: Completed("fine", "seen"), name="ask")
        found, made = await resumed(store, teller(way(raising(error))), other)
        assert found["c1"].verdict == "outcome_unknown"
        assert part in made["c1"].evidence
        assert found["c2"].verdict == "completed", "one that fails takes nothing from the others"

    run(scenario)


@pytest.mark.parametrize(
    "said",
    [None, "yes", 1, ("Completed", 1), object(), Completed, ToolReply("x")],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_settlement_settles_nothing(said):
    async def scenario():
        found, result, view = await one(said)
        assert found.verdict == view.verdict == "outcome_unknown"
        assert "which is no settlement" in result.evidence

    run(scenario)


@pytest.mark.parametrize(
    ("said", "verdict", "evidence"),
    [
        (Completed("x\ud800y", "a\ud800b"), "completed", "a\ufffdb"),
        (DidNotRun("a\ud83d\ude00b"), "not_started", "a😀b"),
        (Unknown("a\udfffb"), "outcome_unknown", "a\ufffdb"),
        (StillRunning(None, "a\ud800b"), "outcome_unknown", "still running: a\ufffdb"),
        (Completed(b"\xff", 17), "completed", "17"),
        (Completed(None, None), "completed", ""),
        (DidNotRun(["why"]), "not_started", '["why"]'),
        (Unknown(Unshowable()), "outcome_unknown", "a Unshowable that cannot be shown (ValueError)"),
        (Completed(Unshowable(), "seen"), "completed", "seen"),
        (Completed("y", "e" * 5000), "completed", "e" * 499 + "…"),
    ],
    ids=range(10),
)
def test_odd_values_are_made_sound(said, verdict, evidence):
    async def scenario():
        found, result, view = await one(said)
        assert (found.verdict, result.evidence) == (verdict, evidence)
        assert (view.verdict, view.evidence) == (verdict, evidence)

    run(scenario)


@pytest.mark.parametrize(
    "reply",
    [ToolReply("the line was cut", unknown=True), ToolReply("cut", code=v.TOOL_OUTCOME_UNKNOWN)],
    ids=["unknown", "code"],
)
def test_a_result_that_says_unknown_establishes_nothing(reply):
    async def scenario():
        found, result, _ = await one(Completed(reply, "receipt"))
        assert (found.verdict, result.settled_by) == ("outcome_unknown", "")

    run(scenario)


@pytest.mark.parametrize("code", sorted(v.NOT_ENTERED))
def test_a_result_cannot_say_that_the_body_was_not_entered(code):
    async def scenario():
        found, result, _ = await one(Completed(ToolReply("x", is_error=True, code=code), "receipt"))
        assert (found.verdict, result.code, result.is_error) == ("completed", "TOOL_ERROR", True)

    run(scenario)


@pytest.mark.parametrize("stubborn", ["async", "deaf", "thread"])
def test_one_that_does_not_answer_in_time_has_said_nothing(stubborn):
    async def scenario():
        free, deaf = threading.Event(), asyncio.Event()

        async def stall(call):
            await deaf.wait()

        async def hear_nothing(call):
            while not deaf.is_set():
                try:
                    await deaf.wait()
                except asyncio.CancelledError:
                    continue

        settle = {"async": stall, "deaf": hear_nothing, "thread": lambda _: free.wait()}[stubborn]
        store = TouchyStore()
        await leave(store, Left("c1"))
        tool = teller(settle)
        case = settling.UnsettledCall("c1", "s1", "pay", {}, "write", None, None, None)
        said = await settling.ask(tool, case, 0.05)
        assert said == Unknown("pay did not say within 0.05 s what happened")
        free.set()
        deaf.set()

    run(scenario)


def test_calls_are_asked_about_side_by_side():
    async def scenario():
        barrier = threading.Barrier(3, timeout=10)

        def settle(call):
            barrier.wait()
            return Completed(call.call_id, "met the others")

        store = TouchyStore()
        await leave(store, Left("c1"), Left("c2"), Left("c3"))
        found, _ = await resumed(store, teller(settle))
        assert {item.verdict for item in found.values()} == {"completed"}

    run(scenario)


# --- positions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "verdict", "by"),
    [
        (Completed("it was paid", "bank"), "completed", "pay"),
        (DidNotRun("no payment"), "not_started", ""),
        (Unknown("the bank is closed"), "not_started", ""),
        (StillRunning(Survivor(), "process 17"), "outcome_unknown", ""),
        ("nonsense", "not_started", ""),
    ],
)
def test_a_call_that_was_not_let_go_stays_so_unless_something_of_it_lives_or_is_found(said, verdict, by):
    async def scenario():
        found, result, view = await one(said, left=Left("c1", let_go=False))
        assert (found.verdict, result.settled_by) == (verdict, by)
        assert (view.verdict, view.settled_by) == (verdict, by)

    run(scenario)


def test_a_survivor_of_a_call_that_was_not_let_go_is_told_as_it_is():
    async def scenario():
        _, result, _ = await one(StillRunning(Survivor(), "process 17"), left=Left("c1", let_go=False))
        assert "still running: process 17" in ev.text_of(result.content)
        assert "let go" not in ev.text_of(result.content), "nobody knows that"

    run(scenario)


@pytest.mark.parametrize("arguments", ["", "{", "[1]", '"x"'])
def test_arguments_that_never_were_any_are_nothing_to_ask_about(arguments):
    async def scenario():
        said = raising(AssertionError("asked"))
        store = TouchyStore()
        await leave(store, Left("c1", let_go=False, arguments=arguments))
        found, made = await resumed(store, teller(said))
        assert (found["c1"].verdict, made["c1"].evidence) == ("not_started", "")

    run(scenario)


def test_without_a_tool_gate_a_tool_can_still_say_what_happened():
    async def scenario():
        for said, verdict in ((Completed("x", "seen"), "completed"), (DidNotRun("no"), "not_started")):
            store = TouchyStore()
            await leave(store, Left("c1", let_go=False), gates=())
            found, made = await resumed(store, teller(lambda _, said=said: said))
            assert (found["c1"].verdict, made["c1"].settled_by) == (verdict, "pay")

    run(scenario)


def test_without_a_tool_gate_what_little_is_known_is_kept():
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1", let_go=False), gates=())
        _, made = await resumed(store, teller(lambda _: Unknown("half of it is there")))
        text = ev.text_of(made["c1"].content)
        assert "no tool gate was in force" in text
        assert "half of it is there" in text

    run(scenario)


@pytest.mark.parametrize(
    ("said", "verdict", "by", "evidence"),
    [
        (Completed("paid", "the bank"), "completed", "pay", "the bank"),
        (DidNotRun("no payment"), "outcome_unknown", "", "pay says that it did not run: no payment"),
        (Unknown(), "outcome_unknown", "", ""),
        (StillRunning(Survivor(), "process 17"), "outcome_unknown", "", "still running: process 17"),
    ],
)
@pytest.mark.parametrize("let_go", [True, False])
def test_at_a_gap_only_what_was_found_is_certain(said, verdict, by, evidence, let_go):
    async def scenario():
        store, tool = TouchyStore(), teller(lambda _: said)
        await leave(store, Left("c1", let_go=let_go), before_step_end=[(ev.Gap, {"reason": "bytes are missing"})])
        async with runtime_keeping(store, tool) as agent:
            (view,) = (await agent.inspect("s1", settle=True)).calls
        found, made = await resumed(store, tool)
        assert (found["c1"].verdict, found["c1"].settled_by, found["c1"].evidence) == (verdict, by, evidence)
        assert (view.verdict, view.settled_by, view.evidence) == (verdict, by, evidence)
        assert "Retry it if it is still needed" not in ev.text_of(made["c1"].content)

    run(scenario)


def test_a_tool_that_is_not_composed_or_has_no_say_is_not_asked():
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1", name="gone"), Left("c2", name="mute"))
        found, _ = await resumed(store, teller(None, name="mute"))
        assert [item.verdict for item in found.values()] == ["outcome_unknown"] * 2

    run(scenario)


def test_calls_that_have_their_result_are_not_asked_about():
    async def scenario():
        done = {"turn": 1, "step": 1, "call_id": "c1", "content": (ev.Text("real"),)}
        store = TouchyStore()
        await leave(store, Left("c1"), Left("c2"), before_step_end=[(ev.ToolResult, done)])
        asked = []
        found, made = await resumed(store, teller(lambda call: asked.append(call.call_id) or Completed("x", "y")))
        assert asked == ["c2"]
        assert ev.text_of(made["c1"].content) == "real"
        assert [item.verdict for item in found.values()] == ["completed", "completed"]

    run(scenario)


INSIDE = (Left("c1", name="plan"), Left("c2", parent="c1"), Left("c3", parent="c2"))


@pytest.mark.parametrize(
    ("settled", "verdicts"),
    [
        ({"c1"}, {"c1": "completed", "c2": "outcome_unknown", "c3": "outcome_unknown"}),
        ({"c2"}, {"c1": "outcome_unknown", "c2": "completed", "c3": "outcome_unknown"}),
        ({"c3"}, {"c1": "outcome_unknown", "c2": "outcome_unknown", "c3": "completed"}),
        ({"c1", "c3"}, {"c1": "completed", "c2": "outcome_unknown", "c3": "completed"}),
        ({"c1", "c2", "c3"}, {"c1": "completed", "c2": "completed", "c3": "completed"}),
    ],
)
def test_nested_calls_end_before_their_parent_whoever_is_settled(settled, verdicts):
    async def scenario():
        def settle(call):
            return Completed("done", "seen") if call.call_id in settled else Unknown()

        store = TouchyStore()
        await leave(store, *INSIDE)
        found, made = await resumed(store, teller(settle), teller(settle, name="plan"))
        assert {name: item.verdict for name, item in found.items()} == verdicts
        assert made["c3"].seq < made["c2"].seq < made["c1"].seq

    run(scenario)


def test_a_call_that_made_others_did_run_whatever_its_tool_says():
    """The log has the proof: only its body could let them go. Looking says the same."""

    async def scenario():
        store = TouchyStore()
        await leave(store, *INSIDE)
        tools = teller(lambda _: DidNotRun("no trace of it")), teller(lambda _: DidNotRun("not there"), name="plan")
        async with runtime_keeping(store, *tools) as agent:
            seen = {one.call_id: one.verdict for one in (await agent.inspect("s1", settle=True)).calls}
        found, made = await resumed(store, *tools)
        assert {name: item.verdict for name, item in found.items()} == seen
        assert seen == {"c1": "outcome_unknown", "c2": "outcome_unknown", "c3": "not_started"}
        assert made["c1"].evidence == "plan says that it did not run, but it had made a call: not there"

    run(scenario)


def test_whoever_lives_may_still_run_what_a_tool_sees_nothing_of():
    """Taken over from, not dead: paused behind its gate. What did happen is certain all the same."""

    async def scenario(said, pid):
        store = TouchyStore()
        await leave(store, Left("c1"), who=msgspec.structs.replace(identity(), owner=f"{pid}@{socket.gethostname()}"))
        return (await resumed(store, teller(lambda _: said)))[1]["c1"]

    with subprocess.Popen(["sleep", "1000"]) as paused:
        try:
            made = asyncio.run(scenario(DidNotRun("no payment"), paused.pid))
            paid = asyncio.run(scenario(Completed("paid", "payment 9"), paused.pid))
        finally:
            paused.kill()
    assert made.code == v.TOOL_OUTCOME_UNKNOWN
    assert made.evidence.endswith("may still be alive; pay says that it did not run yet: no payment")
    assert paid.settled_by == "pay"


# --- once, under the lock, on disk --------------------------------------------------------------------------------


def settled_once():
    asked = []

    def settle(call):
        asked.append(call.call_id)
        return Completed(f"answer {len(asked)}", "receipt")

    return asked, settle


@pytest.mark.parametrize("kind", STORES)
def test_resuming_twice_is_resuming_once(kind, tmp_path):
    async def scenario():
        store = store_at(kind, tmp_path)
        await leave(store, Left("c1"), Left("c2", let_go=False))
        asked, settle = settled_once()
        async with runtime_keeping(store, teller(settle)) as agent:
            await (await agent.resume("s1")).close()
            before = (await store.read("s1")).entries
            await (await agent.resume("s1")).close()
            assert (await store.read("s1")).entries == before
        assert sorted(asked) == ["c1", "c2"]

    run(scenario)


def test_the_recovery_counts_what_settlement_appended():
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1"), Left("c2"))
        before = len((await store.read("s1")).entries)
        said = {"c1": Completed("x", "y"), "c2": Unknown()}
        async with runtime(store, teller(lambda call: said[call.call_id])) as agent:
            session = await agent.resume("s1")
            kinds = [event.type_name() for event in session.journal.log.events(before)]
            assert kinds == ["session/owner", "tool/result", "tool/result", "step/end", "turn/end"]
            assert session.recovery.closed == 4

    run(scenario)


def test_a_session_that_is_held_is_not_asked_about():
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1"))
        handle = await store.own("s1")
        tool = teller(raising(AssertionError("asked")))
        async with runtime_keeping(store, tool) as agent:
            with pytest.raises(HeldError):
                await agent.resume("s1")
            seen = await agent.inspect("s1", settle=True)
            assert (seen.state, seen.calls[0].verdict, seen.calls[0].evidence) == ("running", "running", "")
        await handle.release()

    run(scenario)


def test_settlement_has_the_lock():
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1"))
        refused = []

        async def settle(call):
            with pytest.raises(HeldError):
                await store.own(call.session_id)
            refused.append(call.call_id)
            return Unknown()

        await resumed(store, teller(settle))
        assert refused == ["c1"]

    run(scenario)


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_looking_changes_no_byte_whatever_is_said(kind, tmp_path):
    async def scenario():
        store = store_at(kind, tmp_path)
        await leave(store, Left("c1"), Left("c2"), Left("c3"), Left("c4", let_go=False))
        await store.close()  # what the writer notes behind its last write is no change by whoever looks
        store = store_at(kind, tmp_path)
        said = {
            "c1": Completed("x", "receipt"),
            "c2": DidNotRun("no payment"),
            "c3": StillRunning(Survivor(), "process 17"),
            "c4": Unknown("nothing"),
        }
        async with runtime_keeping(
            store, teller(lambda call: said[call.call_id], tidy=raising(AssertionError))
        ) as agent:
            plain = await agent.inspect("s1")  # the first reader of a SQLite database makes its empty journal
            before = digest(tmp_path)
            seen = await agent.inspect("s1", settle=True)
            assert digest(tmp_path) == before
        assert [(call.verdict, call.settled_by, call.evidence) for call in seen.calls] == [
            ("completed", "pay", "receipt"),
            ("not_started", "pay", "no payment"),
            ("outcome_unknown", "", "still running: process 17"),
            ("not_started", "", ""),
        ]
        assert [call.verdict for call in plain.calls] == ["outcome_unknown"] * 3 + ["not_started"]
        assert (seen.state, said["c3"].handle.asked) == ("interrupted", [])
        await store.close()

    run(scenario)


def test_what_is_looked_at_is_what_resume_then_says():
    async def scenario():
        said = [Completed("x", "e1"), DidNotRun("e2"), Unknown("e3"), Unknown(), StillRunning(Survivor(), "e5"), 7]
        left = [Left(f"c{at}{let_go}", let_go=let_go) for at in range(len(said)) for let_go in (True, False)]
        store = TouchyStore()
        await leave(store, *left)
        tool = teller(lambda call: said[int(call.call_id[1])])
        async with runtime_keeping(store, tool) as agent:
            seen = await agent.inspect("s1", settle=True)
        found, _ = await resumed(store, tool)
        assert len(seen.calls) == len(left)
        for view in seen.calls:
            item = found[view.call_id]
            assert (view.verdict, view.code, view.settled_by) == (item.verdict, item.code, item.settled_by), view
            assert view.evidence == item.evidence

    run(scenario)


def test_an_older_unknown_call_can_still_be_looked_into():
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1"))
        async with runtime_keeping(store, teller(lambda _: StillRunning(Survivor(), "process 17"))) as agent:
            await (await agent.resume("s1")).close()
        async with runtime_keeping(store, teller(lambda _: Completed("late", "receipt"))) as agent:
            (view,) = (await agent.inspect("s1", settle=True)).calls
            assert (view.verdict, view.settled_by) == ("completed", "pay")
            (view,) = (await agent.inspect("s1")).calls
            assert view.verdict == "outcome_unknown", "a call has one result"

    run(scenario)


def test_a_store_that_fails_at_the_settled_result_gives_it_another_time():
    async def scenario():
        store, tidied = TouchyStore(), []
        await leave(store, Left("c1"), Left("c2"))
        before = (await store.read("s1")).entries
        asked, settle = settled_once()
        tool = teller(settle, tidy=lambda call: tidied.append(call.call_id))
        full = store.fail(ev.ToolResult)
        async with runtime_keeping(store, tool) as agent:
            with pytest.raises(NotSavedError):
                await agent.resume("s1")
            assert (await store.read("s1")).entries == before
            assert (await store.read("s1")).owner is None
            assert tidied == [], "until the result is durable, what is left behind is the evidence"
            full.off()
            session = await agent.resume("s1")
            assert [item.verdict for item in session.recovery.calls] == ["completed"] * 2
            assert sorted(tidied) == ["c1", "c2"]
            await session.close()
        assert len(asked) == 4
        made = await results(store)
        assert [result.settled_by for result in made.values()] == ["pay", "pay"]

    run(scenario)


def test_whoever_stops_waiting_for_a_survivor_has_changed_nothing(tmp_path):
    class Sleeper(Survivor):
        async def wait(self):
            self.asked.append("wait")
            await asyncio.Event().wait()

    async def scenario():
        store, sleeper = store_at("jsonl", tmp_path), Sleeper()
        await leave(store, Left("c1"), Left("c2"))
        before = (await store.read("s1")).entries
        said = {"c1": Completed("x", "y"), "c2": StillRunning(sleeper, "process 17")}
        async with runtime_keeping(store, teller(lambda call: said[call.call_id])) as agent:
            told = asyncio.Event()
            waiting = asyncio.create_task(agent.resume("s1", running="wait", notify=lambda _: told.set()))
            await told.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            stored = await store.read("s1")
            assert (stored.entries, stored.owner, sleeper.asked) == (before, None, ["wait"])
            sleeper.wait = Survivor(Completed("z", "exit code 0")).wait
            session = await agent.resume("s1", running="wait")
            assert [item.verdict for item in session.recovery.calls] == ["completed"] * 2
            await session.close()
        await store.close()

    run(scenario)


# --- tidying ------------------------------------------------------------------------------------------------------


def test_what_was_left_behind_is_removed_once_the_results_are_durable():
    async def scenario():
        store, seen = TouchyStore(), []

        def tidy(call):
            seen.append((call.call_id, any("turn/end" in kinds for kinds in store.kinds())))

        said = {"c1": Completed("x", "y"), "c2": Unknown(), "c3": StillRunning(Survivor(), "process 17")}
        await leave(store, Left("c1"), Left("c2"), Left("c3"))
        async with runtime_keeping(store, teller(lambda call: said[call.call_id], tidy=tidy)) as agent:
            session = await agent.resume("s1")
            assert seen == [("c1", True), ("c2", True)], "nothing is taken from one that lives"
            await session.close()

    run(scenario)


def test_a_resume_that_was_killed_before_it_tidied_is_made_up_for():
    async def scenario():
        store, tidied = TouchyStore(), []
        await leave(store, Left("c1"))
        async with runtime_keeping(store, teller(lambda _: Completed("x", "y"))) as agent:
            await (await agent.resume("s1")).close()
        entries = (await store.read("s1")).entries
        async with runtime_keeping(store, teller(tidy=lambda call: tidied.append(call.call_id))) as agent:
            await (await agent.resume("s1")).close()
        assert tidied == ["c1"]
        assert (await store.read("s1")).entries == entries

    run(scenario)


@pytest.mark.parametrize("error", [OSError("busy"), SystemExit(1), Rude("x")], ids=lambda error: type(error).__name__)
def test_what_cannot_be_removed_is_told_and_keeps_no_session_from_opening(error):
    async def scenario():
        store, told = TouchyStore(), []
        await leave(store, Left("c1"))
        async with runtime_keeping(store, teller(tidy=raising(error))) as agent:
            session = await agent.resume("s1", notify=told.append)
            assert session.recovery.interrupted == 1
            assert "what pay left behind could not be removed" in told[0].text
            await session.close()

    run(scenario)


def test_a_long_settlement_lets_other_sessions_go_on():
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("c1"))
        beats, over = [], threading.Event()

        async def beat():
            while len(beats) < 3:
                beats.append(time.monotonic())
                await asyncio.sleep(0.001)
            over.set()

        heart = asyncio.create_task(beat())
        found, _ = await resumed(store, teller(lambda _: Completed(over.wait(10), "the heart beat on")))
        await heart
        assert found["c1"].evidence == "the heart beat on"

    run(scenario)
