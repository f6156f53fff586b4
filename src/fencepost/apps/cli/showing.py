"""`fencepost show`: a session as a timeline. `--json` prints the events, as `fencepost export` does."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fencepost.apps.cli.exporting import export
from fencepost.apps.cli.inspecting import STATES
from fencepost.apps.cli.looking import Desk, look, status_for
from fencepost.apps.cli.timeline import Row, timeline
from fencepost.errors import UsageError
from fencepost.journal.inspect import Reading, state_of

if TYPE_CHECKING:
    from rich.console import Console

MARGIN = 8
"""Columns for the seq."""


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""

    if arguments.json and (arguments.turn is not None or arguments.tail is not None):
        raise UsageError("--turn and --tail cut what people read", next_act="Cut JSON Lines with jq, or tail")

    async def work(desk: Desk) -> int:
        if arguments.json:
            return await export(desk, arguments.id)
        reading = await desk.read(arguments.id)
        _print(reading, arguments.turn, arguments.tail)
        return status_for(state_of(reading)[0])

    return look(arguments, work)


def _print(reading: Reading, turn: int | None = None, tail: int | None = None) -> None:
    """Print the timeline, or the part of it that was asked for."""
    from fencepost.apps.cli import paper

    out, stored = paper.paper(), reading.stored
    state, problem = state_of(reading)
    out.print(paper.styled(f"session {stored.session} is ").append_text(paper.verdict_text(state)))
    out.print(paper.styled(f"  {problem or STATES[state]}", "dim"))
    if stored.header is not None:
        out.print(paper.styled(f"  {stored.header.cwd}, created {paper.clock(stored.header.created)}", "dim"))
    if stored.owner is not None:
        since = paper.clock(stored.owner.since)
        out.print(paper.styled(f"  held by process {stored.owner.pid} on {stored.owner.host} since {since}", "cyan"))
    rows = timeline(reading)
    kept = cut(rows, turn, tail)
    if len(kept) < len(rows):
        out.print(paper.styled(f"  {len(kept)} of {len(rows)} rows", "dim"))
    for row in kept:
        _print_row(out, row)


def cut(rows: list[Row], turn: int | None, tail: int | None) -> list[Row]:
    """The rows of one turn, and of those the last few."""
    kept = rows if turn is None else [row for row in rows if row.turn == turn]
    return kept if tail is None else kept[max(len(kept) - tail, 0) :]


def _print_row(out: Console, row: Row) -> None:
    """One row; what does not fit goes on below, behind the same margin."""
    from rich.text import Text

    from fencepost.apps.cli import paper

    text = paper.styled(row.text, "yellow" if row.marked else "bold" if row.depth == 1 else "")
    if row.gate:
        text.append_text(paper.styled(f"  ┊ {row.gate}", "dim"))
    if row.verdict:
        text.append("  ").append_text(paper.verdict_text(row.verdict))
    if row.seq is None and not row.marked:
        text.stylize("cyan")
    indent = "  " * row.depth
    seq = "" if row.seq is None else str(row.seq)
    for index, line in enumerate(text.wrap(out, max(out.width - MARGIN - len(indent), 20))):
        margin = f"{seq if index == 0 else '':>{MARGIN - 2}}  {indent}"
        out.print(Text().append(margin, "dim").append_text(line), soft_wrap=True)
