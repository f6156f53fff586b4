"""Taking a session over from an owner who lives: where an OS lock decides, nobody can, and is told what to do."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.errors import SessionNotFoundError, UsageError
from fencepost.stores.base import Fenced, Store, own
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, note

LOCKED = pytest.mark.parametrize("make", [JsonlStore, SqliteStore])


@LOCKED
def test_a_lock_cannot_be_taken_over_while_its_holder_lives(tmp_path: Path, make: Callable[[Path], Store]) -> None:
    async def scenario() -> None:
        store = make(tmp_path / "store")
        assert not isinstance(store, Fenced)
        first = await store.create(header())
        await first.append([note(0)], 0)
        with pytest.raises(UsageError) as refused:
            await own(store, "s1", takeover=True)
        assert "cannot be taken over while its holder lives" in str(refused.value)
        assert f"End PID {os.getpid()} on " in refused.value.explain()
        await first.append([note(1)], 1)
        await store.close()

    asyncio.run(scenario())


@LOCKED
def test_a_session_that_nobody_holds_is_taken_either_way(tmp_path: Path, make: Callable[[Path], Store]) -> None:
    async def scenario() -> None:
        store = make(tmp_path / "store")
        first = await store.create(header())
        await first.append([note(0)], 0)
        await first.release()
        second = await own(store, "s1", takeover=True)
        assert second.stored.watermark == 0
        with pytest.raises(SessionNotFoundError):
            await own(store, "s2", takeover=True)
        await store.close()

    asyncio.run(scenario())
