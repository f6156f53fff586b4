"""Which calls of one answer run side by side: reads, writes, and writes that name what they change."""

import asyncio
import itertools
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.runtime.rig import Agent, balanced, call, calls, run, until

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.runtime.lanes import ALONE, SHARED, Lane
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.toolrun import ToolRules


class Crowd:
    """Tools that say when they are entered, and leave when they are told to."""

    def __init__(self):
        self.inside = []
        self.entered = []
        self.met = []
        self.doors = {}

    def door(self, name):
        return self.doors.setdefault(name, asyncio.Event())

    async def visit(self, name):
        self.met += [(other, name) for other in self.inside]
        self.entered.append(name)
        self.inside.append(name)
        try:
            await self.door(name).wait()
        finally:
            self.inside.remove(name)
        return name

    def tools(self):
        @tool(effect="read")
        async def read(name: str) -> str:
            """Read."""
            return await self.visit(name)

        @tool
        async def write(name: str) -> str:
            """Write."""
            return await self.visit(name)

        @tool(lock=lambda args: args.path)
        async def save(name: str, path: Path | None = None) -> str:
            """Write one place."""
            return await self.visit(name)

        @tool(effect="idempotent", lock=lambda args: args.path)
        async def put(name: str, path: str) -> str:
            """Put into one place."""
            return await self.visit(name)

        return [read, write, save, put]


def save(name, path):
    return call("save", {"name": name, "path": path})


def named(kind, *names):
    return [call(kind, {"name": name}) for name in names]


async def groups(crowd, agent, *expected):
    """Each group is inside at the same time, and nobody else; then it leaves."""
    turn = asyncio.create_task(agent.session.prompt("go"))
    for group in expected:
        await until(lambda group=group: crowd.inside == group)
        for _ in range(50):
            await asyncio.sleep(0)
        assert crowd.inside == group
        for name in group:
            crowd.door(name).set()
    return await turn


CASES = {
    "writes to different places overlap": ([save("a", "x"), save("b", "y"), save("c", "z")], [["a", "b", "c"]]),
    "writes to one place do not": ([save("a", "x"), save("b", "x"), save("c", "x")], [["a"], ["b"], ["c"]]),
    "a name is one name for all tools": (
        [save("a", "x"), call("put", {"name": "b", "path": "x"}), call("put", {"name": "c", "path": "y"})],
        [["a"], ["b", "c"]],
    ),
    "a read behind a write has to see it": ([save("a", "x"), *named("read", "r", "s")], [["a"], ["r", "s"]]),
    "a write behind a read must not be seen by it": ([*named("read", "r", "s"), save("a", "x")], [["r", "s"], ["a"]]),
    "a write without a name is a barrier": (
        [save("a", "x"), *named("write", "w"), save("b", "y")],
        [["a"], ["w"], ["b"]],
    ),
    "a call that names nothing is as its effect says": ([save("a", None), save("b", "y")], [["a"], ["b"]]),
}


@pytest.mark.parametrize(("asked", "expected"), CASES.values(), ids=CASES.keys())
def test_side_by_side(asked, expected):
    async def scenario():
        crowd = Crowd()
        async with Agent([calls(*asked), "ok"], tools=crowd.tools(), rules=ToolRules()) as agent:
            assert (await groups(crowd, agent, *expected)).reason == "completed"
            assert balanced(agent.log)

    run(scenario)


def test_who_waits_for_a_place_holds_back_those_behind_it():
    """Starts keep the model's order: what may overlap with all that run does not overtake what may not."""

    async def scenario():
        crowd = Crowd()
        asked = [save("a", "x"), save("b", "x"), save("c", "y")]
        async with Agent([calls(*asked), "ok"], tools=crowd.tools()) as agent:
            await groups(crowd, agent, ["a"], ["b", "c"])
            assert crowd.entered == ["a", "b", "c"]

    run(scenario)


def test_results_of_keyed_calls_are_recorded_as_they_finish():
    async def scenario():
        crowd = Crowd()
        async with Agent([calls(save("a", "x"), save("b", "y"), save("c", "z")), "ok"], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: len(crowd.inside) == 3)
            for name in ("c", "a", "b"):
                crowd.door(name).set()
                await until(lambda name=name: name not in crowd.inside)
            await turn
            assert [ev.text_of(one.content) for one in agent.events(ev.ToolResult)] == ["c", "a", "b"]

    run(scenario)


def test_keyed_calls_keep_the_limit():
    async def scenario():
        crowd = Crowd()
        asked = [save(name, name) for name in "abcd"]
        async with Agent([calls(*asked), "ok"], tools=crowd.tools(), rules=ToolRules(parallel=2)) as agent:
            await groups(crowd, agent, ["a", "b"], ["c", "d"])

    run(scenario)


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_cancel_among_keyed_calls(finished):
    """0, 1 and n-1 of n results in: the running ones are unknown, the one that waits for its place is aborted."""

    async def scenario():
        crowd = Crowd()
        asked = [save("a", "x"), save("b", "y"), save("c", "z"), save("d", "z")]
        async with Agent([calls(*asked), "Fresh."], tools=crowd.tools()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: crowd.inside == ["a", "b", "c"])
            for name in "abc"[:finished]:
                crowd.door(name).set()
            await until(
                lambda: len(agent.results()) == finished and len(crowd.inside) == (1 if finished == 3 else 3 - finished)
            )
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            last = v.TOOL_OUTCOME_UNKNOWN if finished == 3 else v.ABORTED_BEFORE_DISPATCH
            codes = [
                agent.log.fold.calls[one.call_id].result.code for one in ev.calls_of(agent.one(ev.AssistantMessage))
            ]
            assert codes == [""] * finished + [v.TOOL_OUTCOME_UNKNOWN] * (3 - finished) + [last]
            assert balanced(agent.log)
            assert (await agent.session.prompt("again")).text == "Fresh."

    run(scenario)


# --- locks that break -------------------------------------------------------------------------------------------


def _raises(args):
    raise LookupError("no such account")


BROKEN = {
    "raises": (_raises, "LookupError: no such account"),
    "gives no name": (lambda args: ["x"], "the lock gave a list, which names nothing"),
}


@pytest.mark.parametrize(("lock", "why"), BROKEN.values(), ids=BROKEN.keys())
def test_a_call_whose_lock_breaks_is_refused_and_the_others_go_on(lock, why):
    async def scenario():
        entered = []

        @tool(lock=lock)
        async def pay(name: str) -> str:
            """Pay."""
            entered.append(name)
            return "paid"

        @tool
        async def act() -> str:
            """Act."""
            entered.append("act")
            return "ok"

        async with Agent([calls(call("pay", {"name": "a"}), call("act")), "ok"], tools=[pay, act]) as agent:
            assert (await agent.session.prompt("go")).reason == "completed"
            assert entered == ["act"]
            assert agent.results() == [f"pay: {v.DENIED}", "act: ok"]
            assert why in agent.text("pay")
            assert [one.name for one in agent.events(ev.ToolCall)] == ["act"]

    run(scenario)


def test_an_effect_that_cannot_be_told_is_a_refusal_too():
    async def scenario():
        @tool
        async def act() -> str:
            """Act."""
            raise AssertionError("must not run")

        def effect(arguments):
            raise LookupError("no such method")

        broken = msgspec.structs.replace(act, effect_by=effect)
        async with Agent([calls(call("act")), "ok"], tools=[broken]) as agent:
            assert (await agent.session.prompt("go")).reason == "completed"
            assert agent.results() == [f"act: {v.DENIED}"]

    run(scenario)


def test_a_lock_cannot_change_what_runs():
    async def scenario():
        seen = []

        @tool
        async def act(name: str) -> str:
            """Act."""
            seen.append(name)
            return "ok"

        def lock(arguments, cwd):
            arguments["name"] = "another"
            return "x"

        async with Agent(
            [calls(call("act", {"name": "this"})), "ok"], tools=[msgspec.structs.replace(act, lock=lock)]
        ) as agent:
            await agent.session.prompt("go")
            assert seen == ["this"]
            assert agent.one(ev.ToolCall).arguments == {"name": "this"}

    run(scenario)


# --- any order --------------------------------------------------------------------------------------------------

KINDS = {"read": SHARED, "write": ALONE, "x": Lane("x"), "y": Lane("y"), "z": Lane("z")}
batches = st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=9)


@settings(max_examples=40, deadline=None)
@given(batches, st.randoms(use_true_random=False), st.integers(1, 4))
def test_whatever_is_asked_for_and_however_it_ends(kinds, chance, parallel):
    """Starts keep the order, only what may stand side by side does, and never more than the limit."""

    async def scenario():
        crowd = Crowd()
        names = {f"{number}": KINDS[kind] for number, kind in enumerate(kinds)}
        asked = [
            save(name, kind) if len(kind) == 1 else call(kind, {"name": name})
            for name, kind in zip(names, kinds, strict=True)
        ]
        async with Agent([calls(*asked), "ok"], tools=crowd.tools(), rules=ToolRules(parallel=parallel)) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            for _ in names:
                await until(lambda: crowd.inside)
                for _ in range(chance.randrange(30)):
                    await asyncio.sleep(0)
                assert len(crowd.inside) <= parallel
                leaving = chance.choice(crowd.inside)
                crowd.door(leaving).set()
                await until(lambda leaving=leaving: leaving not in crowd.inside)
            await turn
            assert crowd.entered == list(names)
            assert all(names[one].beside(names[other]) for one, other in crowd.met)
            assert balanced(agent.log)

    run(scenario)


def test_beside_is_mutual_and_nothing_stands_beside_itself_but_what_is_shared():
    for one, other in itertools.product(KINDS.values(), repeat=2):
        assert one.beside(other) == other.beside(one)
    assert [name for name, lane in KINDS.items() if lane.beside(lane)] == ["read"]
