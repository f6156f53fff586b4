"""More than one process: the owner dies, sleeps, forks or is raced; eight of them share one database."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import apsw
import pytest

from fencepost.errors import HeldError, LockedError, LostOwnershipError
from fencepost.stores.sqlite import SqliteStore
from fencepost.stores.sqlite.handle import SqliteHandle
from tests.stores.sample import header, lines_of, note, notes
from tests.stores.sqlite.sessions import run, store_at, write

OWNER = """
import asyncio, sys
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, note

async def main():
    store = SqliteStore(sys.argv[1])
    handle = await store.create(header())
    await handle.append([note(0)], 0)
    print("owned", flush=True)
    for line in sys.stdin:
        seq = int(line)
        try:
            await handle.append([note(seq)], seq)
            print("appended", flush=True)
        except Exception as error:
            print(error.code, flush=True)
    await store.close()

asyncio.run(main())
"""

RACER = """
import asyncio, sys
from fencepost.errors import HeldError
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import note

async def main():
    store = SqliteStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    wins = 0
    while wins < 10:
        try:
            handle = await store.own("s1")
        except HeldError:
            continue
        seq = handle.stored.watermark + 1
        await handle.append([note(seq)], seq)
        await handle.release()
        wins += 1
    await store.close()

asyncio.run(main())
"""

WRITER = """
import asyncio, sys
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, note

async def main():
    store = SqliteStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    handle = await store.create(header(sys.argv[2]))
    for seq in range(200):
        await handle.append([note(seq)], seq)
    await store.close()

asyncio.run(main())
"""

LOCKER = """
import apsw, sys
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("locked", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)], stdin=pipe, stdout=pipe, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() in {"owned\n", "ready\n", "locked\n"}
    return child


def say(child: subprocess.Popen[str], line: str) -> str:
    tell(child, line)
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()


def looking(file: Path, look: Callable[[SqliteStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with store_at(file) as store:
            await look(store)

    asyncio.run(main())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def owner(file: Path) -> Iterator[subprocess.Popen[str]]:
    """A real process that owns the session s1."""
    child = start(OWNER, file)
    yield child
    child.kill()
    child.communicate()


# --- one owner ------------------------------------------------------------------------------------------------------


def test_the_second_opener_is_told_who_holds_it(file: Path, owner: subprocess.Popen[str]) -> None:
    async def look(store: SqliteStore) -> None:
        with pytest.raises(HeldError, match=rf"session s1 is held by {owner.pid} on "):
            await store.own("s1")
        stored = await store.read("s1")
        assert stored.owner is not None
        assert stored.owner.pid == owner.pid
        assert await store.sessions() == ["s1"]

    looking(file, look)
    assert say(owner, "1") == "appended"


def test_a_killed_owner_holds_nothing_and_what_it_appended_is_there(file: Path, owner: subprocess.Popen[str]) -> None:
    """Its write-ahead log is recovered by whoever opens the database next."""
    for seq in (1, 2, 3):
        assert say(owner, str(seq)) == "appended"
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    assert file.with_name("a.db-wal").stat().st_size > 0

    async def look(store: SqliteStore) -> None:
        stored = await store.read("s1")
        assert stored.owner is None
        assert lines_of(stored.entries) == lines_of(notes(0, 4))
        handle = await store.own("s1")
        await handle.append([note(4)], 4)

    looking(file, look)
    assert not file.with_name("a.db-wal").exists()


def test_a_paused_owner_that_wakes_lands_nothing(file: Path, owner: subprocess.Popen[str]) -> None:
    """Whoever took its lock away, the epoch keeps it out."""
    owner.send_signal(signal.SIGSTOP)
    (file.with_name("a.db-locks") / "s1.lock").unlink()

    async def take_over(store: SqliteStore) -> None:
        handle = await store.own("s1")
        await handle.append([note(1, "new owner")], 1)

    looking(file, take_over)
    owner.send_signal(signal.SIGCONT)
    assert say(owner, "1") == "LOST_OWNERSHIP"
    assert say(owner, "2") == "LOST_OWNERSHIP"

    async def look(store: SqliteStore) -> None:
        assert lines_of((await store.read("s1")).entries) == lines_of([note(0), note(1, "new owner")])

    looking(file, look)


def test_an_owner_that_never_appended_loses_to_one_that_did(file: Path) -> None:
    """Two handles for one session, as where a lock file was deleted: the first append decides."""
    write(file, 1)

    async def look(store: SqliteStore) -> None:
        first = await store.own("s1")
        (file.with_name("a.db-locks") / "s1.lock").unlink()
        async with store_at(file) as other:
            second = await other.own("s1")
            await second.append([note(1, "second")], 1)
            for _ in range(2):
                with pytest.raises(LostOwnershipError):
                    await first.append([note(1, "first")], 1)
            await second.append([note(2)], 2)
            stored = await store.read("s1")
            assert lines_of(stored.entries) == lines_of([note(0), note(1, "second"), note(2)])

    looking(file, look)


def test_two_processes_race_and_the_log_is_dense(file: Path) -> None:
    write(file, 1)
    racers = [start(RACER, file) for _ in range(2)]
    for racer in racers:
        tell(racer, "go")
    for racer in racers:
        racer.communicate()
        assert racer.returncode == 0

    async def look(store: SqliteStore) -> None:
        stored = await store.read("s1")
        assert lines_of(stored.entries) == lines_of(notes(0, 21))
        assert stored.damage == ()

    looking(file, look)


def test_eight_processes_with_two_hundred_appends_each(file: Path) -> None:
    """They begin at once, on a database that none of them finds: no error, every log dense."""
    writers = [start(WRITER, file, f"s{number}") for number in range(8)]
    for writer in writers:
        tell(writer, "go")
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0

    async def look(store: SqliteStore) -> None:
        assert sorted(await store.sessions()) == [f"s{number}" for number in range(8)]
        for number in range(8):
            stored = await store.read(f"s{number}")
            assert lines_of(stored.entries) == lines_of(notes(0, 200))
            assert stored.damage == ()
            assert stored.evidence.blind_at == ()

    looking(file, look)


def test_a_reader_beside_others_who_commit_sees_nothing_lost(file: Path) -> None:
    """What is acknowledged is noted beside the database, and both move on while they are read."""
    write(file, 3)
    writers = [start(WRITER, file, f"w{number}") for number in range(2)]
    for writer in writers:
        tell(writer, "go")

    async def look(store: SqliteStore) -> None:
        while any(writer.poll() is None for writer in writers):
            stored = await store.read("s1")
            assert (stored.watermark, stored.evidence.blind_at, stored.damage) == (2, (), ())

    looking(file, look)
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0


# --- forks ----------------------------------------------------------------------------------------------------------


def test_a_forked_child_owns_nothing_and_reads_with_connections_of_its_own(file: Path) -> None:
    def in_child(store: SqliteStore, handle: SqliteHandle, answers: multiprocessing.SimpleQueue[object]) -> None:
        async def main() -> None:
            try:
                await handle.append([note(2)], 2)
                answers.put("appended")
            except Exception as error:  # noqa: BLE001 - whatever it is, the parent asserts on it
                answers.put(type(error).__name__)
            answers.put((await store.read("s1")).watermark)
            fresh = await store.create(header("child"))
            await fresh.append([note(0)], 0)
            answers.put(sorted(await store.sessions()))
            await store.close()

        asyncio.run(main())

    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        await store.read("s1")
        fork = multiprocessing.get_context("fork")
        answers = fork.SimpleQueue()
        child = fork.Process(target=in_child, args=(store, handle, answers))
        child.start()
        found = [answers.get() for _ in range(3)]
        await asyncio.to_thread(child.join)
        assert found == ["LostOwnershipError", 1, ["child", "s1"]]
        assert child.exitcode == 0
        await handle.append([note(2)], 2)
        assert (await store.read("child")).owner is None
        assert (await store.read("s1")).watermark == 2

    run(file, scenario)


# --- the whole database is locked ------------------------------------------------------------------------------------


def test_a_database_that_is_locked_for_a_while_is_waited_for(file: Path) -> None:
    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        locker = start(LOCKER, file)
        appending = asyncio.create_task(handle.append([note(2)], 2))
        for _ in range(20):  # the loop goes on, and so do readers
            assert (await store.read("s1")).watermark == 1
        assert not appending.done()
        tell(locker, "unlock")
        await appending
        locker.communicate()

    run(file, scenario)


def test_a_database_that_stays_locked_fails_the_gate_and_not_the_next_one(file: Path) -> None:
    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        locker = start(LOCKER, file)
        with pytest.raises(LockedError, match="session s1: writing to") as caught:
            await handle.append([note(2)], 2)
        assert caught.value.code == "LOCKED"
        tell(locker, "unlock")
        locker.communicate()
        await handle.append(notes(2, 2), 2)
        assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 4))

    run(file, scenario, patience=0.2)


def test_another_connection_that_reads_for_long_stops_nobody(file: Path) -> None:
    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        other = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        other.execute("BEGIN")
        before = other.execute("SELECT count(*) FROM batch").get
        await handle.append([note(2)], 2)
        assert other.execute("SELECT count(*) FROM batch").get == before
        other.close()

    run(file, scenario)
