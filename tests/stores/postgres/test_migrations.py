"""The schema: made once by whoever comes first, refused where it is newer, never made by reading."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest
from tests.stores.postgres.child import Child
from tests.stores.postgres.fixtures import opened
from tests.stores.postgres.servers import Cluster
from tests.stores.sample import header, note

from fencepost.errors import PermissionDeniedError, SessionNotFoundError, UnsupportedError
from fencepost.stores.postgres.migrations import VERSION

Sql = Callable[..., list[tuple]]


def test_hosts_that_start_at_once_migrate_once(url: str, sql: Sql) -> None:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(url)) for _ in range(4)]
        for number, child in enumerate(children):
            child.tell(f"create s{number}")
        assert [child.hear() for child in children] == ["ok 0"] * 4
        assert [child.ask("append 1") for child in children] == ["ok 1"] * 4
        assert children[0].ask("sessions") == "ok s0 s1 s2 s3"
    assert sql("SELECT version FROM migration") == [(version,) for version in range(1, VERSION + 1)]


def test_reading_makes_no_schema(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            assert await store.sessions() == []
            for ask in (store.read, store.own):
                with pytest.raises(SessionNotFoundError):
                    await ask("s1")

    asyncio.run(scenario())
    assert sql("SELECT current_schema()") == [(None,)]


def test_a_newer_schema_is_refused_by_name_and_left_alone(url: str, sql: Sql) -> None:
    async def make() -> None:
        async with opened(url) as store:
            await (await store.create(header())).append([note(0)], 0)

    async def refuse() -> None:
        async with opened(url) as store:
            for ask in (store.sessions(), store.read("s1"), store.own("s1"), store.create(header("s2"))):
                with pytest.raises(UnsupportedError, match=f"version {VERSION + 1}"):
                    await ask

    asyncio.run(make())
    sql("INSERT INTO migration (version) VALUES (%s)", VERSION + 1)
    before = sql("SELECT * FROM head"), sql("SELECT * FROM entry"), sql("SELECT * FROM session")
    asyncio.run(refuse())
    assert (sql("SELECT * FROM head"), sql("SELECT * FROM entry"), sql("SELECT * FROM session")) == before


def test_two_schemas_share_nothing(server: str, url: str) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            await (await store.create(header())).append([note(0)], 0)
            plain, _, schema = url.rpartition("schema=")
            async with opened(f"{plain}schema={schema}x") as other:
                assert await other.sessions() == []

    asyncio.run(scenario())


def test_a_role_needs_no_more_than_its_schema(cluster: Cluster) -> None:
    """A database administrator made the schema; the role may create inside it, and nothing else anywhere."""
    with cluster.connect() as root:
        root.execute("CREATE ROLE bob LOGIN")
        root.execute("REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
        root.execute("CREATE SCHEMA bobs AUTHORIZATION bob")
    url = f"postgresql://bob@127.0.0.1:{cluster.port}/postgres?schema="

    async def scenario() -> None:
        async with opened(f"{url}bobs") as store:
            await (await store.create(header())).append([note(0)], 0)
            assert await store.sessions() == ["s1"]
        async with opened(f"{url}others") as store:
            with pytest.raises(PermissionDeniedError):
                await store.create(header())

    asyncio.run(scenario())
    with cluster.connect() as root:
        root.execute("SET client_min_messages = warning")
        root.execute("DROP OWNED BY bob CASCADE")
        root.execute("DROP ROLE bob")
