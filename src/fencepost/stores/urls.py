"""Store URLs: `jsonl:DIR`, `sqlite:FILE`, `postgresql://…`, `memory:`, and what third parties register.

Theirs are the entry points `fencepost.stores`. This is the one place above the stores that names them; each is imported
only when its scheme is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fencepost.errors import UsageError
from fencepost.stores.base import Store

GROUP = "fencepost.stores"


def _jsonl(rest: str) -> Store:
    from fencepost.stores.jsonl import JsonlStore

    if not rest:
        raise UsageError(
            "the store URL jsonl: names no directory", next_act="Write jsonl:DIR, for instance jsonl:./sessions"
        )
    return JsonlStore(Path(rest).expanduser())


def _sqlite(rest: str) -> Store:
    if not rest:
        raise UsageError(
            "the store URL sqlite: names no file", next_act="Write sqlite:FILE, for instance sqlite:./sessions.db"
        )
    try:
        from fencepost.stores.sqlite import SqliteStore
    except ModuleNotFoundError as error:
        if error.name != "apsw":
            raise
        raise UsageError(
            "sqlite: needs apsw, which is not installed", next_act="Install it: pip install 'fencepost[sqlite]'"
        ) from None
    return SqliteStore(Path(rest).expanduser())


def _memory(rest: str) -> Store:
    from fencepost.stores.memory import MemoryStore

    if rest:
        raise UsageError(f"the store URL memory: takes nothing behind the colon, got {rest!r}")
    return MemoryStore()


def _postgresql(rest: str) -> Store:
    try:
        from fencepost.stores.postgres import PostgresStore
    except ImportError as error:
        raise UsageError(
            f"a PostgreSQL store needs psycopg, which cannot be imported ({error})",
            next_act="Install it with: pip install 'fencepost[postgres]'",
        ) from error
    return PostgresStore(f"postgresql:{rest}")


_SHIPPED: dict[str, Callable[[str], Store]] = {
    "jsonl": _jsonl,
    "sqlite": _sqlite,
    "memory": _memory,
    "postgresql": _postgresql,
    "postgres": _postgresql,
}


def open_store(url: str) -> Store:
    """The store that `url` names. Touches no file.

    Raises:
        UsageError: no store is known by that scheme, or the rest of the URL is wrong.
    """
    scheme, colon, rest = url.partition(":")
    if colon and scheme in _SHIPPED:
        return _SHIPPED[scheme](rest)
    from importlib.metadata import entry_points  # slow to import, and for third parties only

    found = {point.name: point for point in entry_points(group=GROUP)}
    if colon and scheme in found:
        store = found[scheme].load()(rest)
        if not isinstance(store, Store):
            raise UsageError(f"the entry point {GROUP}:{scheme} does not give a store")
        return store
    known = ", ".join(f"{name}:" for name in (*_SHIPPED, *sorted(found)))
    raise UsageError(f"no store is known for {url!r}", next_act=f"Known are {known}; the default is jsonl:DIR")
