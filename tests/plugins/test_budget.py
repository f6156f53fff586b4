"""Budgets: what is denied when they are used up, what ends the turn, and that a crash fills none of them again."""

import asyncio

import pytest
from tests.runtime.rig import Agent, TouchyStore, balanced, call, calls, identity, run

from fencepost.core import events as ev
from fencepost.errors import ConfigError
from fencepost.plugins.approval import Approval, Verdict
from fencepost.plugins.budget import PATIENCE, Budget
from fencepost.runtime.hooks import Position
from fencepost.runtime.models import Finished, UsageDelta
from fencepost.runtime.plugin import Composition
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext
from fencepost.testing import ScriptedModel


@tool
async def act() -> str:
    """Act."""
    return "done"


@tool(effect="read")
async def look() -> str:
    """Look."""
    await asyncio.sleep(0)
    return "seen"


class Counted(ScriptedModel):
    """Says that each answer took 100 tokens in and 20 out."""

    async def stream(self, request):
        async for delta in super().stream(request):
            if isinstance(delta, Finished):
                yield UsageDelta(ev.Usage(100, 20))
            yield delta


class Clock:
    """Time that a test moves, in seconds."""

    def __init__(self):
        self.seconds = 0.0

    def __call__(self):
        return int(self.seconds * 1000)


def test_calls_beyond_the_budget_are_denied_and_the_model_may_finish():
    async def scenario():
        answers = [calls(call("act"), call("act")), calls(call("act"), call("act")), "ok"]
        async with Agent(answers, tools=[act], plugins=[Budget(calls=3)]) as agent:
            assert (await agent.session.prompt("go")).reason == "completed"
            assert agent.results() == ["act: ok", "act: ok", "act: ok", "act: DENIED"]
            last = ev.text_of(agent.events(ev.ToolResult)[-1].content)
            assert "3 of 3 calls" in last
            assert "[plugin.budget]" in last
            await agent.session.prompt("go")

    run(scenario)


def test_every_prompt_has_a_budget_of_its_own():
    async def scenario():
        answers = [calls(call("act"), call("act")), "ok", calls(call("act"), call("act")), "ok"]
        async with Agent(answers, tools=[act], plugins=[Budget(calls=1)]) as agent:
            for _ in range(2):
                await agent.session.prompt("go")
            assert agent.results() == ["act: ok", "act: DENIED"] * 2

    run(scenario)


def test_a_model_that_goes_on_calling_is_stopped():
    async def scenario():
        answers = [calls(call("act"))] * 50
        async with Agent(answers, tools=[act], plugins=[Budget(calls=2)]) as agent:
            result = await agent.session.prompt("go")
            assert (result.reason, result.code) == ("blocked", "BLOCKED")
            assert "2 of 2 calls" in result.message
            assert agent.results() == ["act: ok"] * 2 + ["act: DENIED"] * PATIENCE
            assert balanced(agent.log)

    run(scenario)


def test_nested_calls_count_also_when_they_come_at_once():
    async def scenario():
        @tool
        async def outer(context: CallContext) -> str:
            """Call many."""
            replies = await asyncio.gather(*(context.call("look", {}) for _ in range(10)))
            return " ".join(reply.code or "ok" for reply in replies)

        async with Agent([calls(call("outer")), "ok"], tools=[outer, look], plugins=[Budget(calls=4)]) as agent:
            await agent.session.prompt("go")
            assert len(agent.events(ev.ToolCall)) == 4
            assert agent.text("outer").split().count("DENIED") == 7

    run(scenario)


def test_a_call_that_a_person_denies_costs_nothing():
    async def scenario():
        answers = iter([False, True, True])

        async def ask(question):
            return Verdict(allowed=next(answers))

        script = [calls(call("act"), call("act"), call("act")), "ok"]
        async with Agent(script, tools=[act], plugins=[Approval("ask", ask), Budget(calls=1)]) as agent:
            await agent.session.prompt("go")
            assert agent.results() == ["act: DENIED", "act: ok", "act: DENIED"]
            assert len(agent.events(ev.ApprovalAsked)) == 2, "nobody is asked about what the budget denies"

    run(scenario)


def test_tokens_deny_calls_and_end_the_turn():
    async def scenario():
        model = Counted([calls(call("act")), calls(call("act"), call("act")), "never asked for"])
        async with Agent(model, tools=[act], plugins=[Budget(tokens=240)]) as agent:
            result = await agent.session.prompt("go")
            assert result.reason == "blocked"
            assert "240 of 240 tokens" in result.message
            assert agent.results() == ["act: ok", "act: DENIED", "act: DENIED"]
            assert agent.one(ev.TurnEnd).reason == "blocked"
            assert len(model.requests) == 2
            assert balanced(agent.log)

    run(scenario)


def test_an_answer_that_comes_to_its_end_is_not_lost():
    async def scenario():
        async with Agent(Counted(["ok", "ok"]), plugins=[Budget(tokens=10)]) as agent:
            for _ in range(2):
                assert (await agent.session.prompt("go")).reason == "completed"

    run(scenario)


def test_seconds_deny_calls_and_end_the_turn_and_people_may_think():
    async def scenario():
        clock = Clock()

        @tool
        async def work(seconds: int) -> str:
            """Work."""
            clock.seconds += seconds
            return "done"

        async def ask(question):
            clock.seconds += 1000
            return Verdict(allowed=True)

        script = [
            calls(call("work", {"seconds": 5})),
            calls(call("work", {"seconds": 6}), call("work", {"seconds": 1})),
        ]
        plugins = [Budget(seconds=10), Approval("ask", ask)]
        async with Agent(script, tools=[work], plugins=plugins, who=identity(clock)) as agent:
            result = await agent.session.prompt("go")
            assert result.reason == "blocked"
            assert "11 of 10 seconds" in result.message
            assert agent.results() == ["work: ok", "work: ok", "work: DENIED"]

    run(scenario)


@pytest.mark.parametrize(
    ("limit", "results", "reason"),
    [
        ({"calls": 2}, ["act: ok", "act: DENIED"], "completed"),
        ({"tokens": 241}, ["act: ok", "act: ok"], "completed"),
        ({"tokens": 240}, ["act: DENIED", "act: DENIED"], "blocked"),
        ({"seconds": 12}, ["act: ok", "act: ok"], "completed"),
        ({"seconds": 7}, [], "blocked"),
    ],
)
def test_what_an_interrupted_turn_used_counts_when_it_is_gone_on_with(limit, results, reason):
    """Before the crash: one call, 120 tokens and 7 seconds. The hours until the resume count for nobody."""

    async def scenario():
        clock, store, standing = Clock(), TouchyStore(), asyncio.Event()

        @tool(name="act")
        async def first() -> str:
            """Act."""
            clock.seconds += 7
            return "done"

        script = [calls(call("act")), calls(call("act"), call("act")), "ok"]

        def agent(acting):
            more = {"configured": {"budget": limit}, "who": identity(clock), "store": store}
            return Agent(Counted(script), tools=[acting], plugins=[Budget()], **more)

        killed = await agent(first).__aenter__()
        killed.runtime.composition.registry.hooks.before_step.add("stop", Position.OBSERVE, _stop_at(2, standing))
        turn = asyncio.create_task(killed.session.prompt("go"))
        await standing.wait()
        await killed.session.journal.flush()
        await killed.session.journal._handle.inner.release()  # the process is gone, its lock with it
        clock.seconds += 10_000
        async with agent(act) as later:
            start = later.log.fold.next_seq
            result = await later.session.go_on()
            assert result.reason == reason
            new = [one for one in later.events(ev.ToolResult) if one.seq >= start]
            assert [f"act: {one.code or 'ok'}" for one in new] == results
        turn.cancel()

    run(scenario)


def _stop_at(step, standing):
    async def hook(plan, go_on):
        if plan.step == step:
            standing.set()
            await asyncio.Event().wait()
        await go_on(plan)

    return hook


def test_without_a_limit_nobody_stands_there():
    hooks = Composition([Budget()], {}).registry.hooks
    assert (hooks.tool_admit.owners(), hooks.before_step.owners()) == ([], [])


@pytest.mark.parametrize("wrong", [{"calls": -1}, {"seconds": 0}, {"tokens": "many"}, {"call": 1}])
def test_a_budget_that_is_none(wrong):
    with pytest.raises(ConfigError, match=r"\[plugin.budget\]"):
        Composition([Budget()], {"budget": wrong})
