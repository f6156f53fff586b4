"""`fencepost inspect`: for each call of a session, what the log lets us claim."""

from __future__ import annotations

import argparse
import sys

import msgspec

from fencepost.apps.cli.looking import Desk, look, status_for
from fencepost.journal.inspect import CallView, Inspection, examine

MEANINGS = {
    "completed": "it finished; its result is in the log",
    "not_started": "its body certainly did not run: retry it if it is still needed",
    "outcome_unknown": "it may have run, fully or partly: retry only if read-only or idempotent, else verify first",
    "running": "the process that owns the session is at it; no verdict before it ends",
}
"""What a verdict means, and what to do."""

STATES = {
    "clean": "nothing is open",
    "interrupted": "a turn is open and its owner is gone; `fencepost resume` closes it and runs nothing",
    "running": "another process owns it; wait for it, or watch with `fencepost show`",
    "damaged": "durable bytes are not whole: read-only, never cut; `fencepost export` prints both sides, `doctor` more",
    "unsupported": "it cannot be continued here; `fencepost export` prints it",
}
"""What a state means, and what to do."""


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""

    async def work(desk: Desk) -> int:
        found = examine(await desk.read(arguments.id))
        if arguments.json:
            sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        else:
            _print(found)
        return status_for(found.state)

    return look(arguments, work)


def _print(found: Inspection) -> None:
    from fencepost.apps.cli import paper

    out = paper.paper()
    out.print(paper.styled(f"session {found.session} is ").append_text(paper.verdict_text(found.state)))
    out.print(paper.styled(f"  {STATES[found.state]}", "dim"))
    for line in _facts(found):
        out.print(paper.styled(f"  {line}"))
    if not found.calls:
        out.print("no calls")
        return
    grid = paper.table(("turn", "call", "verdict", "means"), fixed=1)
    for call in found.calls:
        means = MEANINGS[call.verdict] + (f" ({call.code})" if call.code else "")
        grid.add_row(f"{call.turn}.{call.step}", _name(call), paper.verdict_text(call.verdict), paper.styled(means))
    out.print()
    out.print(grid)


def _facts(found: Inspection) -> list[str]:
    """What else is known, a line each."""
    lines = [f"{found.events} events, durable up to seq {found.watermark}"]
    if found.gates:
        lines.append(f"gates of the last turn: {', '.join(found.gates)}")
        if "tool" not in found.gates:
            lines.append("without a tool gate a missing start proves nothing")
    if found.owner is not None:
        lines.append(f"held by process {found.owner.pid} on {found.owner.host}")
    if found.problem is not None:
        lines.append(f"problem: {found.problem}")
    lines += [f"waiting to run: {item.text}" for item in found.pending_inputs]
    return lines


def _name(call: CallView) -> str:
    from fencepost.apps.cli.plain import arguments_line, plain

    return f"{plain(call.name)} {arguments_line(call.arguments, 60)}\n{call.call_id}"
