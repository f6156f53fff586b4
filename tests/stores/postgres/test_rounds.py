"""Group commit: what waits goes into one transaction, and one bad batch keeps no other out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import psycopg
import pytest
from tests.stores.postgres.fixtures import opened
from tests.stores.sample import header, lines_of, note, notes

from fencepost.errors import ClosedError, DamagedError, EncodingRefusedError, FencepostError, LostOwnershipError
from fencepost.stores.postgres import PostgresStore
from fencepost.stores.postgres.handle import PostgresHandle

Sql = Callable[..., list[tuple]]


@contextlib.asynccontextmanager
async def held_up(url: str, handle: PostgresHandle) -> AsyncIterator[asyncio.Task[None]]:
    """A round with one append of `handle`, which stays in flight as long as this lasts; the task is that append."""
    plain, _, schema = url.rpartition("schema=")
    with psycopg.connect(plain.rstrip("?&")) as blocker:
        blocker.execute(f"SELECT 1 FROM {schema}.head WHERE session = %s FOR UPDATE", (handle.claim.row,))
        task = asyncio.create_task(handle.append([note(0)], 0))
        while not await asyncio.to_thread(_waits, blocker):
            assert not task.done()
        yield task
        blocker.rollback()
    await task


def _waits(blocker: psycopg.Connection[Any]) -> bool:
    asked = "SELECT 1 FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid() AND locktype = 'transactionid'"
    return blocker.execute(asked).fetchone() is not None


async def created(store: PostgresStore, count: int) -> list[PostgresHandle]:
    return [await store.create(header(f"s{number}")) for number in range(count)]


async def outcomes(*appends: Coroutine[Any, Any, None]) -> list[type | None]:
    found = await asyncio.gather(*appends, return_exceptions=True)
    return [None if outcome is None else type(outcome) for outcome in found]


def transactions(sql: Sql) -> list[int]:
    """How many entries each transaction wrote."""
    return [count for (count,) in sql("SELECT count(*) FROM entry GROUP BY xmin::text ORDER BY 1")]


def test_what_waits_for_a_round_goes_into_one_transaction(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            first, *others = await created(store, 41)
            async with held_up(url, first):
                waiting = [asyncio.create_task(handle.append(notes(0, 2), 0)) for handle in others]
                await asyncio.sleep(0)  # so that all are submitted
            await asyncio.gather(*waiting)
            for handle in others:
                stored = await store.read(handle.stored.session)
                assert lines_of(stored.entries) == lines_of(notes(0, 2))

    asyncio.run(scenario())
    assert transactions(sql) == [1, 80]


def test_a_batch_that_may_not_land_keeps_no_other_out(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            first, lost, wrong, fine, gap, odd = await created(store, 6)
            sql("UPDATE head SET epoch = epoch + 1 WHERE session = %s", lost.claim.row)
            async with held_up(url, first):
                waiting = asyncio.create_task(
                    outcomes(
                        lost.append([note(0)], 0),
                        wrong.append([note(4)], 4),
                        fine.append([note(0)], 0),
                        gap.append([note(0), note(2)], 0),
                        odd.append([note(0, "half a pair \ud83d")], 0),
                    )
                )
                await asyncio.sleep(0)
            found = await waiting
            assert [found[0], found[1], found[2]] == [LostOwnershipError, LostOwnershipError, None]
            assert found[3] is not None
            assert found[4] is EncodingRefusedError
            assert sorted(await store.sessions()) == ["s0", "s3"]
            await gap.append([note(0)], 0)

    asyncio.run(scenario())
    assert transactions(sql) == [1, 1, 1]


def test_a_batch_that_the_server_refuses_fails_alone(url: str, sql: Sql) -> None:
    """A row stands where the head of its session says that the log ends."""

    async def scenario() -> None:
        async with opened(url) as store:
            first, bad, *fine = await created(store, 6)
            sql("INSERT INTO entry VALUES (%s, 0, 0, '')", bad.claim.row)
            async with held_up(url, first):
                waiting = asyncio.create_task(outcomes(*(handle.append([note(0)], 0) for handle in [bad, *fine])))
                await asyncio.sleep(0)
            assert await waiting == [DamagedError, None, None, None, None]
            assert sorted(await store.sessions()) == ["s0", "s2", "s3", "s4", "s5"]

    asyncio.run(scenario())


def test_two_owners_of_one_session_never_share_a_round(url: str, sql: Sql) -> None:
    """Both in one process: the one that was replaced must not slip its rows in with the other's."""

    async def scenario() -> None:
        async with opened(url) as store:
            first, old = await created(store, 2)
            await old.append([note(0)], 0)
            new = await store.take_over("s1")
            async with held_up(url, first):
                waiting = asyncio.create_task(
                    outcomes(old.append(notes(1, 3, "old"), 1), new.append([note(1, "new")], 1))
                )
                await asyncio.sleep(0)
            assert await waiting == [LostOwnershipError, None]
            stored = await store.read("s1")
            assert lines_of(stored.entries) == lines_of([note(0), note(1, "new")])
            assert stored.damage == ()

    asyncio.run(scenario())


def test_a_large_batch_does_not_wait_for_more(url: str, sql: Sql) -> None:
    """A round takes no more than so many bytes, but whatever the first batch has."""
    large = "x" * (9 << 20)

    async def scenario() -> None:
        async with opened(url) as store:
            first, *others = await created(store, 4)
            async with held_up(url, first):
                waiting = [asyncio.create_task(handle.append([note(0, large)], 0)) for handle in others]
                await asyncio.sleep(0)
            await asyncio.gather(*waiting)

    asyncio.run(scenario())
    assert transactions(sql) == [1, 1, 1, 1]


def test_closing_lets_the_round_in_flight_end_and_takes_no_more(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            first, second = await created(store, 2)
            async with held_up(url, first):
                waiting = asyncio.create_task(second.append([note(0)], 0))
                await asyncio.sleep(0)
                closing = asyncio.create_task(store.close())
                await asyncio.sleep(0)
                with pytest.raises(ClosedError):
                    await second.append([note(1)], 1)
            await closing
            await waiting
            for handle in (first, second):
                with pytest.raises(FencepostError):
                    await handle.append([note(1)], 1)

    asyncio.run(scenario())
    assert sql("SELECT pid, host, lease_until FROM head") == [(None, None, None)] * 2
    assert transactions(sql) == [1, 1]
