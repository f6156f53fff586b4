"""`fencepost sessions`: all sessions of a store, the latest first, broken ones included."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from fencepost.apps.cli import exits
from fencepost.apps.cli.looking import Desk, give, look
from fencepost.journal.inspect import SessionRow, rows
from fencepost.stores.base import upkeep_of


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""

    async def work(desk: Desk) -> int:
        if arguments.trash:
            return await _trash(desk, json=arguments.json)
        found = await rows(desk.store, desk.vocabulary)
        if arguments.json:
            give(found)
        elif not found:
            print(f"no sessions in {desk.store.url}")
        else:
            _print(found)
        return exits.DONE

    return look(arguments, work)


async def _trash(desk: Desk, *, json: bool) -> int:
    found = await upkeep_of(desk.store, "keep a trash").trash()
    if json:
        give(found)
    elif not found:
        print(f"nothing in the trash of {desk.store.url}")
    else:
        from fencepost.apps.cli import paper

        now = paper.now_ms()
        grid = paper.table(("session", "deleted"), fixed=2)
        for item in found:
            grid.add_row(paper.styled(item.session), paper.ago(item.deleted, now))
        paper.paper().print(grid)
    return exits.DONE


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
