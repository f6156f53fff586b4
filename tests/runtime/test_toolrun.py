"""Which call runs when, and that each has exactly one result on every way out."""

import asyncio

import pytest
from tests.runtime.rig import QUICK, Agent, At, balanced, call, calls, run, until

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.runtime.hooks import Position
from fencepost.runtime.subjects import Admit
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.toolrun import ToolRules
from fencepost.runtime.tools import CallContext


class Crowd:
    """Tools that say when they are entered, and leave when they are told to."""

    def __init__(self):
        self.inside = []
        self.most = 0
        self.entered = []
        self.doors = {}

    def door(self, name):
        return self.doors.setdefault(name, asyncio.Event())

    async def visit(self, name):
        self.entered.append(name)
        self.inside.append(name)
        self.most = max(self.most, len(self.inside))
        try:
            await self.door(name).wait()
        finally:
            self.inside.remove(name)
        return f"{name} was here"

    def tools(self):
        @tool(effect="read")
        async def read(name: str) -> str:
            """Read."""
            return await self.visit(name)

        @tool(effect="write")
        async def write(name: str) -> str:
            """Write."""
            return await self.visit(name)

        @tool(effect="idempotent")
        async def put(name: str) -> str:
            """Put."""
            return await self.visit(name)

        @tool(effect="write", parallel=True)
        async def send(name: str) -> str:
            """Send."""
            return await self.visit(name)

        return [read, write, put, send]


def named(kind, *names):
    return [call(kind, {"name": name}) for name in names]


# --- scheduling -------------------------------------------------------------------------------------------------


def test_reads_overlap_up_to_eight():
    async def scenario():
        crowd, names = Crowd(), [f"r{number}" for number in range(11)]
        async with Agent([calls(*named("read", *names)), "ok"], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: len(crowd.inside) == 8)
            await asyncio.sleep(0.01)
            assert crowd.entered == names[:8]
            crowd.door("r5").set()
            await until(lambda: "r8" in crowd.inside)
            for name in names:
                crowd.door(name).set()
            await turn
            assert crowd.most == 8
            assert len(agent.results()) == 11

    run(scenario)


def test_how_many_overlap_is_a_setting():
    async def scenario():
        crowd, names = Crowd(), ["a", "b", "c"]
        rules = ToolRules(parallel=2)
        async with Agent([calls(*named("read", *names)), "ok"], tools=crowd.tools(), rules=rules) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: len(crowd.inside) == 2)
            for name in names:
                crowd.door(name).set()
            await turn
            assert crowd.most == 2

    run(scenario)


@pytest.mark.parametrize("kind", ["write", "put"])
def test_a_call_that_does_not_overlap_is_a_barrier(kind):
    async def scenario():
        crowd = Crowd()
        answer = calls(*named("read", "a", "b"), *named(kind, "w", "x"), *named("read", "c", "d"))
        async with Agent([answer, "ok"], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            for group in (["a", "b"], ["w"], ["x"], ["c", "d"]):
                await until(lambda group=group: crowd.inside == group)
                await asyncio.sleep(0.01)
                assert crowd.inside == group
                for name in group:
                    crowd.door(name).set()
            await turn
            assert crowd.entered == ["a", "b", "w", "x", "c", "d"]

    run(scenario)


def test_a_tool_may_say_that_its_calls_overlap():
    async def scenario():
        crowd = Crowd()
        async with Agent([calls(*named("send", "a", "b")), "ok"], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: crowd.inside == ["a", "b"])
            crowd.door("a").set()
            crowd.door("b").set()
            await turn

    run(scenario)


def test_a_finished_sibling_is_durable_while_a_slow_one_runs():
    async def scenario():
        crowd = Crowd()
        async with Agent([calls(*named("read", "a", "b", "c")), "ok"], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: len(crowd.inside) == 3)
            crowd.door("b").set()
            crowd.door("c").set()
            await until(lambda: len(agent.results()) == 2)
            last = agent.events(ev.ToolResult)[-1].seq
            await until(lambda: agent.session.journal.watermark >= last)  # nobody flushes: a result is written at once
            stored = await agent.store.read("s1")
            assert sum(isinstance(entry, ev.ToolResult) for entry in stored.entries) == 2
            crowd.door("a").set()
            await turn
            texts = [ev.text_of(one.content) for one in agent.events(ev.ToolResult)]
            assert texts == ["b was here", "c was here", "a was here"]

    run(scenario)


# --- cancel: always n results -----------------------------------------------------------------------------------


@pytest.mark.parametrize("finished", [0, 1, 4])
def test_cancel_in_a_batch_of_reads(finished):
    """0, 1 and n-1 of n results in: finished ones real, running ones unknown."""

    async def scenario():
        crowd, names = Crowd(), ["a", "b", "c", "d", "e"]
        async with Agent([calls(*named("read", *names)), "Fresh."], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: len(crowd.inside) == 5)
            for name in names[:finished]:
                crowd.door(name).set()
            await until(lambda: len(agent.results()) == finished)
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            codes = [one.code for one in agent.events(ev.ToolResult)]
            assert codes == [""] * finished + [v.TOOL_OUTCOME_UNKNOWN] * (5 - finished)
            assert balanced(agent.log)
            assert (await agent.session.prompt("again")).text == "Fresh."

    run(scenario)


def test_cancel_while_calls_wait_for_room():
    async def scenario():
        crowd, names = Crowd(), [f"r{number}" for number in range(11)]
        async with Agent([calls(*named("read", *names))], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: len(crowd.inside) == 8)
            await agent.session.cancel()
            await turn
            codes = [one.code for one in agent.events(ev.ToolResult)]
            assert sorted(codes) == [v.ABORTED_BEFORE_DISPATCH] * 3 + [v.TOOL_OUTCOME_UNKNOWN] * 8
            assert len(agent.events(ev.ToolCall)) == 8, "nothing is let go any more"

    run(scenario)


def test_cancel_in_a_batch_of_writes_starts_nothing_more():
    async def scenario():
        crowd = Crowd()
        async with Agent([calls(*named("write", "a", "b", "c")), "Fresh."], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            crowd.door("a").set()
            await until(lambda: crowd.inside == ["b"])
            await agent.session.cancel()
            await turn
            assert agent.results() == [
                "write: ok",
                f"write: {v.TOOL_OUTCOME_UNKNOWN}",
                f"write: {v.ABORTED_BEFORE_DISPATCH}",
            ]
            assert crowd.entered == ["a", "b"]
            assert len(agent.events(ev.ToolCall)) == 2
            assert (await agent.session.prompt("again")).text == "Fresh."

    run(scenario)


def test_a_body_that_ends_by_itself_after_the_cancel_is_heard():
    async def scenario():
        entered = asyncio.Event()

        @tool
        async def tidy(context: CallContext) -> str:
            """Tidy."""
            entered.set()
            await context.cancel.wait()
            return "left everything tidy"

        async with Agent([calls(call("tidy"))], tools=[tidy], rules=ToolRules(settle=5)) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert agent.results() == ["tidy: ok"]
            assert len(agent.model.requests) == 1

    run(scenario)


def test_cancel_while_a_policy_waits_for_a_person():
    async def scenario():
        asked = asyncio.Event()

        async def ask(candidate, go_on):
            asked.set()
            await asyncio.Event().wait()

        crowd = Crowd()
        plugins = [At("tool_admit", ask)]
        async with Agent([calls(*named("write", "a", "b")), "Fresh."], tools=crowd.tools(), plugins=plugins) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await asked.wait()
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert agent.results() == [f"write: {v.ABORTED_BEFORE_DISPATCH}"] * 2
            assert agent.events(ev.ToolCall) == []
            assert crowd.entered == []

    run(scenario)


def test_a_policy_that_ignores_the_cancel_and_says_yes_later_lets_nothing_in():
    async def scenario():
        asked, answered = asyncio.Event(), asyncio.Event()

        async def ask(candidate, go_on):
            asked.set()
            while not answered.is_set():
                try:
                    await answered.wait()
                except asyncio.CancelledError:
                    continue
            return Admit()

        crowd = Crowd()
        plugins = [At("tool_admit", ask)]
        async with Agent([calls(*named("write", "a"))], tools=crowd.tools(), plugins=plugins) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await asked.wait()
            await agent.session.cancel()
            await turn
            answered.set()
            await asyncio.sleep(0.01)
            assert crowd.entered == []
            assert balanced(agent.log)

    run(scenario)


# --- faults -----------------------------------------------------------------------------------------------------


def test_a_fault_stops_the_step_and_leaves_a_balanced_transcript():
    async def scenario():
        crowd = Crowd()

        async def broken(call, go_on):
            if call.event.arguments["name"] == "b":
                raise ZeroDivisionError("oh")
            return await go_on(call)

        crowd.door("a").set()
        plugins = [At("tool_execute", broken, Position.OBSERVE)]
        async with Agent([calls(*named("write", "a", "b", "c"))], tools=crowd.tools(), plugins=plugins) as agent:
            result = await agent.session.prompt("go")
            assert (result.reason, result.code, result.message) == ("error", "INTERNAL", "ZeroDivisionError: oh")
            assert agent.results() == [
                "write: ok",
                f"write: {v.ABORTED_BEFORE_DISPATCH}",
                f"write: {v.ABORTED_BEFORE_DISPATCH}",
            ]
            assert crowd.entered == ["a"]
            assert balanced(agent.log)

    run(scenario)


def test_the_end_of_the_event_loop_leaves_no_false_innocence():
    """The loop is torn down under a running body: every task is cancelled, as `asyncio.run` does at its end."""
    kept = {}

    async def scenario():
        crowd = Crowd()
        agent = Agent([calls(*named("read", "a", "b"), *named("write", "c"))], tools=crowd.tools(), rules=QUICK)
        await agent.__aenter__()
        kept["log"], kept["prompt"] = agent.log, asyncio.create_task(agent.session.prompt("go"))
        await until(lambda: crowd.inside == ["a", "b"])

    run(scenario)
    log = kept["log"]
    codes = [record.result.code for record in log.fold.calls.values()]
    assert codes == [v.TOOL_OUTCOME_UNKNOWN, v.TOOL_OUTCOME_UNKNOWN, v.ABORTED_BEFORE_DISPATCH]
    assert balanced(log)
