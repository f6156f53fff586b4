"""The SQLite store keeps the contract."""

from __future__ import annotations

from pathlib import Path

from fencepost.stores.base import Store
from fencepost.stores.sqlite import SqliteStore
from tests.stores.contract import StoreContract


class TestContract(StoreContract):
    def open(self, place: Path) -> Store:
        return SqliteStore(place / "sessions.db")
