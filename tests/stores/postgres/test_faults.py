"""Everything that a server or a network can do to an append: what was acknowledged is there, once, and in order."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from tests.stores.postgres.fixtures import opened, schema_for
from tests.stores.postgres.proxy import Proxy
from tests.stores.postgres.servers import Cluster
from tests.stores.sample import header, lines_of, note, notes

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.errors import LostOwnershipError, MediumError, NoSpaceError, PermissionDeniedError, ReadOnlyError
from fencepost.stores.postgres import PostgresStore, link
from fencepost.stores.postgres.handle import PostgresHandle

Sql = Callable[..., list[tuple]]


async def logged(store: PostgresStore, session: str = "s1") -> list[bytes]:
    stored = await store.read(session)
    assert stored.damage == ()
    return lines_of(stored.entries)


# --- a connection that is cut -----------------------------------------------------------------------------------


@pytest.mark.parametrize("cut", ["request", "answer"])
@pytest.mark.parametrize("first", [0, 2])
def test_a_cut_connection_costs_nothing(url: str, sql: Sql, cut: str, first: int) -> None:
    """Before the server heard of it, or between the commit and the answer: the caller learns nothing of it."""
    with Proxy(url) as proxy:

        async def scenario() -> None:
            async with opened(proxy.url) as store:
                handle = await store.create(header())
                await handle.append(notes(0, first), 0)
                proxy.arm(cut)
                await handle.append(notes(first, 3), first)
                await handle.append([note(first + 3)], first + 3)
                assert proxy.cuts == 1
                assert await logged(store) == lines_of(notes(0, first + 4))

        asyncio.run(scenario())
    assert len(sql("SELECT DISTINCT xmin::text FROM entry")) == (3 if first else 2)


WAITING = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')"


@pytest.mark.parametrize("cut", ["client", "ghost"])
def test_an_append_that_lives_on_without_its_client_lands_once(url: str, sql: Sql, cut: str) -> None:
    """The server works on it while the head is read back, or hears of it only then: right before the same append,
    which was told that it is not there.
    """
    plain, _, schema = url.rpartition("schema=")
    with Proxy(url) as proxy, psycopg.connect(plain.rstrip("?&")) as blocker:

        async def queued(count: int, append: asyncio.Task[None]) -> None:
            while (await asyncio.to_thread(blocker.execute, WAITING)).fetchone() != (count,):
                assert not append.done()

        async def scenario() -> None:
            async with opened(proxy.url) as store:
                handle = await store.create(header())
                blocker.execute(f"SELECT 1 FROM {schema}.head FOR UPDATE")
                proxy.arm(cut)
                append = asyncio.create_task(handle.append(notes(0, 3), 0))
                await asyncio.to_thread(proxy.happened.wait)
                if cut == "ghost":
                    await queued(1, append)
                    proxy.haunt()
                await queued(2, append)
                blocker.rollback()
                await append
                await handle.append([note(3)], 3)
                assert await logged(store) == lines_of(notes(0, 4))

        asyncio.run(scenario())
    assert len(sql("SELECT DISTINCT xmin::text FROM entry")) == 2


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a server to come back."""
    monkeypatch.setattr(link, "PAUSES", ())


def chunk(seq: int) -> ev.AssistantChunk:
    return ev.AssistantChunk(seq, 1_000 + seq, 1, 1, f"w{seq} ")


@pytest.mark.parametrize("cut", ["request", "answer"])
@pytest.mark.parametrize("more", [0, 1, 40])
def test_a_batch_in_doubt_comes_back_alone_or_with_more_behind_it(
    url: str, impatient: None, cut: str, more: int
) -> None:
    """Nobody knows whether it landed; what follows is packed into the same run, and lands once all the same."""
    batch = [*notes(0, 2), *map(chunk, range(2, 12))]
    longer = [*batch, *map(chunk, range(12, 12 + more))]
    with Proxy(url) as proxy:

        async def scenario() -> None:
            async with opened(proxy.url) as store:
                handle = await store.create(header())
                proxy.arm(cut)
                with pytest.raises(MediumError):
                    await handle.append(list(codec.pack(batch)), 0)
                assert "in doubt" in repr(handle)
                await handle.append(list(codec.pack(longer)), 0)
                await handle.append([note(12 + more)], 12 + more)
                assert await logged(store) == lines_of([*longer, note(12 + more)])

        asyncio.run(scenario())


def test_whoever_takes_over_from_an_owner_in_doubt_sees_the_truth(url: str, impatient: None) -> None:
    with Proxy(url) as proxy:

        async def scenario() -> None:
            async with opened(proxy.url) as store, opened(url) as other:
                handle = await store.create(header())
                await handle.append([note(0)], 0)
                proxy.arm("answer")
                with pytest.raises(MediumError):
                    await handle.append([note(1)], 1)
                new = await other.take_over("s1")
                assert new.stored.watermark == 1
                await new.append([note(2)], 2)
                with pytest.raises(LostOwnershipError, match="taken over"):
                    await handle.append([note(1)], 1)
                assert await logged(other) == lines_of(notes(0, 3))

        asyncio.run(scenario())


def test_taking_a_session_twice_is_taking_it_once(url: str, sql: Sql) -> None:
    """The answer to `own` was lost: the second attempt finds its own claim, and is not told that it is held."""
    with Proxy(url) as proxy:

        async def scenario() -> None:
            async with opened(proxy.url) as store:
                handle = await store.create(header())
                await handle.append([note(0)], 0)
                await handle.release()
                proxy.word = b".head h SET epoch"
                proxy.arm("answer")
                handle = await store.own("s1")
                assert proxy.cuts == 1
                await handle.append([note(1)], 1)

        asyncio.run(scenario())


# --- a server that dies -----------------------------------------------------------------------------------------


class Appender:
    """Appends notes one by one, and again whenever it is told that nothing was saved."""

    def __init__(self, handle: PostgresHandle) -> None:
        self.handle = handle
        self.acknowledged = 0
        self.failures = 0
        self.stopped = False

    async def work(self) -> None:
        while not self.stopped:
            try:
                await self.handle.append([note(self.acknowledged)], self.acknowledged)
            except MediumError:
                self.failures += 1
            else:
                self.acknowledged += 1


async def appending(url: str, sessions: int, harm: Callable[[list[Appender]], object]) -> list[Appender]:
    """Have some sessions append while `harm` is done in a thread; afterwards everything must be there."""
    async with opened(url) as store:
        workers = [Appender(await store.create(header(f"s{number}"))) for number in range(sessions)]
        tasks = [asyncio.create_task(worker.work()) for worker in workers]
        await asyncio.to_thread(harm, workers)
        for worker in workers:
            worker.stopped = True
        await asyncio.gather(*tasks)
        for number, worker in enumerate(workers):
            assert await logged(store, f"s{number}") == lines_of(notes(0, worker.acknowledged))
        return workers


def progress(workers: list[Appender], count: int) -> None:
    """Wait until every session got `count` more appends acknowledged."""
    goals = [worker.acknowledged + count for worker in workers]
    while any(worker.acknowledged < goal for worker, goal in zip(workers, goals, strict=True)):
        os.sched_yield()


def test_killed_backends_lose_and_repeat_nothing(cluster: Cluster, private_url: str) -> None:
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'fencepost'"

    def harm(workers: list[Appender]) -> None:
        with cluster.connect() as root:
            for _ in range(10):
                progress(workers, 3)
                root.execute(kill)

    workers = asyncio.run(appending(private_url, 4, harm))
    assert [worker.failures for worker in workers] == [0] * 4


def test_a_server_that_crashes_in_the_middle_of_appends_loses_nothing(cluster: Cluster, private_url: str) -> None:
    def harm(workers: list[Appender]) -> None:
        for _ in range(3):
            progress(workers, 5)
            cluster.stop("immediate")
            cluster.start()
        progress(workers, 5)

    asyncio.run(appending(private_url, 8, harm))


def test_a_server_that_is_away_fails_the_append_and_the_next_one_lands(
    cluster: Cluster, private_url: str, impatient: None
) -> None:
    async def scenario() -> None:
        async with opened(private_url) as store:
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            await asyncio.to_thread(cluster.stop, "fast")
            try:
                for _ in range(2):
                    with pytest.raises(MediumError):
                        await handle.append([note(1)], 1)
                with pytest.raises(MediumError):
                    await store.read("s1")
            finally:
                await asyncio.to_thread(cluster.start)
            await handle.append(notes(1, 2), 1)
            assert await logged(store) == lines_of(notes(0, 3))

    asyncio.run(scenario())


def test_a_store_closes_while_its_server_is_away(cluster: Cluster, private_url: str) -> None:
    async def scenario() -> None:
        async with opened(private_url) as store:
            for number in range(20):
                handle = await store.create(header(f"s{number}"))
            await handle.append([note(0)], 0)
            await asyncio.to_thread(cluster.stop, "immediate")
            late = asyncio.create_task(handle.append([note(1)], 1))
            await asyncio.sleep(0)
            await store.close()
            with pytest.raises(MediumError):
                await late

    try:
        asyncio.run(scenario())
    finally:
        cluster.start()


# --- a server that refuses --------------------------------------------------------------------------------------


@pytest.fixture
def carl(cluster: Cluster, tmp_path: Path) -> Iterator[tuple[str, psycopg.Connection[tuple[object, ...]]]]:
    """The URL of a store whose role is not a superuser, and a superuser in its schema."""
    schema = schema_for(tmp_path)
    with cluster.connect(options=f"-c search_path={schema}") as root:
        root.execute("CREATE ROLE carl LOGIN")
        root.execute(f"CREATE SCHEMA {schema} AUTHORIZATION carl")
        yield f"postgresql://carl@127.0.0.1:{cluster.port}/postgres?schema={schema}", root
        root.execute("SET client_min_messages = warning")
        root.execute("DROP OWNED BY carl CASCADE")
        root.execute("DROP ROLE carl")


REFUSALS = {
    "read-only": (
        "ALTER ROLE carl SET default_transaction_read_only = on",
        "ALTER ROLE carl RESET default_transaction_read_only",
        ReadOnlyError,
    ),
    "no right": ("REVOKE INSERT ON entry FROM carl", "GRANT INSERT ON entry TO carl", PermissionDeniedError),
}


@pytest.mark.parametrize(("harm", "heal", "kind"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_is_told_by_its_cause_and_the_next_append_lands(
    carl: tuple[str, psycopg.Connection[tuple[object, ...]]], harm: str, heal: str, kind: type[Exception]
) -> None:
    url, root = carl
    kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'carl'"

    async def scenario() -> None:
        async with opened(url) as store:
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            root.execute(harm)
            root.execute(kill)
            for _ in range(2):
                with pytest.raises(kind, match="s1"):
                    await handle.append(notes(1, 2), 1)
            assert await logged(store) == lines_of([note(0)])
            root.execute(heal)
            await handle.append(notes(1, 3), 1)
            assert await logged(store) == lines_of(notes(0, 4))

    asyncio.run(scenario())


@pytest.fixture
def small(cluster: Cluster, tmp_path: Path) -> Iterator[str]:
    """The URL of a store whose log is on a file system of eight megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a small file system")
    place = cluster.home / "small"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,mode=0777", "tmpfs", place], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    owner = os.stat(cluster.data)
    os.chown(place, owner.st_uid, owner.st_gid)
    try:
        with cluster.connect() as root:
            root.execute(f"CREATE TABLESPACE small LOCATION '{place}'")
            yield f"{cluster.url}?schema={schema_for(tmp_path)}"
            root.execute("SET client_min_messages = warning")
            root.execute(f"DROP SCHEMA {schema_for(tmp_path)} CASCADE")
            root.execute("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def test_a_full_disk_refuses_whole_batches_and_takes_them_when_there_is_space(cluster: Cluster, small: str) -> None:
    schema = small.rpartition("schema=")[2]
    large = os.urandom(100_000).hex()

    async def scenario(root: psycopg.Connection[tuple[object, ...]]) -> None:
        async with opened(small) as store:
            handle = await store.create(header())
            other = await store.create(header("s2"))
            root.execute(
                f"CREATE TABLE {schema}.ballast TABLESPACE small AS SELECT repeat('x', 100) FROM "
                "generate_series(1, 20000)"
            )
            root.execute(f"ALTER TABLE {schema}.entry SET TABLESPACE small")
            seq = 0
            with pytest.raises(NoSpaceError):
                while True:
                    await handle.append(notes(seq, 2, large), seq)
                    seq += 2
            for failed in (handle.append(notes(seq, 3, large), seq), other.append(notes(0, 60, large), 0)):
                with pytest.raises(NoSpaceError):
                    await failed
            assert await logged(store) == lines_of(notes(0, seq, large))
            root.execute(f"DROP TABLE {schema}.ballast")
            root.execute("CHECKPOINT")
            await handle.append(notes(seq, 3, large), seq)
            assert await logged(store) == lines_of(notes(0, seq + 3, large))
            assert await store.sessions() == ["s1"]

    with cluster.connect() as root:
        asyncio.run(scenario(root))
