"""The memory store keeps the contract; what it does not keep, it says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fencepost.stores.base import Store
from fencepost.stores.memory import MemoryStore
from tests.stores.contract import StoreContract
from tests.stores.sample import header, note


class TestContract(StoreContract):
    @pytest.fixture(autouse=True)
    def one_store(self) -> None:
        self.store = MemoryStore()

    def open(self, place: Path) -> Store:
        return self.store


def test_it_says_that_nothing_is_saved() -> None:
    assert not MemoryStore().durable
    assert "nothing is saved" in MemoryStore().ownership


def test_two_stores_share_nothing() -> None:
    async def scenario() -> None:
        one, other = MemoryStore(), MemoryStore()
        await (await one.create(header())).append([note(0)], 0)
        assert await one.sessions() == ["s1"]
        assert await other.sessions() == []

    asyncio.run(scenario())
