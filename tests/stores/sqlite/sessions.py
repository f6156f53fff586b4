"""SQLite stores for tests, opened and closed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from fencepost.stores.sqlite import SqliteStore
from fencepost.stores.sqlite.handle import SqliteHandle
from tests.stores.sample import header, notes


@contextlib.asynccontextmanager
async def store_at(file: Path, **options: Any) -> AsyncIterator[SqliteStore]:
    """A store that is closed at the end."""
    store = SqliteStore(file, **options)
    try:
        yield store
    finally:
        await store.close()


def run(file: Path, scenario: Callable[[SqliteStore, SqliteHandle], Awaitable[None]], **options: Any) -> None:
    """The session s1 with two acknowledged notes, owned."""

    async def main() -> None:
        async with store_at(file, **options) as store:
            handle = await store.create(header())
            await handle.append(notes(0, 2), 0)
            await scenario(store, handle)

    asyncio.run(main())


def write(file: Path, count: int = 2, *, session: str = "s1", each: int = 1, text: str = "") -> None:
    """Write a session of `count` notes, `each` to a batch, and close everything."""

    async def main() -> None:
        async with store_at(file) as store:
            handle = await store.create(header(session))
            for first in range(0, count, each):
                await handle.append(notes(first, each, text), first)

    asyncio.run(main())
