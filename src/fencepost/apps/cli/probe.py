"""The child that `fencepost doctor` kills: a real runtime on a real store, standing still at one gate.

python -m fencepost.apps.cli.probe lock FILE              try a lock that the parent holds; prints `free` or `held`
python -m fencepost.apps.cli.probe at GATE URL SESSION    run a turn up to GATE, say so, and wait for the end

request   the request gate let the model request go; no answer yet
tool      the tool gate let a call go, its body is entered
result    the result of the call is durable; the next request stands behind its gate
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import AsyncGenerator
from typing import Any

from fencepost.core.events import Json, ToolSpec
from fencepost.core.projection import ModelRequest
from fencepost.plugins.checkpoint import Checkpoint
from fencepost.plugins.shipped import ToolsPlugin
from fencepost.runtime.models import CallDelta, Finished, ModelDelta
from fencepost.runtime.plugin import Plugin
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.tools import CallContext, Tool
from fencepost.stores.urls import open_store

GATES = ("request", "tool", "result")
HERE = "here"
TOOL = "probe"


async def stand_still() -> None:
    """Say that the place is reached, and never go on; when the doctor is gone, leave."""
    sys.stdout.write(f"{HERE}\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.buffer.read)
    os._exit(1)


class ProbeModel:
    """Asks for one call; stands still where it is told to.

    Args:
        gate: one of `GATES`.
    """

    provider = "fencepost"
    model = "probe"

    def __init__(self, gate: str) -> None:
        self._gate = gate

    @property
    def settings(self) -> dict[str, Json]:
        """None."""
        return {}

    def body(self, request: ModelRequest) -> dict[str, Json]:  # noqa: ARG002 - nothing goes over a wire
        """Nothing."""
        return {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """One call, then nothing."""
        if self._gate == ("result" if request.answered else "request"):
            await stand_still()
        if not request.answered:
            yield CallDelta(0, "", TOOL, "{}")
            yield Finished("tool_calls")
        else:
            yield Finished("stop")

    async def close(self) -> None:
        """Nothing to release."""


def probe_tool(gate: str) -> Tool:
    """The tool that is called; its body may be where the child stands still."""

    async def body(context: CallContext, arguments: dict[str, Any]) -> str:  # noqa: ARG001 - the shape of a body
        if gate == "tool":
            await stand_still()
        return "done"

    spec = ToolSpec(TOOL, "Does nothing.", {"type": "object", "properties": {}, "additionalProperties": False})
    return Tool(spec=spec, body=body, effect="write")


async def at(gate: str, url: str, session: str) -> None:
    """Run a turn up to `gate`."""
    plugins: list[Plugin] = [Checkpoint(), ToolsPlugin("probe", [probe_tool(gate)])]
    async with Runtime(open_store(url), ProbeModel(gate), plugins) as runtime:
        await (await runtime.create(session)).prompt("probe")


def lock(path: str) -> str:
    """Whether the lock on a file that another process holds can be taken here."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    finally:
        os.close(fd)
    return "free"


if __name__ == "__main__":
    if sys.argv[1] == "lock":
        print(lock(sys.argv[2]))
    else:
        asyncio.run(at(*sys.argv[2:]))
