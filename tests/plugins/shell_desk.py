"""One session's place for calls of the shell tool: makes contexts, runs calls, finds what is left of them.

Every process of a call carries its id in the environment. `survivors` finds them all by it, wherever they hide:
in the background, in another session, below another parent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from fencepost.plugins.shell import shell_tool
from fencepost.plugins.shell_receipts import Attempt, attempts
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.settlement import Completed, DidNotRun, Settlement, StillRunning, Unknown, UnsettledCall
from fencepost.runtime.tools import CallContext, Tool, ToolReply

PATIENCE = 30.0
"""Seconds after which a condition that should come true is given up on."""


class Desk:
    """One session's place: makes contexts, runs calls, finds what is left of them."""

    def __init__(self, place: Path) -> None:
        self.cwd = place / "work"
        self.cwd.mkdir()
        self.files = place / "files"
        self.call_id = f"c{os.getpid()}.{time.monotonic_ns()}"
        self.cancel = CancelSignal()
        self.heard: list[str] = []
        self.progress: Callable[[str], None] = self.heard.append

    @property
    def context(self) -> CallContext:
        return CallContext(self.call_id, "s1", self.cwd, self.cancel, lambda text: self.progress(text), self.files)

    async def call(self, command: str, timeout: float | None = None, tool: Tool | None = None) -> ToolReply:
        made = tool or shell_tool()
        assert made.body is not None
        reply = await made.body(self.context, {"command": command, "timeout": timeout})
        assert isinstance(reply, ToolReply)
        return reply

    def run(self, command: str, timeout: float | None = None, tool: Tool | None = None) -> ToolReply:
        return asyncio.run(self.call(command, timeout, tool))

    @property
    def log(self) -> Path:
        return self.files / f"{self.call_id}.log"

    @property
    def attempt(self) -> Attempt:
        """The only run of the call, from its receipts."""
        (only,) = attempts(self.files, self.call_id)
        return only

    @property
    def receipts(self) -> Path:
        return self.files / "receipts"

    def settle(self, owner: str = "", *, vouched: bool = True) -> Settlement:
        """What the tool says about the call after a crash."""
        arguments = {"command": "unknown to it"}
        case = UnsettledCall(self.call_id, "s1", "shell", arguments, "write", 1, self.cwd, self.files, owner, vouched)
        settle = shell_tool().settle
        assert settle is not None
        said = settle(case)
        assert isinstance(said, Completed | DidNotRun | StillRunning | Unknown)
        return said

    def survivors(self) -> list[int]:
        mark = f"FENCEPOST_CALL_ID={self.call_id}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    if mark in (entry / "environ").read_bytes() + b"\0":
                        found.append(int(entry.name))
        return found


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.005)
