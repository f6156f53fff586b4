"""The trash of a database: whoever was paused past the lease, and retries, change nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.stores.contract_upkeep import FOREVER, write
from tests.stores.postgres.fixtures import drop, schema_for
from tests.stores.sample import header, lines_of, note, notes

from fencepost.errors import LostOwnershipError, SessionNotFoundError
from fencepost.stores.postgres import PostgresStore


@pytest.fixture
def url(server: str, tmp_path: Path) -> Iterator[str]:
    mark = "&" if "?" in server else "?"
    yield f"{server}{mark}schema={schema_for(tmp_path)}"
    drop(server, schema_for(tmp_path))


def test_an_owner_whose_lease_ran_out_writes_nothing_into_a_deleted_session(
    server: str, url: str, tmp_path: Path
) -> None:
    schema = schema_for(tmp_path)

    async def main() -> None:
        paused, store = PostgresStore(url), PostgresStore(url)
        handle = await paused.create(header())
        await handle.append(notes(0, 3), 0)
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f"UPDATE {schema}.head SET lease_until = clock_timestamp() - interval '1 h'".encode())
        await store.delete("s1")
        with pytest.raises(LostOwnershipError):
            await handle.append([note(3)], 3)
        await store.restore("s1")
        assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))
        with pytest.raises(LostOwnershipError):
            await handle.append([note(3)], 3)
        await paused.close()
        await store.close()

    asyncio.run(main())


def test_what_is_purged_leaves_no_row(server: str, url: str, tmp_path: Path) -> None:
    schema = schema_for(tmp_path)

    async def main() -> None:
        store = PostgresStore(url)
        for session in ("s1", "s2"):
            await write(store, session)
        await store.delete("s1")
        assert await store.purge(FOREVER) == 1
        with psycopg.connect(server) as admin:
            for table, left in (("session", 1), ("head", 1), ("entry", 3)):
                found = admin.execute(f"SELECT count(*) FROM {schema}.{table}".encode()).fetchone()
                assert found == (left,)
        await store.close()

    asyncio.run(main())


def test_a_session_without_its_head_can_be_deleted_and_restored(server: str, url: str, tmp_path: Path) -> None:
    schema = schema_for(tmp_path)

    async def main() -> None:
        store = PostgresStore(url)
        await write(store)
        with psycopg.connect(server, autocommit=True) as admin:
            admin.execute(f"DELETE FROM {schema}.head".encode())
        before = await store.read("s1")
        assert before.damage
        await store.delete("s1")
        assert await store.sessions() == []
        await store.restore("s1")
        assert await store.read("s1") == before
        await store.close()

    asyncio.run(main())


def test_a_delete_that_is_sent_again_is_done_already(url: str) -> None:
    async def main() -> None:
        store = PostgresStore(url)
        await write(store)
        for _ in range(2):
            await store._asked("s1", "deleting", lambda server: store._upkeep.put(server, "s1", 1_800_000_000_000))
        assert [item.deleted for item in await store.trash()] == [1_800_000_000_000]
        await write(store)
        await store._asked("s1", "deleting", lambda server: store._upkeep.put(server, "s1", 1_800_000_000_000))
        assert [item.deleted - 1_800_000_000_000 for item in await store.trash()] == [1, 0]
        await store.close()

    asyncio.run(main())


def test_a_database_without_a_schema_has_an_empty_trash(url: str) -> None:
    async def main() -> None:
        store = PostgresStore(url)
        assert (await store.trash(), await store.revisions(), await store.owner("s1")) == ([], {}, None)
        assert await store.purge(FOREVER) == 0
        for ask in (store.delete, store.restore):
            with pytest.raises(SessionNotFoundError):
                await ask("s1")
        await store.close()

    asyncio.run(main())
