"""The JSONL store as a whole: the contract, what a directory may hold, and what others may do to it."""

from __future__ import annotations

from pathlib import Path

from fencepost.stores.base import Store
from fencepost.stores.jsonl import JsonlStore
from tests.stores.contract import StoreContract


class TestContract(StoreContract):
    def open(self, place: Path) -> Store:
        return JsonlStore(place)
