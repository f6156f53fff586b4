"""Running calls again after a crash: exactly those that the user lets, under their old key, each behind the gate."""

import asyncio

import pytest
from tests.runtime.rig import At, TouchyStore, balanced, run
from tests.runtime.settling import Left, leave, runtime, teller

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.errors import NotSavedError, UsageError
from fencepost.runtime.hooks import Position
from fencepost.runtime.settlement import Completed, DidNotRun, StillRunning, Unknown
from fencepost.runtime.subjects import Deny
from fencepost.runtime.tools import ToolReply
from fencepost.testing import ScriptedModel


class Runs:
    """A body that says what it ran for."""

    def __init__(self, reply="fresh"):
        self.ids = []
        self.arguments = []
        self.reply = reply

    async def __call__(self, context, arguments):
        self.ids.append(context.call_id)
        self.arguments.append(arguments)
        if isinstance(self.reply, BaseException):
            raise self.reply
        return self.reply


async def again(store, tools, effects, **more):
    """Resume with calls let run again: verdicts, `tool/call` events and results, by call id."""
    async with runtime(store, *tools, **more) as agent:
        session = await agent.resume("s1", rerun=frozenset(effects))
        log = session.journal.log
        assert balanced(log)
        assert session.journal.watermark == log.fold.next_seq - 1
        verdicts = {item.call.call_id: item.verdict for item in session.recovery.calls}
        return verdicts, [event for event in log.events() if isinstance(event, ev.ToolCall)], log.fold.calls


EACH = (
    Left("r", name="look", effect="read"),
    Left("i", name="put", effect="idempotent"),
    Left("w", name="pay", effect="write"),
)


@pytest.mark.parametrize(
    ("effects", "ran"),
    [
        ((), set()),
        (("read",), {"r"}),
        (("idempotent",), {"i"}),
        (("read", "idempotent"), {"r", "i"}),
    ],
    ids=["none", "read", "idempotent", "both"],
)
def test_exactly_the_calls_of_these_effects_run_again(effects, ran):
    async def scenario():
        runs, store = Runs(), TouchyStore()
        await leave(store, *EACH)
        tools = [
            teller(name="look", effect="read", body=runs),
            teller(name="put", effect="idempotent", body=runs),
            teller(name="pay", effect="write", body=runs),
        ]
        verdicts, calls, records = await again(store, tools, effects)
        assert set(runs.ids) == ran
        assert {name for name, verdict in verdicts.items() if verdict == "completed"} == ran
        first = {event.call_id: event for event in calls if event.retries is None}
        second = {event.call_id: event for event in calls if event.retries is not None}
        assert set(second) == ran
        for name, event in second.items():
            assert event.retries == first[name].seq
            assert (event.name, event.arguments) == (first[name].name, first[name].arguments)
            assert runs.arguments[0] == {"text": "hello"}
            result = records[name].result
            assert (ev.text_of(result.content), result.settled_by, result.synthetic) == ("fresh", "", False)

    run(scenario)


@pytest.mark.parametrize("effects", [{"write"}, {"read", "write"}])
def test_write_is_refused_before_anything_is_touched(effects):
    async def scenario():
        store = TouchyStore()
        await leave(store, *EACH)
        before = (await store.read("s1")).entries
        agent = runtime(store, teller(name="pay", body=Runs()))
        with pytest.raises(UsageError, match="never run again"):
            await agent.resume("s1", rerun=frozenset(effects))
        stored = await store.read("s1")
        assert (stored.entries, stored.owner) == (before, None)

    run(scenario)


def test_each_goes_through_the_gate_and_names_the_first():
    async def scenario():
        runs, store = Runs(), TouchyStore()
        await leave(store, Left("r", name="look", effect="read"))

        async def body(context, arguments):
            durable = [event for batch in store.batches for event in batch if isinstance(event, ev.ToolCall)]
            assert durable[-1].retries == durable[0].seq
            return await runs(context, arguments)

        verdicts, *_ = await again(store, [teller(name="look", effect="read", body=body)], {"read"})
        assert (verdicts, runs.ids) == ({"r": "completed"}, ["r"])

    run(scenario)


def test_a_gate_that_fails_lets_nothing_run_and_proves_nothing():
    async def scenario():
        runs, store = Runs(), TouchyStore()
        await leave(store, Left("r", name="look", effect="read"))
        before = (await store.read("s1")).entries
        full = store.fail(ev.ToolCall)
        agent = runtime(store, teller(name="look", effect="read", body=runs))
        with pytest.raises(NotSavedError):
            await agent.resume("s1", rerun=frozenset({"read"}))
        assert runs.ids == []
        stored = await store.read("s1")
        assert (stored.entries, stored.owner) == (before, None)
        full.off()
        session = await agent.resume("s1")
        assert [item.verdict for item in session.recovery.calls] == ["outcome_unknown"]
        await agent.close()

    run(scenario)


def test_a_gate_that_fails_for_a_moment_leaves_the_outcome_unknown():
    async def scenario():
        runs, store = Runs(), TouchyStore()
        await leave(store, Left("r", name="look", effect="read"))
        full = store.fail(ev.ToolCall)

        async def freed(done, proceed):
            full.off()
            store.rules.clear()
            return await proceed(done)

        tools = [teller(name="look", effect="read", body=runs)]
        verdicts, calls, records = await again(store, tools, {"read"}, plugins=[At("tool_done", freed)])
        assert runs.ids == []
        assert verdicts == {"r": "outcome_unknown"}
        text = ev.text_of(records["r"].result.content)
        assert "Not started" in text, "what became of the second time is said too"
        assert records["r"].result.code == v.TOOL_OUTCOME_UNKNOWN
        assert len(calls) == 2

    run(scenario)


@pytest.mark.parametrize(
    ("reply", "verdict", "code"),
    [
        (ToolReply("no", is_error=True, code="EXIT"), "completed", "EXIT"),
        (ValueError("bad"), "completed", "TOOL_ERROR"),
        (ToolReply("the line was cut", unknown=True), "outcome_unknown", v.TOOL_OUTCOME_UNKNOWN),
        (SystemExit(1), "completed", "TOOL_ERROR"),
        (asyncio.CancelledError(), "outcome_unknown", v.TOOL_OUTCOME_UNKNOWN),
    ],
    ids=["error", "raises", "unknown", "exits", "cancels itself"],
)
def test_what_comes_of_the_second_time_is_the_result(reply, verdict, code):
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("r", name="look", effect="read"))
        verdicts, _, records = await again(store, [teller(name="look", effect="read", body=Runs(reply))], {"read"})
        assert verdicts == {"r": verdict}
        assert records["r"].result.code == code

    run(scenario)


def test_a_time_limit_holds_the_second_time_too():
    async def scenario():
        store = TouchyStore()
        await leave(store, Left("r", name="look", effect="read"))

        async def hang(context, arguments):
            await asyncio.Event().wait()

        verdicts, _, records = await again(
            store, [teller(name="look", effect="read", body=hang, timeout=0.02)], {"read"}
        )
        assert verdicts == {"r": "outcome_unknown"}
        assert "time limit" in ev.text_of(records["r"].result.content)

    run(scenario)


def test_one_that_is_interrupted_leaves_a_session_that_can_be_resumed():
    async def scenario():
        store, inside = TouchyStore(), asyncio.Event()
        await leave(store, Left("r", name="look", effect="read"))

        async def hang(context, arguments):
            inside.set()
            await asyncio.Event().wait()

        agent = runtime(store, teller(name="look", effect="read", body=hang))
        resuming = asyncio.create_task(agent.resume("s1", rerun=frozenset({"read"})))
        await inside.wait()
        resuming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await resuming
        assert (await store.read("s1")).owner is None
        session = await agent.resume("s1")
        assert [item.verdict for item in session.recovery.calls] == ["outcome_unknown"]
        assert balanced(session.journal.log)
        await agent.close()

    run(scenario)


# --- which ones do not ------------------------------------------------------------------------------------------


def broken(arguments):
    raise RuntimeError("no effect today")


@pytest.mark.parametrize(
    ("now", "left"),
    [
        ({"effect": "write"}, {}),
        ({"effect": "idempotent"}, {}),
        ({"effect": "write", "effect_by": lambda arguments: "write"}, {}),
        ({"effect": "write", "effect_by": broken}, {}),
        ({"effect": "read"}, {"effect": "write"}),
        ({"effect": "read"}, {"let_go": False}),
        ({"effect": "read"}, {"arguments": '{"text":17}'}),
        ({"effect": "read"}, {"name": "gone"}),
    ],
    ids=[
        "now a write",
        "now idempotent",
        "now a write for these",
        "cannot say",
        "was a write",
        "not let go",
        "arguments no longer fit",
        "tool is gone",
    ],
)
def test_what_was_or_is_something_else_does_not_run_again(now, left):
    async def scenario():
        runs, store = Runs(), TouchyStore()
        await leave(store, Left(**{"call_id": "r", "name": "look", "effect": "read", **left}))
        verdicts, calls, _ = await again(store, [teller(name="look", body=runs, **now)], {"read"})
        assert runs.ids == []
        assert all(event.retries is None for event in calls)
        assert verdicts["r"] == ("not_started" if left.get("let_go") is False else "outcome_unknown")

    run(scenario)


def test_a_tool_whose_calls_differ_runs_those_again_that_may():
    async def scenario():
        runs, store = Runs(), TouchyStore()
        left = [
            Left("get", name="http", effect="read", arguments='{"text":"GET"}'),
            Left("post", name="http", effect="write", arguments='{"text":"POST"}'),
        ]
        await leave(store, *left)
        http = teller(
            name="http", effect_by=lambda arguments: "read" if arguments["text"] == "GET" else "write", body=runs
        )
        verdicts, *_ = await again(store, [http], {"read", "idempotent"})
        assert runs.ids == ["get"]
        assert verdicts == {"get": "completed", "post": "outcome_unknown"}

    run(scenario)


def test_a_nested_call_never_runs_again_and_is_closed_before_its_parent_does():
    async def scenario():
        runs, store = Runs(), TouchyStore()
        left = (
            Left("p", name="look", effect="read"),
            Left("n", name="look", effect="read", parent="p"),
            Left("nn", name="look", effect="read", parent="n"),
        )
        await leave(store, *left)
        verdicts, calls, records = await again(store, [teller(name="look", effect="read", body=runs)], {"read"})
        assert runs.ids == ["p"]
        assert verdicts == {"p": "completed", "n": "outcome_unknown", "nn": "outcome_unknown"}
        (second,) = [event for event in calls if event.retries is not None]
        assert records["nn"].result.seq < records["n"].result.seq < second.seq < records["p"].result.seq

    run(scenario)


def test_calls_inside_of_a_call_that_runs_again_are_new_ones():
    async def scenario():
        runs, store = Runs("inner"), TouchyStore()
        await leave(store, Left("p", name="plan", effect="read"), Left("n", name="look", effect="read", parent="p"))

        async def plan(context, arguments):
            return (await context.call("look", {"text": "x"})).text

        tools = [
            teller(name="plan", effect="read", body=plan),
            teller(name="look", effect="read", body=runs),
        ]
        verdicts, _, records = await again(store, tools, {"read"})
        assert verdicts["p"] == "completed"
        assert verdicts["n"] == "outcome_unknown"
        (fresh,) = set(records) - {"p", "n"}
        assert (records[fresh].parent, verdicts[fresh]) == ("p", "completed")

    run(scenario)


@pytest.mark.parametrize(
    ("said", "verdict", "runs_again"),
    [
        (Completed("known", "receipt"), "completed", False),
        (DidNotRun("no trace"), "not_started", False),
        (StillRunning(None, "process 17"), "outcome_unknown", False),
        (Unknown("who knows"), "completed", True),
        (Unknown(), "completed", True),
    ],
)
def test_what_is_settled_or_lives_does_not_run_again(said, verdict, runs_again):
    async def scenario():
        runs, store = Runs(), TouchyStore()
        await leave(store, Left("r", name="look", effect="read"))
        look = teller(lambda _: said, name="look", effect="read", body=runs)
        verdicts, *_ = await again(store, [look], {"read"})
        assert verdicts == {"r": verdict}
        assert runs.ids == (["r"] if runs_again else [])

    run(scenario)


def test_a_clean_session_has_nothing_to_run_again():
    async def scenario():
        runs, store = Runs(), TouchyStore()
        await leave(store, Left("r", name="look", effect="read"))
        tools = [teller(name="look", effect="read", body=runs)]
        agent = runtime(store, *tools)
        await (await agent.resume("s1")).close()
        session = await agent.resume("s1", rerun=frozenset({"read"}))
        assert (session.recovery.interrupted, runs.ids) == (None, [])
        await agent.close()

    run(scenario)


def test_policies_are_not_asked_a_second_time():
    async def scenario():
        async def no(candidate, proceed):
            return Deny("not today")

        runs, store = Runs(), TouchyStore()
        await leave(store, Left("r", name="look", effect="read"))
        tools = [teller(name="look", effect="read", body=runs)]
        verdicts, *_ = await again(store, tools, {"read"}, plugins=[At("tool_admit", no, Position.POLICY)])
        assert (verdicts, runs.ids) == ({"r": "completed"}, ["r"])

    run(scenario)


def test_a_fault_of_ours_ends_the_running_again_and_is_told():
    async def scenario():
        async def broken_hook(call, proceed):
            raise RuntimeError("a plugin broke")

        runs, store, told = Runs(), TouchyStore(), []
        await leave(store, Left("r1", name="look", effect="read"), Left("r2", name="look", effect="read"))
        agent = runtime(store, teller(name="look", effect="read", body=runs), plugins=[At("tool_execute", broken_hook)])
        session = await agent.resume("s1", rerun=frozenset({"read"}), notify=told.append)
        assert [item.verdict for item in session.recovery.calls] == ["outcome_unknown"] * 2
        assert runs.ids == []
        assert len([event for event in session.journal.log.events() if isinstance(event, ev.ToolCall)]) == 3
        assert "a plugin broke" in told[-1].text
        await agent.close()

    run(scenario)


def test_going_on_hands_the_model_what_came_of_it():
    async def scenario():
        store, model = TouchyStore(), ScriptedModel(["never", "I see."])
        await leave(store, Left("r", name="look", effect="read"), Left("w"))
        tools = [teller(name="look", effect="read", body=Runs("fresh news")), teller(lambda _: DidNotRun("no payment"))]
        async with runtime(store, *tools, model=model) as agent:
            session = await agent.resume("s1", rerun=frozenset({"read"}))
            result = await session.go_on()
            assert result.text == "I see."
            (request,) = model.requests
            texts = [ev.text_of(message.content) for message in request.messages]
            assert texts[2] == "fresh news"
            assert "no payment" in texts[3]

    run(scenario)
