"""Requests: one attempt at a time, and properties of whole sessions over any script and any failing store."""

import asyncio
import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.runtime.rig import Agent, At, TouchyStore, balanced, call, calls, run, until

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.codec import CORE
from fencepost.core.log import Log
from fencepost.core.projection import request
from fencepost.errors import ModelError, NoSpaceError, NotSavedError
from fencepost.journal.inspect import inspect
from fencepost.plugins.approval import Approval
from fencepost.plugins.retry import Retry
from fencepost.runtime.models import CallDelta, Finished, ReasoningDelta, TextDelta, UsageDelta
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext
from fencepost.testing import Cut, Pause, ScriptedModel, pairing_problem

# --- one attempt ------------------------------------------------------------------------------------------------


class Streams:
    """A model that streams given deltas, one list for each request."""

    provider, model, settings = "test", "streams", {}

    def __init__(self, *streams):
        self.streams = list(streams)
        self.closed = 0

    async def stream(self, request):
        try:
            for delta in self.streams.pop(0):
                if isinstance(delta, Exception):
                    raise delta
                yield delta
        finally:
            self.closed += 1

    def body(self, request):
        return {}

    async def close(self):
        pass


def test_text_and_reasoning_are_recorded_as_they_arrive_and_kept_apart():
    async def scenario():
        deltas = [ReasoningDelta("hm "), ReasoningDelta("yes"), TextDelta("Hel"), TextDelta(""), TextDelta("lo")]
        usage = ev.Usage(3, 2)
        async with Agent(Streams([*deltas, UsageDelta(usage), Finished("stop")])) as agent:
            result = await agent.session.prompt("go")
            chunks = [(one.kind, one.delta) for one in agent.events(ev.AssistantChunk)]
            assert chunks == [("reasoning", "hm "), ("reasoning", "yes"), ("text", "Hel"), ("text", "lo")]
            message = agent.one(ev.AssistantMessage)
            assert message.content == (ev.Reasoning("hm yes"), ev.Text("Hello"))
            assert (message.usage, message.finish, result.text) == (usage, "stop", "Hello")

    run(scenario)


def test_an_error_in_the_middle_keeps_what_was_seen():
    async def scenario():
        lost = ModelError("the line went dead", code="CONNECTION", retryable=True)
        async with Agent(Streams([TextDelta("So far"), CallDelta(0, "x", "act", "{}"), lost])) as agent:
            result = await agent.session.prompt("go")
            assert (result.reason, result.code) == ("error", "CONNECTION")
            message = agent.one(ev.AssistantMessage)
            assert (message.content, message.finish, message.interrupted) == ((ev.Text("So far"),), "truncated", True)

    run(scenario)


def test_an_answer_without_anything_is_still_an_answer():
    async def scenario():
        async with Agent(Streams([Finished("stop")], [Finished("tool_calls")])) as agent:
            for _ in range(2):
                result = await agent.session.prompt("go")
                assert (result.reason, result.text) == ("completed", "")

    run(scenario)


def test_every_stream_is_closed_whatever_becomes_of_it():
    async def scenario():
        model = Streams(
            [TextDelta("a"), Finished("stop")], [TextDelta("a")], [TextDelta("a"), ModelError("x")], [KeyError("x")]
        )
        async with Agent(model) as agent:
            for _ in range(4):
                await agent.session.prompt("go")
            assert model.closed == 4

    run(scenario)


def test_cancel_closes_the_stream():
    async def scenario():
        streaming, closed = asyncio.Event(), []

        class Endless(Streams):
            async def stream(self, request):
                try:
                    while True:
                        yield TextDelta("more ")
                        streaming.set()
                        await asyncio.sleep(0.001)
                finally:
                    closed.append(True)

        async with Agent(Endless()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await streaming.wait()
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert closed == [True]

    run(scenario)


def test_a_hook_sees_every_attempt_with_its_number():
    async def scenario():
        numbers = []

        async def watch(attempt, go_on):
            numbers.append(attempt.number)
            async for delta in go_on(attempt):
                yield delta

        busy = ModelError("busy", retryable=True)
        plugins = [Retry(), At("model_stream", watch, name="watch")]
        configured = {"retry": {"base": 0}}
        async with Agent([[busy, busy, "ok"]], plugins=plugins, configured=configured) as agent:
            await agent.session.prompt("go")
            assert numbers == [1, 2, 3]

    run(scenario)


def test_a_flood_of_text_waits_for_the_store():
    """Pending bytes are bounded: past the bound the stream is not read any further."""

    async def scenario():
        store, sent = TouchyStore(), []
        piece = "x" * (1 << 20)

        class Flood(Streams):
            async def stream(self, request):
                for number in range(12):
                    sent.append(number)
                    yield TextDelta(piece)
                    await asyncio.sleep(0)
                yield Finished("stop")

        async with Agent(Flood(), store=store) as agent:
            still = store.hold(ev.AssistantChunk)
            turn = asyncio.create_task(agent.session.prompt("go"))
            await still.reached.wait()
            for _ in range(100):
                await asyncio.sleep(0)
            assert len(sent) < 12
            still.off()
            assert (await turn).reason == "completed"
            assert len(sent) == 12

    run(scenario)


# --- any script -------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["look", "act", "put", "fail", "no_such"])
ARGUMENTS = st.sampled_from([{}, "{", '{"what": 1}', {"what": "\ud800"}, {"what": "x"}])
IDS = st.sampled_from(["", "a", "a", "b"])
CALLS = st.builds(lambda name, arguments, given: call(name, arguments, id=given), NAMES, ARGUMENTS, IDS)
ANSWERS = st.one_of(
    st.sampled_from(["Hello.", "Well then."]),
    st.builds(
        lambda given, content: calls(*given, content=content), st.lists(CALLS, min_size=1, max_size=5), st.none()
    ),
    st.builds(lambda given: calls(*given, content="I act."), st.lists(CALLS, min_size=1, max_size=3)),
)
BUSY = ModelError("busy", code="RATE_LIMITED", retryable=True)
ATTEMPTS = st.one_of(
    ANSWERS,
    st.builds(lambda answer: [Cut("half an answer", after=1), answer], ANSWERS),
    st.builds(lambda answer: [BUSY, answer], ANSWERS),
)
SCRIPTS = st.lists(ATTEMPTS, min_size=1, max_size=5)


class World:
    """What really happened: the calls whose bodies were entered."""

    def __init__(self):
        self.entered = []

    def tools(self):
        @tool(effect="read")
        async def look(context: CallContext, what: str = "") -> str:
            """Look."""
            self.entered.append(context.call_id)
            await asyncio.sleep(0)
            return "a tree"

        @tool
        async def act(context: CallContext, what: str = "") -> str:
            """Act."""
            self.entered.append(context.call_id)
            return "done"

        @tool(effect="idempotent")
        def put(context: CallContext, what: str = "") -> str:
            """Put."""
            self.entered.append(context.call_id)
            return "done"

        @tool
        async def fail(context: CallContext, what: str = "") -> str:
            """Fail."""
            self.entered.append(context.call_id)
            raise ValueError("no")

        return [look, act, put, fail]


class Witness(ScriptedModel):
    """Notes what was durable when each request left."""

    def __init__(self, answers, store):
        super().__init__(answers)
        self.store = store
        self.durable = []

    def stream(self, request):
        self.durable.append(sum(len(batch) for batch in self.store.batches))
        return super().stream(request)


def composed(script, store, world, **more):
    return Agent(
        Witness(script, store),
        store=store,
        tools=world.tools(),
        plugins=[Retry(), Approval("all")],
        configured={"retry": {"base": 0, "attempts": 3}},
        **more,
    )


SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SLOW
@given(SCRIPTS)
def test_any_script_leaves_a_balanced_log_whose_requests_can_be_rebuilt(script):
    async def scenario():
        store, world = TouchyStore(), World()
        async with composed([*script, "The end."], store, world) as agent:
            await agent.session.prompt("go")
            await agent.session.prompt("and on")
            assert balanced(agent.log)
        model, log = agent.model, agent.log
        events = [event for batch in store.batches for event in batch]
        assert events == list(log.events())
        for sent, durable in zip(model.requests, model.durable, strict=True):
            prefix = Log(log.header, lambda: 0, CORE, events[:durable])
            assert request(prefix) == sent
            body = model.body(sent)
            assert body == model.body(request(prefix))
            assert pairing_problem(body["messages"]) is None
        results = [event.call_id for event in events if isinstance(event, ev.ToolResult)]
        assert sorted(results) == sorted(log.fold.calls), "one result per call"
        admitted = [event.call_id for event in events if isinstance(event, ev.ToolCall)]
        assert sorted(world.entered) == sorted(admitted), "each admitted call ran once"

    run(scenario)


@SLOW
@given(SCRIPTS, st.lists(st.booleans(), max_size=40), st.booleans())
def test_any_failing_store_keeps_the_laws(script, failures, again):
    """A store that refuses some of its batches, and then a crash: laws 1 to 6 over what is durable."""

    async def scenario():
        store, world = TouchyStore(), World()
        plan = iter(failures)

        async def act():
            if next(plan, False):
                raise NoSpaceError("full")

        rule = store.hold()
        rule.act = act
        agent = composed([*script, "The end."], store, world)
        await agent.__aenter__()
        for text in ("go", "on") if again else ("go",):
            with contextlib.suppress(NotSavedError):
                await agent.session.prompt(text)
        memory = list(agent.log.events())
        assert balanced(agent.log)
        agent.session._pump.cancel()
        await agent.session.journal._handle.inner.release()
        durable = [event for batch in store.batches for event in batch]
        assert durable == memory[: len(durable)], "law 6"
        admitted = {event.call_id for event in durable if isinstance(event, ev.ToolCall)}
        assert set(world.entered) <= admitted, "law 1"
        assert len(world.entered) == len(set(world.entered))
        for sent, count in zip(agent.model.requests, agent.model.durable, strict=True):
            assert request(Log(agent.log.header, lambda: 0, CORE, durable[:count])) == sent, "law 3"
        if not durable:
            return
        seen = await inspect(store, "s1")
        for one in seen.calls:
            assert one.verdict != "not_started" or one.call_id not in world.entered, "law 2"
        rule.off()
        store.rules.clear()
        async with composed([*script, "The end."], store, World()) as later:
            assert balanced(later.log)
            codes = {one.call_id: one.code for one in later.events(ev.ToolResult)}
            assert {one.call_id: one.code for one in seen.calls} == codes, "what was told is what repair wrote"

    run(scenario)


@SLOW
@given(SCRIPTS, st.integers(0, 60))
def test_a_cancel_at_any_moment_leaves_a_balanced_log(script, ticks):
    async def scenario():
        store, world = TouchyStore(), World()
        async with composed([*script, "The end."], store, world) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await agent.session.cancel()
            result = await turn
            assert balanced(agent.log)
            requests = len(agent.model.requests)
            not_started = [one.call_id for one in agent.events(ev.ToolResult) if one.code in v.NOT_ENTERED]
            assert not set(not_started) & set(world.entered), "law 2"
            if result.reason == "aborted":
                await asyncio.sleep(0.005)
                assert len(agent.model.requests) == requests
            again = await agent.session.prompt("again")
            assert again.reason in {"completed", "error"}
            assert balanced(agent.log)

    run(scenario)


@pytest.mark.parametrize("after", [0, 1])
def test_the_visible_part_of_a_cancelled_answer_never_reaches_a_provider(after):
    async def scenario():
        pause = Pause("half", after=after)
        async with Agent([[pause, "whole"]]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await pause.reached.wait()
            await agent.session.cancel()
            await turn
            await agent.session.prompt("again")
            roles = [type(message).__name__ for message in agent.model.requests[-1].messages]
            assert roles == ["UserTurn", "UserTurn"]
            await until(lambda: agent.session.idle)

    run(scenario)
