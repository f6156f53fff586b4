"""What the commands that only read have in common: open a store, look, close it. They change no byte (law 7)."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from fencepost.apps.cli import chosen, exits
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.main import complain
from fencepost.core.codec import Vocabulary
from fencepost.errors import MediumError, PermissionDeniedError
from fencepost.journal.inspect import Reading, SessionState, fold_stored
from fencepost.runtime.config import load
from fencepost.stores.base import Store
from fencepost.stores.urls import open_store


class Desk(msgspec.Struct, frozen=True):
    """Where a reading command works."""

    store: Store
    vocabulary: Vocabulary
    cwd: Path

    async def read(self, text: str | None) -> Reading:
        """The session that is meant, read and folded as far as it goes.

        Raises:
            SessionNotFoundError, UsageError: none, or several, are meant.
        """
        return fold_stored(await self.store.read(await find(self.store, text, self.cwd)), self.vocabulary)


def look(arguments: argparse.Namespace, work: Callable[[Desk], Awaitable[int]]) -> int:
    """Run `work` on the store that the arguments name; returns the exit status."""
    cwd = chosen.directory(None)
    loaded = load(cwd)

    async def opened() -> int:
        store = open_store(chosen.store_url(arguments.store, loaded))
        try:
            return await work(Desk(store, chosen.vocabulary(loaded), cwd))
        finally:
            await store.close()

    try:
        return asyncio.run(opened())
    except (PermissionDeniedError, MediumError) as error:
        complain(error.explain())
        return exits.DAMAGED


def status_for(state: SessionState) -> int:
    """The exit status of a command that printed a session in this state."""
    return exits.DAMAGED if state in {"damaged", "unsupported"} else exits.DONE
