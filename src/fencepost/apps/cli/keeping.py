"""`fencepost delete`, `restore` and `purge`: the trash.

Deleting is where the trash is purged of what is older than the `purge_days` of the configuration (never, by default):
it is the one command that makes the trash grow, and it was asked to change the store. Opening and listing must not
(law 7).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable

import msgspec

from fencepost.apps.cli import exits
from fencepost.apps.cli.finding import find, match
from fencepost.apps.cli.looking import Desk, act, give
from fencepost.apps.cli.plain import plain
from fencepost.errors import UsageError
from fencepost.stores.base import Upkeep, upkeep_of

_DAY = 86_400_000


class Deleted(msgspec.Struct, frozen=True):
    """What `delete` did; `purged` counts older sessions that it destroyed."""

    session: str
    purged: int


class Restored(msgspec.Struct, frozen=True):
    """What `restore` did."""

    session: str


class Purged(msgspec.Struct, frozen=True):
    """What `purge` did."""

    purged: int


def main(arguments: argparse.Namespace) -> int:
    """Run one of the commands."""
    work = _WORKS[arguments.words_of]

    async def done(desk: Desk) -> int:
        record, sentence = await work(desk, upkeep_of(desk.store, f"{arguments.words_of} sessions"), arguments)
        if arguments.json:
            give(record)
        else:
            print(sentence)
        return exits.DONE

    return act(arguments, done)


async def _delete(desk: Desk, store: Upkeep, arguments: argparse.Namespace) -> tuple[object, str]:
    session = await find(store, arguments.id, desk.cwd)
    days = desk.config.config.purge_days
    await store.delete(session)
    purged = await store.purge(_days_ago(days)) if days is not None else 0
    more = f"; {_counted(purged)} deleted more than {days:g} days ago destroyed" if purged else ""
    sentence = f"session {plain(session)} is in the trash{more}\nto have it back:   fencepost restore {plain(session)}"
    return Deleted(session, purged), sentence


async def _restore(_desk: Desk, store: Upkeep, arguments: argparse.Namespace) -> tuple[object, str]:
    session = match(arguments.id, {item.session for item in await store.trash()}, f"the trash of {store.url}")
    await store.restore(session)
    return Restored(session), f"session {plain(session)} is back"


async def _purge(_desk: Desk, store: Upkeep, arguments: argparse.Namespace) -> tuple[object, str]:
    purged = await store.purge(_days_ago(arguments.older_than))
    return Purged(purged), f"{_counted(purged)} destroyed"


def _counted(count: int) -> str:
    return f"{count} session{'s' if count != 1 else ''}"


def _days_ago(days: float) -> int:
    """A time, in epoch milliseconds. No days ago is behind all that is in the trash now.

    Raises:
        UsageError: that many days are no time.
    """
    if not 0 <= days < 1e6:
        raise UsageError(f"{days:g} is not a number of days")
    return time.time_ns() // 1_000_000 + 1 - int(days * _DAY)


_WORKS: dict[str, Callable[[Desk, Upkeep, argparse.Namespace], Awaitable[tuple[object, str]]]] = {
    "delete": _delete,
    "restore": _restore,
    "purge": _purge,
}
