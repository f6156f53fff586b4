"""`fencepost sessions`: all sessions of a store, the latest first, broken ones included."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import msgspec

from fencepost.apps.cli import exits
from fencepost.apps.cli.looking import Desk, look
from fencepost.journal.inspect import SessionRow, rows


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""

    async def work(desk: Desk) -> int:
        found = await rows(desk.store, desk.vocabulary)
        if arguments.json:
            sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
        elif not found:
            print(f"no sessions in {desk.store.url}")
        else:
            _print(found)
        return exits.DONE

    return look(arguments, work)


def _print(found: Sequence[SessionRow]) -> None:
    from fencepost.apps.cli import paper

    now = paper.now_ms()
    grid = paper.table(("session", "state", "changed", "turns", "unknown", "title"), fixed=5)
    grid.columns[-1].no_wrap = True
    grid.columns[-1].overflow = "ellipsis"
    for row in found:
        grid.add_row(
            paper.styled(row.session),
            paper.verdict_text(row.state),
            paper.ago(row.updated, now),
            str(row.turns),
            paper.styled(str(row.unknown) if row.unknown else "-", "bold yellow" if row.unknown else ""),
            paper.styled(row.title),
        )
    paper.paper().print(grid)
