"""The contract of cancels and time limits, the same for async bodies, threads and processes, in every lane.

n calls have n results, whenever the cancel comes: real ones for what finished, unknown for what runs, aborted for what
has not started.
"""

import asyncio
import threading
import time

import msgspec
import pytest
from tests.runtime.rig import Agent, balanced, call, calls, run

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.plugins.shell import shell_tool
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.toolrun import ToolRules
from fencepost.runtime.tools import CallContext

RULES = ToolRules(settle=0.05, drain=5.0)
NAMES = ("a", "b", "c")


class Async:
    """Bodies on the loop."""

    def __init__(self, place):
        self.entered, self.doors = set(), {name: asyncio.Event() for name in NAMES}

        @tool
        async def work(name: str) -> str:
            """Work."""
            self.entered.add(name)
            await self.doors[name].wait()
            return f"{name} was here"

        self.tool = work

    def call(self, name):
        return call("work", {"name": name})

    def inside(self, name):
        return name in self.entered

    def let_go(self, name):
        self.doors[name].set()


class Thread(Async):
    """Bodies in threads; what is given up on still waits at its door."""

    def __init__(self, place):
        super().__init__(place)
        self.doors = {name: threading.Event() for name in NAMES}

        @tool
        def work(name: str) -> str:
            """Work."""
            self.entered.add(name)
            self.doors[name].wait(20)
            return f"{name} was here"

        self.tool = work


class Process:
    """Commands."""

    def __init__(self, place):
        self.place = place
        self.tool = shell_tool()

    def call(self, name):
        at = self.place
        command = f"touch {at}/in-{name}; while [ ! -e {at}/go-{name} ]; do sleep 0.01; done; echo {name} was here"
        return call(self.tool.name, {"command": command})

    def inside(self, name):
        return (self.place / f"in-{name}").exists()

    def let_go(self, name):
        (self.place / f"go-{name}").touch()


KINDS = [Async, Thread, Process]
LANES = {
    "alone": {},
    "shared": {"parallel": True},
    "keyed": {"lock": lambda arguments, _: str(arguments)},
}


async def seen(condition):
    """Wait for what another thread or process does."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)  # nothing here tells when a process did something


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__.lower())
def kind(request, tmp_path):
    made = []

    def make():
        made.append(request.param(tmp_path))
        return made[-1]

    yield make
    for one in made:
        for name in NAMES:
            one.let_go(name)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("finished", [0, 1, 2])
def test_a_cancel_with_some_results_in(kind, lane, finished):
    async def scenario():
        crowd = kind()
        offered = msgspec.structs.replace(crowd.tool, **LANES[lane])
        asked = calls(*[crowd.call(name) for name in NAMES])
        async with Agent([asked, "Fresh."], tools=[offered], rules=RULES) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            for number, name in enumerate(NAMES[:finished]):
                await seen(lambda name=name: crowd.inside(name))
                crowd.let_go(name)
                await seen(lambda number=number: len(agent.results()) > number)
            running = NAMES[finished : finished + 1] if lane == "alone" else NAMES[finished:]
            await seen(lambda: all(crowd.inside(name) for name in running))
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            (answer,) = agent.events(ev.AssistantMessage)
            ends = [agent.log.fold.calls[one.call_id] for one in ev.calls_of(answer)]
            unknown, aborted = len(running), len(NAMES) - finished - len(running)
            assert [one.result.code for one in ends] == [
                *[""] * finished,
                *[v.TOOL_OUTCOME_UNKNOWN] * unknown,
                *[v.ABORTED_BEFORE_DISPATCH] * aborted,
            ]
            assert sum(one.admitted is not None for one in ends) == finished + unknown
            assert all("was here" in ev.text_of(one.result.content) for one in ends[:finished])
            assert balanced(agent.log)
            assert (await agent.session.prompt("again")).text == "Fresh."

    run(scenario)


def test_a_time_limit_is_unknown_and_the_turn_goes_on(kind):
    """In the words of repair: nobody is invited to repeat it."""

    async def scenario():
        crowd = kind()
        offered = msgspec.structs.replace(crowd.tool, timeout=0.1)
        async with Agent([calls(crowd.call("a")), "Fine."], tools=[offered], rules=RULES) as agent:
            assert (await agent.session.prompt("go")).text == "Fine."
            (result,) = agent.events(ev.ToolResult)
            assert result.code == v.TOOL_OUTCOME_UNKNOWN
            why = "the call was still running when its time limit of 0.1 s ran out"
            assert ev.text_of(result.content).startswith(v.unknown_text(why))

    run(scenario)


def test_what_a_cancelled_thread_says_later_is_a_note_in_every_lane():
    async def scenario():
        crowd = Thread(None)
        offered = msgspec.structs.replace(crowd.tool, parallel=True)
        asked = calls(*[crowd.call(name) for name in NAMES])
        async with Agent([asked, "Fresh."], tools=[offered], rules=RULES) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await seen(lambda: all(crowd.inside(name) for name in NAMES))
            await agent.session.cancel()
            await turn
            results = agent.events(ev.ToolResult)
            for name in NAMES:
                crowd.let_go(name)
            await seen(lambda: len(agent.events(ev.ToolNote)) == len(NAMES))
            assert agent.events(ev.ToolResult) == results
            assert {one.call_id for one in agent.events(ev.ToolNote)} == {one.call_id for one in results}
            assert (await agent.session.prompt("again")).text == "Fresh."

    run(scenario)


@pytest.mark.parametrize("lane", LANES)
def test_a_swallowed_cancellation_does_not_win_in_any_lane(lane):
    async def scenario():
        entered = []

        @tool
        async def stubborn(context: CallContext, name: str) -> str:
            """Says that all is well, whatever happens."""
            entered.append(name)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "all is well"
            return "impossible"

        offered = msgspec.structs.replace(stubborn, **LANES[lane])
        asked = calls(*[call("stubborn", {"name": name}) for name in NAMES])
        async with Agent([asked, "never"], tools=[offered], rules=RULES) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            running = 1 if lane == "alone" else len(NAMES)
            await seen(lambda: len(entered) == running)
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            codes = [one.code for one in agent.events(ev.ToolResult)]
            assert codes.count(v.TOOL_OUTCOME_UNKNOWN) == running
            assert codes.count(v.ABORTED_BEFORE_DISPATCH) == len(NAMES) - running
            assert len(agent.model.requests) == 1, "no further request"

    run(scenario)


def test_a_cancelled_process_takes_its_children_with_it(tmp_path):
    """What a command had started does not act after the result said that it was over."""

    async def scenario():
        asked = call("shell", {"command": f"(touch {tmp_path}/in; sleep 0.4; touch {tmp_path}/effect) & wait"})
        async with Agent([calls(asked)], tools=[shell_tool()], rules=RULES) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await seen((tmp_path / "in").exists)
            await agent.session.cancel()
            await turn
            assert agent.results() == [f"shell: {v.TOOL_OUTCOME_UNKNOWN}"]
            await asyncio.sleep(0.8)  # longer than the child would have needed
            assert not (tmp_path / "effect").exists()

    run(scenario)
