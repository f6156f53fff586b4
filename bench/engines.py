"""The stores that can be measured, each with its yardstick: the cheapest way there is to make 300 bytes durable in it.

    jsonl      one write and its fdatasync, on a file beside
    sqlite     INSERT and COMMIT through the standard library's sqlite3, with WAL and synchronous=FULL
    postgres   INSERT and COMMIT through psycopg, with synchronous_commit on

PostgreSQL is the server that FENCEPOST_TEST_POSTGRES names, else a private one that lives as long as the run.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from bench.report import Aim

SIZE = 300
PAYLOAD = b"x" * SIZE

Name: TypeAlias = Literal["jsonl", "sqlite", "postgres"]
NAMES: tuple[Name, ...] = ("jsonl", "sqlite", "postgres")


class Engine(msgspec.Struct, frozen=True):
    """One store to be measured.

    Attributes:
        url: of a fresh store.
        raw: what its yardstick is called.
        once: does it once.
        gain: with how many sessions the gates per second should be how many times those of one.
        load: seconds within which 1.3 million events should be loaded.
    """

    url: str
    raw: str
    once: Callable[[], object]
    gain: tuple[int, float]
    load: float

    @property
    def many(self) -> Aim:
        """The aim for gates per second."""
        return Aim("at least", self.gain[1])


@contextlib.contextmanager
def engine(name: Name, directory: Path) -> Iterator[Engine]:
    """An engine that works in `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    with {"jsonl": _jsonl, "sqlite": _sqlite, "postgres": _postgres}[name](directory) as made:
        yield made


@contextlib.contextmanager
def _jsonl(directory: Path) -> Iterator[Engine]:
    fd = os.open(directory / "raw", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    sync = getattr(os, "fdatasync", os.fsync)

    def once() -> None:
        os.write(fd, PAYLOAD)
        sync(fd)

    try:
        yield Engine(f"jsonl:{directory / 'sessions'}", "raw write + fdatasync", once, (16, 3), 0.5)
    finally:
        os.close(fd)


@contextlib.contextmanager
def _sqlite(directory: Path) -> Iterator[Engine]:
    with contextlib.closing(sqlite3.connect(directory / "raw.db", isolation_level=None)) as raw:
        raw.execute("PRAGMA journal_mode=WAL")
        raw.execute("PRAGMA synchronous=FULL")
        raw.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, data BLOB)")

        def once() -> None:
            raw.execute("BEGIN IMMEDIATE")
            raw.execute("INSERT INTO t (data) VALUES (?)", (PAYLOAD,))
            raw.execute("COMMIT")

        yield Engine(f"sqlite:{directory / 'sessions.db'}", "raw INSERT + COMMIT", once, (256, 20), 1)


@contextlib.contextmanager
def _postgres(directory: Path) -> Iterator[Engine]:  # noqa: ARG001 - a server keeps its own files
    import psycopg

    with _server() as url, psycopg.connect(url) as raw:
        raw.execute("DROP TABLE IF EXISTS fencepost_bench")
        raw.execute("CREATE TABLE fencepost_bench (id bigserial PRIMARY KEY, data bytea)")
        raw.execute("SET synchronous_commit = on")
        raw.commit()

        def once() -> None:
            raw.execute("INSERT INTO fencepost_bench (data) VALUES (%s)", (PAYLOAD,))
            raw.commit()

        try:
            yield Engine(url, "raw INSERT + COMMIT", once, (256, 20), 1)
        finally:
            raw.execute("DROP TABLE fencepost_bench")
            raw.commit()


@contextlib.contextmanager
def _server() -> Iterator[str]:
    given = os.environ.get("FENCEPOST_TEST_POSTGRES")
    if given:
        yield given
        return
    from tests.stores.postgres.servers import cluster

    with cluster() as private:
        yield private.url
