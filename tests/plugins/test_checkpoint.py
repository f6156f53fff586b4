"""First on disk, then let go: each gate with a store that fails, and with one that stands still."""

import asyncio

import pytest
from tests.runtime.rig import FULL, Agent, TouchyStore, balanced, call, calls, ended, run, until

from fencepost.core import events as ev
from fencepost.core import repair
from fencepost.core import verdict as v
from fencepost.core.projection import request
from fencepost.errors import ModelError, NotSavedError
from fencepost.plugins.retry import Retry
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext
from fencepost.testing import Cut, ScriptedModel

ENTERED = []


@tool
async def act() -> str:
    """Act."""
    ENTERED.append("act")
    return "did it"


@pytest.fixture(autouse=True)
def _nobody_entered():
    ENTERED.clear()


def agent(answers, store, **more):
    return Agent(answers, store=store, tools=[act], **more)


# --- failing: nothing behind the gate happens -------------------------------------------------------------------


def test_a_failed_step_gate_prepares_no_step_and_leaves_the_prompt_pending():
    async def scenario():
        store = TouchyStore()
        async with agent(["never"], store) as one:
            store.fail(ev.TurnStart)
            result = await one.session.prompt("go")
            assert (result.reason, result.code, result.saved) == ("error", "NOT_SAVED", False)
            assert "no space left" in result.message
            assert one.shape() == ["session/owner", "input/queued", "turn/start", "turn/end"]
            assert list(one.log.fold.pending) == [one.one(ev.InputQueued).input_id]
            assert one.model.requests == []

    run(scenario)


def test_a_prompt_that_a_failed_gate_left_pending_runs_when_it_is_asked_for_again():
    async def scenario():
        store = TouchyStore()
        async with agent(["At last."], store) as one:
            full = store.fail(ev.TurnStart)
            await one.session.prompt("go")
            full.off()
            result = await one.session.go_on()
            assert (result.turn, result.text, result.saved) == (2, "At last.", True)
            assert ev.text_of(one.one(ev.UserMessage).content) == "go"
            assert await one.session.go_on() is None

    run(scenario)


def test_a_failed_request_gate_sends_no_request():
    async def scenario():
        store = TouchyStore()
        async with agent(["never"], store) as one:
            store.fail(ev.StepStart)
            result = await one.session.prompt("go")
            assert (result.reason, result.code, result.saved) == ("error", "NOT_SAVED", False)
            assert one.model.requests == []
            assert one.shape()[-5:] == ["step/start", "user/message", "request/header", "step/end", "turn/end"]

    run(scenario)


def test_a_failed_tool_gate_does_not_enter_the_body():
    async def scenario():
        store = TouchyStore()
        async with agent([calls(call("act")), "never"], store) as one:
            full = store.fail(ev.ToolCall)
            result = await one.session.prompt("go")
            assert ENTERED == []
            assert one.results() == ["act: NOT_SAVED"]
            assert one.text("act").startswith("Not started: the log could not be saved")
            assert (result.reason, result.code, result.saved) == ("error", "NOT_SAVED", False)
            assert len(one.model.requests) == 1
            full.off()
            result = await one.session.prompt("again")
            assert result.saved
        kinds = [event.type_name() for batch in store.batches for event in batch]
        assert kinds.count("tool/call") == 1
        assert kinds.count("tool/result") == 1

    run(scenario)


def test_a_failed_closing_gate_is_reported_and_queued_work_goes_on():
    async def scenario():
        store = TouchyStore()
        async with agent(["one", "two"], store) as one:
            full = store.fail(ev.TurnEnd)
            first = await one.session.prompt("1")
            assert (first.reason, first.text, first.saved) == ("completed", "one", False)
            assert [notice.kind for notice in one.notices] == ["not_saved"]
            full.off()
            second = await one.session.prompt("2")
            assert (second.text, second.saved) == ("two", True)
            assert [notice.kind for notice in one.notices] == ["not_saved", "saved"]

    run(scenario)


def test_the_gate_stands_in_front_of_every_retry():
    async def scenario():
        store = TouchyStore()
        busy = ModelError("busy", code="RATE_LIMITED", status=429, retryable=True, retry_after=0)
        async with agent([[busy, "never"]], store, plugins=[Retry()]) as one:
            store.fail(ev.RequestRetry)
            result = await one.session.prompt("go")
            assert (result.reason, result.code) == ("error", "NOT_SAVED")
            assert len(one.model.requests) == 1
            assert one.shape()[-4:] == ["request/header", "request/retry", "step/end", "turn/end"]

    run(scenario)


# --- standing still: nothing behind the gate happens yet --------------------------------------------------------


MOMENTS = [
    ("step", ev.TurnStart, "step/start"),
    ("request", ev.StepStart, "assistant/message"),
    ("tool", ev.ToolCall, "tool/result"),
]


@pytest.mark.parametrize(("gate", "kind", "behind"), MOMENTS, ids=[gate for gate, _, _ in MOMENTS])
def test_nothing_behind_a_gate_happens_while_it_waits(gate, kind, behind):
    async def scenario():
        store = TouchyStore()
        async with agent([calls(call("act")), "Done."], store) as one:
            still = store.hold(kind)
            turn = asyncio.create_task(one.session.prompt("go"))
            await still.reached.wait()
            for _ in range(50):
                await asyncio.sleep(0)
            assert behind not in one.shape()
            assert ENTERED == []
            assert len(one.model.requests) == (1 if gate == "tool" else 0)
            still.off()
            assert (await turn).text == "Done."
            assert ENTERED == ["act"]

    run(scenario)


def test_cancel_while_the_tool_gate_waits():
    async def scenario():
        store = TouchyStore()
        async with agent([calls(call("act")), "Fresh."], store) as one:
            still = store.hold(ev.ToolCall)
            turn = asyncio.create_task(one.session.prompt("go"))
            await still.reached.wait()
            cancel = asyncio.create_task(one.session.cancel())
            await asyncio.sleep(0)
            still.off()
            await cancel
            assert (await turn).reason == "aborted"
            assert one.results() == ["act: ABORTED_BEFORE_DISPATCH"]
            assert "while the gate waited" in one.text("act")
            assert ENTERED == []
            assert (await one.session.prompt("again")).text == "Fresh."

    run(scenario)


def test_cancel_while_the_request_gate_waits_sends_nothing():
    async def scenario():
        store = TouchyStore()
        async with agent(["never"], store) as one:
            still = store.hold(ev.StepStart)
            turn = asyncio.create_task(one.session.prompt("go"))
            await still.reached.wait()
            cancel = asyncio.create_task(one.session.cancel())
            await asyncio.sleep(0)
            still.off()
            await cancel
            assert (await turn).reason == "aborted"
            assert one.model.requests == []

    run(scenario)


@pytest.mark.parametrize(("kind", "requests"), [(ev.StepStart, 0), (ev.ToolCall, 1)], ids=["request", "tool"])
def test_cancel_in_the_very_tick_in_which_the_gate_opens(kind, requests):
    """The write lands and the cancel comes at once: the gate looks at the signal after its flush."""

    async def scenario():
        store = TouchyStore()
        async with agent([calls(call("act")), "never"], store) as one:
            rule = store.hold(kind)

            async def cancel_and_land():
                one.session.cancel_soon()

            rule.act = cancel_and_land
            assert (await one.session.prompt("go")).reason == "aborted"
            assert len(one.model.requests) == requests
            assert ENTERED == []

    run(scenario)


# --- what is durable when ---------------------------------------------------------------------------------------


class Witness(ScriptedModel):
    """A scripted model that compares each request with what is durable at that moment (law 3)."""

    def __init__(self, answers, store):
        super().__init__(answers)
        self.store = store
        self.seen = []

    def stream(self, request):
        landed = {event.seq for batch in self.store.batches for event in batch}
        self.seen.append((request, len(landed)))
        return super().stream(request)


def test_each_request_is_the_projection_of_what_is_durable_when_it_leaves():
    """Law 3, and: whatever reaches a model request can be rebuilt from the log, byte for byte."""

    async def scenario():
        from fencepost.core.codec import CORE
        from fencepost.core.log import Log

        store = TouchyStore()
        model = Witness(
            [
                calls(call("act", id="x"), call("act", id="x"), call("no_such", "{", id="")),
                [Cut("half of it"), ModelError("busy", retryable=True), "All of it."],
                "Again.",
            ],
            store,
        )
        async with agent(model, store, plugins=[Retry()], configured={"retry": {"base": 0}}) as one:
            await one.session.prompt("go \ud800")
            await one.session.prompt("and on")
            assert len(model.seen) == 5
            header = one.log.header
        events = [event for batch in store.batches for event in batch]
        for sent, durable in model.seen:
            prefix = Log(header, lambda: 0, CORE, events[:durable])
            assert request(prefix) == sent
            assert model.body(request(prefix)) == model.body(sent)

    run(scenario)


def test_the_body_finds_its_own_call_durable():
    """Law 1, read by the body itself."""

    async def scenario():
        store = TouchyStore()
        found = []

        @tool
        async def witness(context: CallContext) -> str:
            """Look into the store."""
            stored = await store.read(context.session_id)
            found.extend(e.call_id for e in stored.entries if isinstance(e, ev.ToolCall))
            assert context.call_id in found
            return "ok"

        async with Agent([calls(call("witness")), "ok"], store=store, tools=[witness]) as one:
            await one.session.prompt("go")
            assert one.results() == ["witness: ok"]
            assert len(found) == 1

    run(scenario)


def test_a_nested_call_goes_under_the_gate_of_its_parent():
    async def scenario():
        store = TouchyStore()

        @tool
        async def inner() -> str:
            """Inner."""
            ENTERED.append("inner")
            return "inner"

        @tool
        async def middle(context: CallContext) -> str:
            """Middle."""
            return (await context.call("inner", {})).text

        @tool
        async def outer(context: CallContext) -> str:
            """Outer."""
            full = store.fail()
            reply = await context.call("middle", {})
            full.off()
            return reply.text

        async with Agent([calls(call("outer")), "ok"], store=store, tools=[outer, middle, inner]) as one:
            await one.session.prompt("go")
            assert one.results() == ["inner: ok", "middle: ok", "outer: ok"]
            assert ENTERED == ["inner"]

    run(scenario)


# --- leaving it out ---------------------------------------------------------------------------------------------


def test_without_the_policy_the_log_says_so_and_a_crash_makes_every_open_call_unknown():
    """Law 10."""

    async def scenario():
        store, entered = TouchyStore(), asyncio.Event()

        @tool
        async def stuck() -> str:
            """Stuck."""
            entered.set()
            await asyncio.Event().wait()

        answers = [calls(call("stuck"), call("act"))]
        async with Agent(answers, store=store, tools=[stuck, act], gates=False) as one:
            turn = asyncio.create_task(one.session.prompt("go"))
            await entered.wait()
            await one.session.journal.flush()
            start = one.one(ev.TurnStart)
            assert (start.gates, start.policy) == (("closing",), "none")
            assert one.session.guarantees.gates == ("closing",)
            verdicts = v.verdicts(one.log.fold)
            assert [item.verdict for item in verdicts] == ["outcome_unknown", "outcome_unknown"]
            texts = [closer.fields["content"][0].text for closer in repair.closers(one.log.fold)[:2]]
            assert texts == [v.unknown_text(repair.STARTED), v.unknown_text(repair.UNGATED)]
        await ended(turn)

    run(scenario)


def test_without_the_policy_nothing_waits_for_the_store():
    async def scenario():
        store = TouchyStore()
        async with agent([calls(call("act")), "Done."], store, gates=False) as one:
            full = store.fail(ev.TurnStart)
            result = await one.session.prompt("go")
            assert (result.reason, result.text, result.saved) == ("completed", "Done.", False)
            assert ENTERED == ["act"]
            assert balanced(one.log)
            full.off()

    run(scenario)


# --- acknowledged is kept (law 9) -------------------------------------------------------------------------------


def test_a_prompt_is_acknowledged_when_it_is_durable_and_not_before():
    async def scenario():
        store = TouchyStore()
        async with agent(["Hello."], store) as one:
            still = store.hold(ev.InputQueued)
            queued = asyncio.create_task(one.session.queue("hi"))
            await still.reached.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not queued.done()
            assert one.shape() == ["session/owner", "input/queued"]
            still.off()
            input_id = await queued
            assert [e.input_id for b in store.batches for e in b if isinstance(e, ev.InputQueued)] == [input_id]
            await until(lambda: one.events(ev.TurnEnd))

    run(scenario)


def test_a_prompt_that_cannot_be_saved_is_not_acknowledged_and_does_not_run():
    async def scenario():
        store = TouchyStore()
        async with agent(["Hello.", "never"], store) as one:
            full = store.fail(ev.InputQueued)
            with pytest.raises(NotSavedError) as caught:
                await one.session.prompt("hi")
            assert caught.value.__cause__ is FULL
            assert one.log.fold.pending == {}
            full.off()
            assert (await one.session.prompt("hi again")).text == "Hello."
            assert [ev.text_of(message.content) for message in one.events(ev.UserMessage)] == ["hi again"]
            assert len(one.events(ev.TurnStart)) == 1

    run(scenario)
