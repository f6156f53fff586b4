"""Behind PgBouncer in transaction mode, where each transaction may go through another connection of the server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.stores.postgres.child import Child
from tests.stores.postgres.fixtures import opened, schema_for
from tests.stores.postgres.servers import Cluster, answers, free_port, unprivileged
from tests.stores.sample import header, lines_of, note, notes

from fencepost.errors import HeldError, LostOwnershipError

POOL = 3
LEFT = """SELECT pg_backend_pid(),
    (SELECT count(*) FROM pg_prepared_statements),
    (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
    ARRAY(SELECT name FROM pg_settings WHERE source = 'session' AND setting <> reset_val AND name <> ALL (%s))"""
OF_THE_POOLER = ["client_encoding", "application_name", "DateStyle", "TimeZone", "standard_conforming_strings"]
"""Settings that PgBouncer itself hands from client to client."""

HOW = "no PgBouncer: apt-get install pgbouncer"

CONFIG = """
[databases]
postgres = host=127.0.0.1 port={server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {pool}
max_client_conn = 100
logfile = {place}/bouncer.log
"""


@pytest.fixture(scope="module")
def bouncer(cluster: Cluster) -> Iterator[str]:
    """The URL of a database behind a pooler with three connections."""
    program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail(HOW)
        pytest.skip(HOW)
    port, config = free_port(), cluster.home / "bouncer.ini"
    config.write_text(CONFIG.format(pool=POOL, server=cluster.port, port=port, place=cluster.home))
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    process = subprocess.Popen(
        [program, "-q", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **unprivileged()
    )
    try:
        while not answers(url):
            assert process.poll() is None, (cluster.home / "bouncer.log").read_text()
        yield url
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def pooled(bouncer: str, tmp_path: Path) -> str:
    """The URL of an empty store behind the pooler."""
    return f"{bouncer}?schema={schema_for(tmp_path)}"


def test_many_sessions_share_three_connections(pooled: str) -> None:
    async def scenario() -> None:
        async with contextlib.AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(opened(pooled)) for _ in range(6)]
            names = [f"s{number}" for number in range(30)]
            handles = await asyncio.gather(
                *(stores[number % 6].create(header(name)) for number, name in enumerate(names))
            )
            for first in range(0, 20, 2):
                await asyncio.gather(*(handle.append(notes(first, 2), first) for handle in handles))
            logs = await asyncio.gather(*(stores[0].read(name) for name in names))
            assert all(lines_of(log.entries) == lines_of(notes(0, 20)) for log in logs)
            assert sorted(await stores[1].sessions()) == sorted(names)
            assert (await stores[2].settings())["fsync"] == "on"

    asyncio.run(scenario())


def test_ownership_holds_between_clients_that_share_connections(pooled: str) -> None:
    async def scenario() -> None:
        async with opened(pooled) as store, opened(pooled) as other:
            first = await store.create(header())
            await first.append([note(0)], 0)
            with pytest.raises(HeldError):
                await other.own("s1")
            second = await other.take_over("s1")
            with pytest.raises(LostOwnershipError):
                await first.append([note(1)], 1)
            await second.append([note(1)], 1)
            await second.release()
            third = await store.own("s1")
            await third.append([note(2)], 2)
            assert lines_of((await other.read("s1")).entries) == lines_of(notes(0, 3))

    asyncio.run(scenario())


def test_hosts_that_start_at_once_migrate_once_behind_a_pooler_too(pooled: str) -> None:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(pooled)) for _ in range(4)]
        for number, child in enumerate(children):
            child.tell(f"create s{number}")
        assert [child.hear() for child in children] == ["ok 0"] * 4
        assert [child.ask("append 2") for child in children] == ["ok 2"] * 4


def test_nothing_is_left_in_the_connections_that_the_pooler_hands_on(pooled: str) -> None:
    """No prepared statement, no lock, no setting: they would belong to the next client."""

    async def scenario() -> None:
        async with opened(f"{pooled}&lease=1") as store:
            handles = [await store.create(header(f"s{number}")) for number in range(3)]
            for seq in range(12):
                await asyncio.gather(*(handle.append([note(seq)], seq) for handle in handles))
            await asyncio.gather(*(store.read(f"s{number}") for number in range(3)))
            await handles[0].release()

    asyncio.run(scenario())
    with contextlib.ExitStack() as stack:
        seen = set()
        for _ in range(POOL):  # a transaction each, all open at once: that is every connection there is
            client = stack.enter_context(psycopg.connect(pooled.partition("?")[0], prepare_threshold=None))
            pid, *left = client.execute(LEFT, (OF_THE_POOLER,)).fetchone() or ()
            assert left == [0, 0, []]
            seen.add(pid)
        assert len(seen) == POOL
