"""What a command costs through the shell tool, receipts and all, beside a plain spawn of the same command.

Both run in turns. The plain one is what a program would do without any of it: `subprocess.run` with its output caught.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from bench.report import Aim, Row
from bench.sample import durations
from fencepost.plugins.shell import shell_tool
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.tools import CallContext

NOTE = "`bash -c true` both times; with the tool a supervisor, a started record and a done receipt, four syncs in all."


async def measure(directory: Path, rounds: int) -> list[Row]:
    """Run a command `rounds` times in both ways. The launcher is there already, as it is from the second call on."""
    await _through_the_tool(directory, "first")
    pairs = [(_plain(directory), await _through_the_tool(directory, str(number))) for number in range(rounds)]
    return [
        Row("plain spawn", "ms", durations([plain for plain, _ in pairs]).scaled(1e-6)),
        Row("shell tool", "ms", durations([tool for _, tool in pairs]).scaled(1e-6), None, NOTE),
        Row("added by the shell tool", "ms", durations([tool - plain for plain, tool in pairs]).scaled(1e-6), AIM),
    ]


AIM = Aim("under", 10)


def _plain(directory: Path) -> int:
    begun = time.perf_counter_ns()
    subprocess.run(["bash", "-c", "true"], cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    return time.perf_counter_ns() - begun


async def _through_the_tool(directory: Path, call_id: str) -> int:
    context = CallContext(call_id, "bench", directory, CancelSignal(), lambda _: None, directory / "files")
    body = shell_tool().body
    assert body is not None
    begun = time.perf_counter_ns()
    reply = await body(context, {"command": "true"})
    spent = time.perf_counter_ns() - begun
    assert not reply.is_error, reply
    return spent
