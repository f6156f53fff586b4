"""PostgreSQL keeps the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stores.contract import StoreContract
from tests.stores.postgres.fixtures import drop, schema_for

from fencepost.stores.base import Store
from fencepost.stores.postgres import PostgresStore


class TestContract(StoreContract):
    @pytest.fixture(autouse=True)
    def on_a_server(self, server: str, place: Path) -> Iterator[None]:
        self.server = server
        yield
        drop(server, schema_for(place))

    def open(self, place: Path) -> Store:
        mark = "&" if "?" in self.server else "?"
        return PostgresStore(f"{self.server}{mark}schema={schema_for(place)}")
