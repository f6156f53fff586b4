"""Fixtures over `servers`: import them into a conftest."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.stores.postgres import servers

from fencepost.stores.postgres import PostgresStore


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The URL of a server that tests may make schemas on."""
    with servers.server() as url:
        yield url


@pytest.fixture(scope="session")
def cluster() -> Iterator[servers.Cluster]:
    """A private cluster, for tests that crash it or change its roles. Each leaves it running."""
    with servers.cluster() as private:
        yield private


@pytest.fixture
def url(server: str, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty store; its schema is dropped afterwards."""
    schema = schema_for(tmp_path)
    yield f"{server}{'&' if '?' in server else '?'}schema={schema}"
    drop(server, schema)


@pytest.fixture
def private_url(cluster: servers.Cluster, tmp_path: Path) -> str:
    """The URL of an empty store on the private cluster."""
    return f"{cluster.url}?schema={schema_for(tmp_path)}"


@pytest.fixture
def sql(url: str) -> Iterator[Callable[..., list[tuple]]]:
    """Runs SQL beside the store, in its schema."""
    plain, _, schema = url.rpartition("schema=")
    with psycopg.connect(plain.rstrip("?&"), autocommit=True) as connection:
        connection.execute(f"SET search_path = {schema}")

        def run(statement: str, *values: object) -> list[tuple]:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

        yield run


@contextlib.asynccontextmanager
async def opened(url: str) -> AsyncIterator[PostgresStore]:
    """A store that is closed at the end."""
    store = PostgresStore(url)
    try:
        yield store
    finally:
        await store.close()


def schema_for(place: Path) -> str:
    """A schema name for a directory of a test."""
    return f"t{hashlib.sha256(str(place).encode()).hexdigest()[:20]}"


def drop(url: str, schema: str) -> None:
    """Drop a schema, if it is there."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
