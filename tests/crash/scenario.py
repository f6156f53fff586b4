"""The agent of the enumerated crashes: two steps with calls, and a last one that says so.

step 1   look(left)    a read that lasts until the other one's result is durable
         erase(left)   denied by a person
         look(right)   a read that overlaps with the first
step 2   send(ada)     a write, during which a second prompt is queued
step 3   done; then a turn for the second prompt
"""

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import fencepost as fp
from fencepost.core import events as ev
from fencepost.journal.session import Identity
from fencepost.plugins.approval import Approval, Question, Verdict
from fencepost.plugins.shipped import ToolsPlugin
from fencepost.runtime.plugin import Plugin
from fencepost.runtime.runtime import Runtime
from fencepost.stores.base import Store
from fencepost.stores.jsonl import Disk, JsonlStore
from fencepost.testing import ScriptedModel
from tests.crash.boundaries import MarkedModel, Marks, Recorder
from tests.crash.world import World

SESSION = "scenario"
FIRST = "Look in both places, erase the left one, and tell Ada."
SECOND = "Thank you. Anything else?"
GATES = ("step", "request", "tool", "closing")


def call(name: str, **arguments: object) -> dict:
    """A call in chat form."""
    return {"id": f"call_{name}", "function": {"name": name, "arguments": json.dumps(arguments)}}


def asks(*calls: dict) -> dict:
    """An answer that asks for these calls; each gets an id of its own."""
    return {"content": "I do it.", "tool_calls": [{**item, "id": f"p{number}"} for number, item in enumerate(calls)]}


def answers(filler: str = "") -> list[dict | str]:
    """What the model says.

    Args:
        filler: text that makes messages and arguments longer.
    """
    left, right = call("look", place="left"), call("look", place="right")
    right["id"] = "call_look_right"
    return [
        {"content": f"I look around first. {filler}", "tool_calls": [left, call("erase", place="left"), right]},
        {"content": "", "tool_calls": [call("send", to="ada", text=f"All is well. {filler}")]},
        "Both places are as they should be, and Ada knows.",
        "No, that was all.",
    ]


class Agent:
    """A composed runtime whose bodies and requests are seen by a world.

    Args:
        life: a name for this process; its ids begin with it.
        recorder: takes copies on the way; None for an agent that is only to repair and to go on.
        policy: holds the gates; None: nobody does.
        filler: makes messages and arguments longer.
    """

    def __init__(
        self,
        store: Store,
        world: World,
        *,
        life: str,
        recorder: Recorder | None = None,
        policy: Plugin | None = None,
        filler: str = "",
    ) -> None:
        self.world = world
        self.recorder = recorder
        self.scripted = ScriptedModel(answers(filler))
        self._second = asyncio.Event()
        numbers = itertools.count()
        self.session: fp.Session | None = None
        plugins: list[Plugin] = [Approval("ask", self._ask), ToolsPlugin("tools", self._tools())]
        plugins += [policy] if policy else []
        plugins += [Marks(recorder)] if recorder else []
        self.runtime = Runtime(
            store,
            MarkedModel(self.scripted, recorder) if recorder else self.scripted,
            plugins,
            identity=Identity(life, lambda: 1_700_000_000_000, lambda prefix: f"{prefix}_{life}_{next(numbers)}"),
        )

    def _mark(self, kind: str, what: str) -> None:
        if self.recorder is not None:
            self.recorder.mark(kind, what)

    async def _ask(self, question: Question) -> Verdict:
        self._mark("approval", f"asked {question.tool}")
        return Verdict(allowed=question.tool != "erase", reason="not that one")

    def _body(self, call_id: str, name: str) -> None:
        self.world.enter(call_id)
        self._mark("body", f"entered {name}")

    def _effect(self, call_id: str, name: str, text: str) -> str:
        self.world.effect(call_id)
        self._mark("body", f"done {name}")
        return self.world.reply(call_id, text)

    def _tools(self) -> list[fp.Tool]:
        @fp.tool(effect="read")
        async def look(context: fp.CallContext, place: str) -> str:
            """Look at a place."""
            self._body(context.call_id, "look")
            if place == "left" and self.recorder is not None:
                await self._second.wait()
            return self._effect(context.call_id, "look", f"There is nothing at the {place}.")

        @fp.tool
        async def erase(context: fp.CallContext, place: str) -> str:
            """Erase a place."""
            self._body(context.call_id, "erase")
            return self._effect(context.call_id, "erase", f"Erased the {place}.")

        @fp.tool
        async def send(context: fp.CallContext, to: str, text: str) -> str:
            """Send a message."""
            self._body(context.call_id, "send")
            if self.recorder is not None:
                await self.ask(SECOND)
            return self._effect(context.call_id, "send", f"Sent to {to}: {text}")

        return [look, erase, send]

    async def ask(self, text: str) -> None:
        """Queue a prompt; the world sees when it is acknowledged."""
        assert self.session is not None
        self.world.acknowledge(await self.session.queue(text), text)
        self._mark("ack", text)

    async def watch(self, turns: int) -> None:
        """Show results as they become durable, until so many turns have ended."""
        assert self.session is not None
        async for event in self.session.events(durable=True):
            if isinstance(event, ev.ToolResult):
                text = ev.text_of(event.content)
                self.world.show(event.call_id, text)
                self._mark("ack", "result shown")
                if "right" in text:
                    self._second.set()
            if isinstance(event, ev.TurnEnd):
                assert event.reason == "completed", event
                turns -= 1
            if not turns:
                return


async def play(
    root: Path,
    recorder: Recorder,
    disk: Disk,
    policy: Plugin | None,
    *,
    wrap: Callable[[Store], Store] | None = None,
    filler: str = "",
) -> tuple[ev.Event, ...]:
    """Run the scenario on a real directory; two turns, from nothing to a closed session.

    Args:
        recorder: told of each boundary.
        disk: what the store works on.
        policy: holds the gates, or nobody.
        wrap: puts something between the runtime and the store.
        filler: makes messages and arguments longer.

    Returns:
        All that was in memory at its end.
    """
    store: Store = JsonlStore(root, disk=disk)
    world = recorder.world
    agent = Agent(wrap(store) if wrap else store, world, life="first", recorder=recorder, policy=policy, filler=filler)
    async with asyncio.timeout(60), agent.runtime as runtime:
        recorder.mark("body", "nothing yet")
        agent.session = session = await runtime.create(SESSION, root.parent)
        session.journal.log.subscribe(recorder.appended)
        await agent.ask(FIRST)
        await agent.watch(turns=2)
    recorder.mark("body", "closed")
    return tuple(event for event in session.journal.log.events() if isinstance(event, ev.Event))
