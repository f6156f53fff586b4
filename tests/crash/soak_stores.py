"""Where the soak keeps its sessions: one store for all of them, and how to read in it what a killed child left.

Reading leaves neither a thread nor a connection behind: the next child is forked from this process.
"""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psycopg

from fencepost.errors import SessionNotFoundError
from fencepost.stores.base import StoredLog
from fencepost.stores.urls import open_store
from tests.stores.postgres import servers

KINDS = ("jsonl", "sqlite", "postgres")

PATIENCE = 20.0
"""Seconds until a server has noticed that a client is dead."""

LEASE = 1
"""Seconds; the shortest that there is."""


class Files:
    """A store whose owner dies with its process.

    Args:
        url: of the store.
    """

    def __init__(self, url: str) -> None:
        self.url = url

    def read(self, session: str) -> StoredLog | None:
        """What is stored of a session whose owner is dead; None if there is no such session."""
        others = set(threading.enumerate())
        stored = asyncio.run(_read(self.url, session))
        for thread in set(threading.enumerate()) - others:
            thread.join()  # then nothing of the store is open any more
        return stored

    def await_reservations(self) -> None:
        """Until an id that a dead process was about to take is free again: at once."""


class Server(Files):
    """A database server, which goes on for a moment with what a dead client had sent, and whose leases outlive it."""

    def __init__(self, cluster: servers.Cluster) -> None:
        super().__init__(f"{cluster.url}?schema=soak&lease={LEASE}")
        self._cluster = cluster

    def read(self, session: str) -> StoredLog | None:
        self._await_clients()
        stored = super().read(session)
        return None if stored is None else msgspec.structs.replace(stored, owner=None)  # we know that it is dead

    def _await_clients(self) -> None:
        """Until the server has ended what its dead clients had begun."""
        deadline = time.monotonic() + PATIENCE
        with self._cluster.connect() as connection:
            while _clients(connection):
                if time.monotonic() > deadline:
                    raise RuntimeError("the server does not let go of a dead client")
                time.sleep(0.002)

    def await_reservations(self) -> None:
        time.sleep(LEASE)


def _clients(connection: psycopg.Connection[tuple[object, ...]]) -> int:
    found = connection.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    ).fetchone()
    assert found is not None
    return int(str(found[0]))


async def _read(url: str, session: str) -> StoredLog | None:
    store = open_store(url)
    try:
        return await store.read(session)
    except SessionNotFoundError:
        return None
    finally:
        await store.close()


@contextlib.contextmanager
def store_for(kind: str, root: Path) -> Iterator[Files]:
    """The store of a kind; files are below `root`, a server is a private one.

    Raises:
        SystemExit: no server can be started here; says how to get one.
    """
    if kind == "jsonl":
        yield Files(f"jsonl:{root / 'sessions'}")
    elif kind == "sqlite":
        yield Files(f"sqlite:{root / 'sessions.db'}")
    elif servers.binaries() is None:
        raise SystemExit(servers.HOW)
    else:
        with servers.cluster() as cluster:
            yield Server(cluster)
