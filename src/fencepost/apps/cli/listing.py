"""`fencepost sessions`: all sessions of a store, the latest first, broken ones included."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from fencepost.apps.cli import exits
from fencepost.apps.cli.looking import Desk, give, look
from fencepost.errors import UsageError
from fencepost.journal.catalogue import Catalogue
from fencepost.journal.inspect import SessionRow
from fencepost.runtime.config import cache_home
from fencepost.stores.base import upkeep_of

PAGE = 50
"""Rows that people get unless they ask for more."""

LONG = 500
"""Logs to read from which on it takes long enough to say so."""


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""

    limit = limit_of(arguments)

    async def work(desk: Desk) -> int:
        if arguments.trash:
            return await _trash(desk, json=arguments.json)
        wanted = limit + 1 if limit is not None and not arguments.json else limit  # to know whether there are more
        catalogue = Catalogue(desk.store, desk.vocabulary, cache_home(os.environ))
        found = await catalogue.rows(wanted, _progress if sys.stderr.isatty() else None)
        if arguments.json:
            give(found)
        elif not found:
            print(f"no sessions in {desk.store.url}")
        else:
            _print(found[:limit])
            if limit is not None and len(found) > limit:
                print("there are more: --limit N, or --all")
        return exits.DONE

    return look(arguments, work)


def limit_of(arguments: argparse.Namespace) -> int | None:
    """How many rows are wanted; None means all.

    Raises:
        UsageError: none, or fewer.
    """
    if arguments.limit is not None and arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit} leaves nothing to list")
    if arguments.all:
        return None
    if arguments.limit is not None:
        return int(arguments.limit)
    return None if arguments.json else PAGE


def _progress(count: int, total: int) -> None:
    """On a terminal: how far a long reading is."""
    if total >= LONG and (count % 100 == 0 or count == total):
        sys.stderr.write(f"\rreading {count} of {total} logs" + ("\n" if count == total else ""))


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
