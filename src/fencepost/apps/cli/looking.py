"""What the commands that run no agent have in common: open a store, look or act, close it.

Those that only read change no byte (law 7).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from fencepost.apps.cli import chosen, exits
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.main import complain
from fencepost.core.codec import Vocabulary
from fencepost.errors import MediumError, PermissionDeniedError
from fencepost.journal.inspect import Reading, SessionState, fold_stored
from fencepost.runtime.config import LoadedConfig, load
from fencepost.stores.base import Store
from fencepost.stores.urls import open_store


class Desk(msgspec.Struct, frozen=True):
    """Where a reading command works."""

    store: Store
    vocabulary: Vocabulary
    cwd: Path
    config: LoadedConfig

    async def read(self, text: str | None) -> Reading:
        """The session that is meant, read and folded as far as it goes.

        Raises:
            SessionNotFoundError, UsageError: none, or several, are meant.
        """
        return fold_stored(await self.store.read(await find(self.store, text, self.cwd)), self.vocabulary)


def look(arguments: argparse.Namespace, work: Callable[[Desk], Awaitable[int]]) -> int:
    """Run `work`, which only reads, on the store that the arguments name; returns the exit status."""
    try:
        return act(arguments, work)
    except (PermissionDeniedError, MediumError) as error:
        complain(error.explain())
        return exits.DAMAGED


def act(arguments: argparse.Namespace, work: Callable[[Desk], Awaitable[int]]) -> int:
    """Run `work`, which may change what is stored, on the store that the arguments name; returns the exit status."""
    cwd = chosen.directory(None)
    loaded = load(cwd)

    async def opened() -> int:
        store = open_store(chosen.store_url(arguments.store, loaded))
        try:
            return await work(Desk(store, chosen.vocabulary(loaded), cwd, loaded))
        finally:
            await store.close()

    return asyncio.run(opened())


def give(record: object) -> None:
    """Print one JSON value for programs."""
    sys.stdout.buffer.write(msgspec.json.encode(record) + b"\n")


def status_for(state: SessionState) -> int:
    """The exit status of a command that printed a session in this state."""
    return exits.DAMAGED if state in {"damaged", "unsupported"} else exits.DONE
