"""The process that is killed: a small agent with a scripted model, whose bodies and effects leave lines in a file.

    python -m tests.crash.child STORE WORLD SCRIPT [--continue] [--early] [PROMPT...]

STORE is a store's URL. It makes the session, or resumes it; goes on with what was interrupted if it is told to; then
runs the prompts, one after another, or (`--early`) queues all of them while the first one runs. WORLD is appended to
with one `write` a line, so that what it says survives a SIGKILL: `entered ID`, `done ID`, `replied ID TEXT`, `ack
INPUT TEXT`, `refused TEXT`, `shown ID TEXT`, `request SHA256`, `ended REASON CODE`.
"""

import asyncio
import contextlib
import hashlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Literal

import msgspec

import fencepost as fp
from fencepost.core import events as ev
from fencepost.core.projection import ModelRequest
from fencepost.errors import NotSavedError
from fencepost.plugins.openai_wire import chat_body
from fencepost.plugins.script import ScriptModel
from fencepost.runtime.models import ModelDelta
from tests.crash.scenario import SESSION


class WorldFile:
    """The world, as lines of a file that no store knows."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def note(self, kind: str, *values: str) -> None:
        line = b"\t".join([kind.encode(), *(msgspec.json.encode(value) for value in values)]) + b"\n"
        assert os.write(self._fd, line) == len(line)


def tools(world: WorldFile) -> list[fp.Tool]:
    """A write, a read, a read that never comes back, and a write that makes that one."""

    def body(context: fp.CallContext, text: str) -> str:
        world.note("entered", context.call_id)
        world.note("done", context.call_id)
        world.note("replied", context.call_id, text)
        return text

    @fp.tool
    async def send(context: fp.CallContext, text: str) -> str:
        """Send a text."""
        return body(context, f"Sent: {text}")

    @fp.tool(effect="read")
    async def look(context: fp.CallContext, place: str) -> str:
        """Look at a place."""
        return body(context, f"There is nothing at the {place}.")

    @fp.tool(effect="read")
    async def hang(context: fp.CallContext) -> str:
        """Never come back."""
        world.note("entered", context.call_id)
        await asyncio.Event().wait()
        return "impossible"

    @fp.tool
    async def nest(context: fp.CallContext, gate: Literal["parent", "own"]) -> str:
        """Call something that never comes back."""
        world.note("entered", context.call_id)
        return (await context.call("hang", {}, gate=gate)).text

    return [send, look, hang, nest]


class NotedModel(ScriptModel):
    """A scripted model whose requests are noted when they leave."""

    def __init__(self, path: Path, world: WorldFile) -> None:
        super().__init__(path)
        self._world = world

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        self._world.note("request", fingerprint(request))
        async for delta in super().stream(request):
            yield delta


def fingerprint(request: ModelRequest) -> str:
    """What a request is recognised by: its bytes on the wire."""
    return hashlib.sha256(msgspec.json.encode(chat_body(request))).hexdigest()


async def show(session: fp.Session, world: WorldFile) -> None:
    """Show results when they are durable."""
    async for event in session.events(durable=True):
        if isinstance(event, ev.ToolResult):
            world.note("shown", event.call_id, ev.text_of(event.content))


async def ask(session: fp.Session, world: WorldFile, text: str) -> bool:
    """Queue a prompt, and say whether it is acknowledged."""
    try:
        input_id = await session.queue(text)
    except NotSavedError:
        world.note("refused", text)
        return False
    world.note("ack", input_id, text)
    return True


async def ends(session: fp.Session, world: WorldFile, start: int, turns: int) -> None:
    """Wait until so many turns have ended, and their closing gates with them."""
    events = session.events(start)
    while turns:
        event = await anext(events)
        if isinstance(event, ev.TurnEnd):
            turns -= 1
            with contextlib.suppress(NotSavedError):
                await session.journal.flush()
            world.note("ended", event.reason, event.code)


async def run(session: fp.Session, world: WorldFile, prompts: list[str], *, early: bool) -> None:
    """Run the prompts."""
    for group in [prompts] if early else [[prompt] for prompt in prompts]:
        start = session.journal.log.fold.next_seq
        accepted = [await ask(session, world, prompt) for prompt in group]
        await ends(session, world, start, sum(accepted))


async def main(store: str, world_path: str, script: str, arguments: list[str]) -> int:
    """Returns 0, or 3 where the last events could not be saved."""
    world = WorldFile(Path(world_path))
    model = NotedModel(Path(script), world)
    runtime = fp.open(store, model=model, tools=tools(world))
    try:
        await live(runtime, world, arguments)
        await runtime.close()
    except NotSavedError:
        return 3
    return 0


async def live(runtime: fp.Runtime, world: WorldFile, arguments: list[str]) -> None:
    """Make or resume the session, do what is asked, and close it."""
    there = SESSION in await runtime.store.sessions()
    session = await (runtime.resume(SESSION) if there else runtime.create(SESSION, Path("/")))
    showing = asyncio.create_task(show(session, world))
    if "--continue" in arguments:
        result = await session.go_on()
        if result is not None:
            world.note("ended", result.reason, result.code)
    prompts = [prompt for prompt in arguments if not prompt.startswith("--")]
    await run(session, world, prompts, early="--early" in arguments)
    try:
        await session.close()
    finally:
        await showing


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])))
