"""`fencepost copy`: a session into another store, the same to the byte."""

from __future__ import annotations

import argparse

from fencepost.apps.cli import exits
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.looking import Desk, act, give
from fencepost.errors import UsageError
from fencepost.journal.copy import copy
from fencepost.stores.urls import open_store


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""

    async def work(desk: Desk) -> int:
        target = open_store(arguments.to)
        try:
            if not target.durable:
                raise UsageError(f"a copy in {target.url} would be gone with this command")
            made = await copy(desk.store, await find(desk.store, arguments.id, desk.cwd), target, desk.vocabulary)
        finally:
            await target.close()
        if arguments.json:
            give(made)
        else:
            from fencepost.apps.cli.plain import plain

            print(f"session {plain(made.session)}: {made.events} events copied from {made.source} to {made.target}")
        return exits.DONE

    return act(arguments, work)
