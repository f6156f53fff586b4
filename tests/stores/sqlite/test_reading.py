"""Opening is reading (law 7), beside a living owner, on media that take no writes, and while a large log is loaded."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.errors import DamagedError, ReadOnlyError, SessionNotFoundError
from fencepost.stores.sqlite import SqliteStore
from fencepost.stores.sqlite.handle import SqliteHandle
from tests.stores.sample import header, lines_of, note, notes
from tests.stores.sqlite.medium import Medium
from tests.stores.sqlite.sessions import run, store_at, write

KILLED = """
import asyncio, os, sys
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, notes

async def main():
    store = SqliteStore(sys.argv[1])
    handle = await store.create(header())
    await handle.append(notes(0, 3), 0)
    os._exit(9)

asyncio.run(main())
"""


def kill_an_owner(file: Path) -> None:
    """Leave a database behind whose last commits are in its write-ahead log only."""
    assert subprocess.run([sys.executable, "-c", KILLED, file], check=False).returncode == 9
    assert file.with_name("a.db-wal").stat().st_size > 0


def contents(file: Path) -> dict[str, bytes]:
    """The bytes of the database and its log, read when nobody in this process has them open."""
    return {path.name: path.read_bytes() for path in (file, file.with_name("a.db-wal")) if path.exists()}


# --- no byte ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [False, True])
def test_reading_owning_and_failing_change_no_byte(tmp_path: Path, killed: bool) -> None:
    """Of the database and its log. FILE-shm, which is only an index of the log, is SQLite's own business."""
    file = tmp_path / "a.db"
    if killed:
        kill_an_owner(file)
    else:
        write(file, 3)
    before = contents(file)

    async def look() -> None:
        async with store_at(file) as store:
            assert await store.sessions() == ["s1"]
            await store.read("s1")
            await store.entries_from("s1", 2)
            for _ in range(2):
                handle = await store.own("s1")
                assert await handle.set_aside() == 0
                await handle.append([], 3)
                await handle.release()
            await store.create(header("never written"))
            with pytest.raises(SessionNotFoundError):
                await store.read("nobody")

    asyncio.run(look())
    after = contents(file)
    assert {name: content for name, content in after.items() if content} == before


def test_asking_for_what_is_not_there_makes_nothing(tmp_path: Path) -> None:
    async def look() -> None:
        async with store_at(tmp_path / "deep" / "a.db") as store:
            assert await store.sessions() == []
            for ask in (store.read, store.own):
                with pytest.raises(SessionNotFoundError):
                    await ask("s1")

    asyncio.run(look())
    assert os.listdir(tmp_path) == []


# --- media that take no writes ---------------------------------------------------------------------------------------


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A directory, and the same one on a mount that takes no writes."""
    if os.geteuid() != 0:
        pytest.skip("a read-only bind mount needs root")
    live, seen = tmp_path / "live", tmp_path / "seen"
    live.mkdir()
    seen.mkdir()
    mounted = subprocess.run(["mount", "--bind", live, seen], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", seen], check=True)
        yield live, seen
    finally:
        subprocess.run(["umount", seen], check=True)


@pytest.mark.parametrize("killed", [False, True])
def test_a_medium_that_takes_no_writes_is_read(frozen: tuple[Path, Path], killed: bool) -> None:
    live, seen = frozen
    if killed:
        kill_an_owner(live / "a.db")
        (live / "a.db-shm").unlink()
    else:
        write(live / "a.db", 3)
    names = sorted(os.listdir(live))

    async def look() -> None:
        async with store_at(seen / "a.db") as store:
            assert await store.sessions() == ["s1"]
            for _ in range(2):
                stored = await store.read("s1")
                assert lines_of(stored.entries) == lines_of(notes(0, 3))
                assert stored.damage == ()
            with pytest.raises(ReadOnlyError):
                await (await store.own("s1")).append([note(3)], 3)
            with pytest.raises(ReadOnlyError):
                await store.create(header("s2"))
            assert sorted(os.listdir(live)) == names
            async with store_at(live / "a.db") as writer:
                await (await writer.create(header("s2"))).append([note(0)], 0)
            assert sorted(await store.sessions()) == ["s1", "s2"]

    asyncio.run(look())


def test_a_database_that_was_half_made_is_one_without_sessions(tmp_path: Path) -> None:
    """Killed while the tables were made: SQLite has to roll that back, which a reader may not."""
    file = tmp_path / "a.db"
    script = f"""
import os, apsw
from fencepost.stores.sqlite.place import Place
from fencepost.stores.sqlite.schema import create_tables
place = Place(__import__("pathlib").Path({str(file)!r}))
place.make(); place.make_file()
connection = apsw.Connection({str(file)!r})
connection.pragma("cache_size", 1)
connection.execute("BEGIN IMMEDIATE")
create_tables(connection)
connection.execute("CREATE TABLE large (data)")
connection.execute("INSERT INTO large VALUES (zeroblob(1000000))")
connection.cache_flush()
os._exit(9)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    assert file.with_name("a.db-journal").stat().st_size > 0
    before = file.read_bytes()

    async def look() -> None:
        async with store_at(file) as store:
            assert await store.sessions() == []

    asyncio.run(look())
    assert file.read_bytes() == before
    write(file, 1)


# --- large logs ------------------------------------------------------------------------------------------------------


def large(count: int) -> list[list[ev.Entry]]:
    """Batches of runs of chunks, one event behind each."""
    batches: list[list[ev.Entry]] = []
    seq = 0
    for _ in range(count):
        chunks = [ev.AssistantChunk(seq + index, 1_000, 1, 1, " word") for index in range(16)]
        batches.append([*codec.pack(chunks), note(seq + 16)])
        seq += 17
    return batches


def test_a_heartbeat_keeps_its_beat_while_a_large_log_is_loaded_and_a_sync_is_slow(tmp_path: Path) -> None:
    """Every await below is answered by the loop while a load of 100,000 events and a held-up sync are under way."""

    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        log = await store.create(header("large"))
        flat = [entry for batch in large(6000) for entry in batch]
        for first in range(0, len(flat), 400):
            await log.append(flat[first : first + 400], flat[first].seq)
        come, go = medium.hold("sync", suffix="-wal")
        appending = asyncio.create_task(handle.append([note(2)], 2))
        loading = asyncio.create_task(store.read("large"))
        beats = 0
        while not (loading.done() and come.is_set()):
            await asyncio.sleep(0)
            beats += 1
        assert beats > 10
        assert not appending.done()
        go.set()
        await appending
        stored = await loading
        assert stored.watermark == 17 * 6000 - 1
        assert stored.damage == ()

    with Medium() as medium:
        run(tmp_path / "a.db", scenario, vfs=medium.name)


def test_sessions_that_are_interleaved_are_each_read_whole(tmp_path: Path) -> None:
    """Whether their batches stand side by side or far apart."""

    async def main() -> None:
        async with store_at(tmp_path / "a.db") as store:
            often = await store.create(header("often"))
            seldom = await store.create(header("seldom"))
            for seq in range(300):
                await often.append([note(seq)], seq)
                if seq % 100 == 0:
                    await seldom.append([note(seq // 100)], seq // 100)
            assert lines_of((await store.read("often")).entries) == lines_of(notes(0, 300))
            assert lines_of((await store.read("seldom")).entries) == lines_of(notes(0, 3))

    asyncio.run(main())


def test_a_suffix_is_read_without_what_stands_before_it(tmp_path: Path) -> None:
    file = tmp_path / "a.db"

    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        chunks = [ev.AssistantChunk(seq, 1_000, 1, 1, f"word{seq} ") for seq in range(2, 40)]
        await handle.append(list(codec.pack(chunks)), 2)
        for seq in range(40, 60):
            await handle.append([note(seq)], seq)
        whole = lines_of((await store.read("s1")).entries)
        for start in (0, 1, 2, 39, 40, 59, 60, 99):
            found = lines_of(await store.entries_from("s1", start))
            first = 2 if start in range(2, 40) else start
            assert found == whole[first:]
        with pytest.raises(SessionNotFoundError):
            await store.entries_from("nobody", 0)

    run(file, scenario)
    connection = apsw.Connection(str(file))
    connection.execute("DELETE FROM batch WHERE seq = 41")
    connection.close()

    async def damaged() -> None:
        async with store_at(file) as store:
            assert len(await store.entries_from("s1", 42)) == 18
            with pytest.raises(DamagedError, match="behind seq 40"):
                await store.entries_from("s1", 40)

    asyncio.run(damaged())


def test_bytes_for_an_event_do_not_depend_on_the_history(tmp_path: Path) -> None:
    """A late append writes as much to the log as an early one."""
    written: list[int] = []

    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        for seq in range(2, 402):
            medium.ops.clear()
            await handle.append([note(seq, "x" * 200)], seq)
            written.append(sum(len(op.data) for op in medium.ops if op.file.endswith("-wal")))

    with Medium() as medium:
        run(tmp_path / "a.db", scenario, vfs=medium.name)
    assert statistics.median(written[-100:]) == statistics.median(written[:100])


def test_a_database_that_was_replaced_is_the_one_that_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.db", 3)
    write(tmp_path / "b.db", 5)

    async def main() -> None:
        async with store_at(tmp_path / "a.db") as store:
            assert (await store.read("s1")).watermark == 2
            (tmp_path / "b.db").replace(tmp_path / "a.db")
            assert (await store.read("s1")).watermark == 4
            (tmp_path / "a.db").unlink()
            assert await store.sessions() == []

    asyncio.run(main())


def test_readers_in_many_threads_share_what_is_open(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    write(file, 20)

    others = set(threading.enumerate())  # of earlier tests, on their way out

    async def main() -> None:
        async with store_at(file) as store:
            found = await asyncio.gather(*(store.read("s1") for _ in range(40)))
            assert {stored.watermark for stored in found} == {19}
            ours = set(threading.enumerate()) - others
            assert 1 <= sum(thread.name.startswith("fencepost-reader") for thread in ours) <= 4

    asyncio.run(main())
