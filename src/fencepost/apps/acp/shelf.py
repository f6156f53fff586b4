"""The stores of one server: that of each directory in which a client works, each opened once.

Which store a directory has is chosen as on the command line: the flag, the environment, its `fencepost.toml`, the
default. So a session that an editor began is where `fencepost sessions` in the same directory looks for it.
"""

from __future__ import annotations

from fencepost.apps.cli import chosen
from fencepost.errors import FencepostError
from fencepost.runtime.config import LoadedConfig
from fencepost.stores.base import Store
from fencepost.stores.urls import open_store


class Shelf:
    """See the module.

    Args:
        flag: the store's URL, where the command line says it.
    """

    def __init__(self, flag: str | None) -> None:
        self._flag = flag
        self._stores: dict[str, Store] = {}

    def of(self, loaded: LoadedConfig) -> Store:
        """The store of a directory with this configuration. Touches no file.

        Raises:
            UsageError: its URL is wrong.
        """
        url = chosen.store_url(self._flag, loaded)
        if url not in self._stores:
            self._stores[url] = open_store(url)
        return self._stores[url]

    def all(self) -> list[Store]:
        """Those that were asked for, in that order."""
        return list(self._stores.values())

    async def holding(self, session: str) -> Store | None:
        """The store that has a session, of those that were asked for; None where none has."""
        for store in self.all():
            if session in await store.sessions():
                return store
        return None

    async def close(self) -> list[Exception]:
        """Close all of them; returns what failed."""
        failures: list[Exception] = []
        while self._stores:
            _, store = self._stores.popitem()
            try:
                await store.close()
            except FencepostError as error:
                failures.append(error)
        return failures
