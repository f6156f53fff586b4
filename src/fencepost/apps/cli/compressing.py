"""`fencepost compress`: logs in fewer bytes. Only those of sessions that are clean and that nobody works on."""

from __future__ import annotations

import argparse
import sys

import msgspec

from fencepost.apps.cli import exits
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.looking import Desk, act, give
from fencepost.apps.cli.main import complain
from fencepost.apps.cli.plain import plain
from fencepost.errors import HeldError, SessionNotFoundError, StoreError, UsageError
from fencepost.journal.inspect import inspect
from fencepost.stores.base import Upkeep, upkeep_of


class Saved(msgspec.Struct, frozen=True):
    """Bytes of a log before and after."""

    session: str
    before: int
    after: int


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if (arguments.id is None) != arguments.all_closed:
        raise UsageError("compress takes an ID, or --all-closed")

    async def work(desk: Desk) -> int:
        store = upkeep_of(desk.store, "compress sessions")
        if arguments.id is not None:
            saved, status = [await _one(desk, store, arguments.id)], exits.DONE
        else:
            saved, status = await _all(desk, store)
        if arguments.json:
            give(saved)
        else:
            _print(saved)
        return status

    return act(arguments, work)


async def _one(desk: Desk, store: Upkeep, text: str) -> Saved:
    session = await find(store, text, desk.cwd)
    found = await inspect(store, session, desk.vocabulary)
    if found.state == "interrupted":
        raise UsageError(
            f"session {session} was interrupted; only closed logs are compressed",
            next_act=f"Close it with `fencepost resume {session}`",
        )
    return await _compressed(store, session)


async def _compressed(store: Upkeep, session: str) -> Saved:
    saved = await store.compress(session)
    return Saved(session, saved.before, saved.after)


async def _all(desk: Desk, store: Upkeep) -> tuple[list[Saved], int]:
    """All that are clean. One that fails is said, and the others go on."""
    saved, statuses = list[Saved](), list[int]()
    names = sorted(await store.sessions())
    for number, session in enumerate(names, 1):
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{number} of {len(names)}" + ("\n" if number == len(names) else ""))
        try:
            if (await inspect(store, session, desk.vocabulary)).state == "clean":
                saved.append(await _compressed(store, session))
        except (HeldError, SessionNotFoundError):
            continue  # taken, or deleted, since it was listed
        except StoreError as error:
            complain(error.explain())
            statuses.append(exits.status_of(error))
    return saved, exits.worst(statuses) if statuses else exits.DONE


def _print(saved: list[Saved]) -> None:
    before, after = sum(one.before for one in saved), sum(one.after for one in saved)
    what = f"session {plain(saved[0].session)}" if len(saved) == 1 else f"{len(saved)} sessions"
    share = f", {after / before:.0%}" if before else ""
    print(f"{what}: {before} bytes are {after} now{share}")
