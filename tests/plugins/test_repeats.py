"""The repeat guard: only the same call with the same result, in a row, within what is one turn."""

import asyncio

import pytest
from tests.runtime.rig import Agent, TouchyStore, call, calls, run

from fencepost.core import events as ev
from fencepost.errors import ConfigError
from fencepost.plugins.repeats import SAME, Repeats
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import Composition
from fencepost.runtime.subjects import Deny
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext


class World:
    """Says something else at each of some moments."""

    def __init__(self, *moments):
        self.moments = moments
        self.count = 0

    def tools(self):
        @tool(effect="read")
        async def look(at: str = "") -> str:
            """Look."""
            self.count += 1
            return f"seen {sum(self.count > moment for moment in self.moments)}"

        @tool
        async def act() -> str:
            """Act."""
            return "done"

        @tool
        async def many(context: CallContext) -> str:
            """Look often."""
            replies = [await context.call("look", {}) for _ in range(9)]
            return " ".join(reply.code or "ok" for reply in replies)

        return [look, act, many]


def results(requests, *plugins, world=None):
    """The code of each result when these calls are made, one a step."""

    async def scenario():
        script = [*(calls(request) for request in requests), "ok"]
        async with Agent(script, tools=(world or World()).tools(), plugins=plugins) as agent:
            await agent.session.prompt("go")
            return agent

    agent = run(scenario)
    return [one.code or "ok" for one in agent.events(ev.ToolResult)], agent


LOOK, ACT = call("look"), call("act")


def test_the_same_call_with_the_same_result_is_not_made_again_and_again():
    codes, agent = results([LOOK] * 6, Repeats(same=3))
    assert codes == ["ok"] * 3 + ["DENIED"] * 3
    text = ev.text_of(agent.events(ev.ToolResult)[-1].content)
    assert "3 times in a row" in text
    assert "Change something" in text


def test_the_default_is_moderate():
    assert results([LOOK] * 7, Repeats())[0] == ["ok"] * SAME + ["DENIED"] * 2
    assert SAME == 5


@pytest.mark.parametrize(
    "requests",
    [
        [LOOK, LOOK, ACT, LOOK, LOOK],
        [LOOK, LOOK, call("look", {"at": "x"}), LOOK, LOOK],
        [LOOK, LOOK, call("look", {"at": ""}), call("look", {"at": ""})],
    ],
)
def test_another_call_between_begins_a_new_row(requests):
    assert results([*requests, LOOK], Repeats(same=3))[0] == ["ok"] * (len(requests) + 1)


def test_another_result_begins_a_new_row():
    codes, _ = results([LOOK] * 8, Repeats(same=3), world=World(2))
    assert codes == ["ok"] * 5 + ["DENIED"] * 3, "two of one kind, then three of another"


def test_calls_that_never_ran_neither_count_nor_interrupt():
    class NoAct:
        name, requires = "no-act", ()

        def apply(self, context):
            async def hook(candidate, go_on):
                return Deny("no") if candidate.tool.name == "act" else await go_on(candidate)

            context.hook(lambda hooks: hooks.tool_admit, Position.POLICY, hook)

    nothing = call("nothing")
    codes, _ = results([LOOK, ACT, LOOK, nothing, LOOK, ACT, LOOK], NoAct(), Repeats(same=3))
    assert codes == ["ok", "DENIED", "ok", "UNKNOWN_TOOL", "ok", "DENIED", "DENIED"]


def test_nested_calls_are_a_programs_business():
    codes, agent = results([call("many"), LOOK], Repeats(same=3))
    assert "DENIED" not in codes
    assert len(agent.events(ev.ToolCall)) == 11


def test_calls_of_one_answer_count_too():
    async def scenario():
        async with Agent([calls(*[ACT] * 5), "ok"], tools=World().tools(), plugins=[Repeats(same=3)]) as agent:
            await agent.session.prompt("go")
            assert agent.results() == ["act: ok"] * 3 + ["act: DENIED"] * 2

    run(scenario)


def test_a_new_turn_is_a_new_row():
    async def scenario():
        script = [calls(LOOK), calls(LOOK), "ok"] * 2
        async with Agent(script, tools=World().tools(), plugins=[Repeats(same=2)]) as agent:
            for _ in range(2):
                await agent.session.prompt("go")
            assert agent.results() == ["look: ok"] * 4

    run(scenario)


def test_the_row_goes_on_when_an_interrupted_turn_does():
    async def scenario():
        store, standing = TouchyStore(), asyncio.Event()
        script = [calls(LOOK), calls(LOOK), calls(LOOK), "ok"]

        def agent():
            return Agent(script, tools=World().tools(), plugins=[Repeats(same=2)], store=store)

        async def stop(plan, go_on):
            if plan.step == 3:
                standing.set()
                await asyncio.Event().wait()
            await go_on(plan)

        killed = await agent().__aenter__()
        killed.runtime.composition.registry.hooks.before_step.add("stop", Position.OBSERVE, stop)
        turn = asyncio.create_task(killed.session.prompt("go"))
        await standing.wait()
        await killed.session.journal.flush()
        await killed.session.journal._handle.inner.release()  # the process is gone, its lock with it
        async with agent() as later:
            await later.session.go_on()
            assert later.results() == ["look: ok", "look: ok", "look: DENIED"]
        turn.cancel()

    run(scenario)


def test_it_can_be_configured_and_turned_off():
    async def scenario(settings):
        script = [*[calls(LOOK)] * 8, "ok"]
        plugins = [Repeats()]
        async with Agent(script, tools=World().tools(), plugins=plugins, configured={"repeats": settings}) as agent:
            await agent.session.prompt("go")
            return agent.results().count("look: DENIED")

    assert run(lambda: scenario({"same": 7})) == 1
    assert run(lambda: scenario({"same": 0})) == 0
    assert Composition([Repeats()], {"repeats": {"same": 0}}).registry.hooks.tool_admit.owners() == []
    for wrong in ({"same": -1}, {"same": "often"}, {"times": 3}):
        with pytest.raises(ConfigError, match=r"\[plugin.repeats\]"):
            Composition([Repeats()], {"repeats": wrong})
