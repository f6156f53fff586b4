"""`fencepost inspect`: for each call of a session, what the log lets us claim.

With `--settle`, what would be claimed if the tools had looked at what the calls left, too. Nothing is changed.
"""

from __future__ import annotations

import argparse
import sys

import msgspec

from fencepost.apps.cli.looking import Desk, look, status_for
from fencepost.apps.cli.main import complain
from fencepost.journal.inspect import CallView, Inspection, Reading, examine

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
        reading = await desk.read(arguments.id)
        found = await _settled(desk, reading) if arguments.settle else examine(reading)
        if arguments.json:
            sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        else:
            _print(found, settled=arguments.settle)
        return status_for(found.state)

    return look(arguments, work)


async def _settled(desk: Desk, reading: Reading) -> Inspection:
    """The inspection as settlement would leave it, by the tools of the session's own directory."""
    from fencepost.apps.cli.home import composed_for
    from fencepost.apps.cli.ready import composition
    from fencepost.runtime.settle import preview

    parts = composed_for(reading.stored.header, composition, complain)
    try:
        return await preview(reading, parts.registry.tools, desk.store.files(reading.stored.session))
    finally:
        await parts.close()


def _print(found: Inspection, *, settled: bool) -> None:
    from fencepost.apps.cli import paper

    out = paper.paper()
    out.print(paper.styled(f"session {found.session} is ").append_text(paper.verdict_text(found.state)))
    out.print(paper.styled(f"  {STATES[found.state]}", "dim"))
    for line in _facts(found):
        out.print(paper.styled(f"  {line}"))
    if not found.calls:
        out.print("no calls")
        return
    if settled:
        out.print("  what the tools say about calls without a known outcome; nothing was changed")
    grid = paper.table(("turn", "call", "verdict", "settled by", "means"), fixed=1)
    for call in found.calls:
        means = meaning(call.verdict, call.evidence, call.code)
        by, verdict = paper.styled(call.settled_by or "-"), paper.verdict_text(call.verdict)
        grid.add_row(f"{call.turn}.{call.step}", _name(call), verdict, by, paper.styled(means))
    out.print()
    out.print(grid)


def meaning(verdict: str, evidence: str, code: str = "") -> str:
    """What a verdict means and what to do, with what it rests on below."""
    means = MEANINGS[verdict] + (f" ({code})" if code else "")
    return f"{means}\n{evidence}" if evidence else means


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
