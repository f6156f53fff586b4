"""What the tests of MCP tools share: an agent with servers, and looks at their processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.runtime.rig import Agent

from fencepost.core import events as ev
from fencepost.plugins.mcp import Mcp, McpServer
from fencepost.plugins.mcp_record import TOKEN, ServerProcess, ServerStarting
from fencepost.runtime.toolrun import ToolRules

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
PATIENCE = 60.0
"""Seconds after which a condition that should come true is given up on."""

HERE = Path(__file__).parent
PEER = McpServer(command=sys.executable, args=(str(HERE / "mcp_peer.py"),))
RAW = McpServer(command=sys.executable, args=("-S", str(HERE / "mcp_raw.py")))


def run(scenario):
    """Run a scenario; a test that hangs is a test that fails."""
    return asyncio.run(asyncio.wait_for(scenario(), 2 * PATIENCE))


async def until(condition, what):
    """Wait for something that other processes do."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(0.005)


class McpAgent(Agent):
    """An agent with MCP servers.

    Args:
        answers: of the scripted model.
        servers: by name.
        more: as of `Agent`.
    """

    def __init__(self, answers, servers, **more):
        more.setdefault("rules", ToolRules())
        super().__init__(answers, plugins=[Mcp(servers), *more.pop("plugins", ())], **more)

    async def go(self, text="go"):
        """One turn."""
        return await self.session.prompt(text)

    def notes(self):
        """What people were told, beside progress."""
        return [one.text for one in self.notices if one.kind == "note"]

    def progress(self):
        """What was told of running calls."""
        return [one.text for one in self.notices if one.kind == "progress"]

    def last(self, kind):
        """The latest event of one kind."""
        return self.events(kind)[-1]

    def tokens(self):
        """Of all servers that were recorded."""
        return [one.token for one in self.events(ServerStarting)]

    def pids(self):
        """Of all servers that were recorded."""
        return [one.pid for one in self.events(ServerProcess)]

    def offered(self):
        """The tools that the model was told of, by name."""
        return {one.name: one for one in self.last(ev.RequestHeader).tools}


def carriers(tokens):
    """The processes that live with one of these tokens in their environment."""
    marks = {f"{TOKEN}={token}".encode() for token in tokens}
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if marks & set((entry / "environ").read_bytes().split(b"\0")):
                    found.append(int(entry.name))
    return found


def alive(pid):
    """Whether a process lives; one that nobody has collected does not."""
    with contextlib.suppress(OSError):
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    return False


def kill(pid):
    """End a process, and return when its parent has collected it; the event loop has seen nothing of it yet."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.kill(pid, 0)
            time.sleep(0.001)
        pytest.fail(f"{pid} does not end")
