"""More than one writer (the rows of that name): the lock decides, dies with its owner, and no child keeps it."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.errors import HeldError, LostOwnershipError
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.lock import SessionLock, owner_of
from tests.stores.jsonl.session import forked, store_at
from tests.stores.sample import header, lines_of, note, notes

OWNER = """
import asyncio, sys
from fencepost.stores.jsonl import JsonlStore
from tests.stores.sample import header, note

async def main():
    store = JsonlStore(sys.argv[1])
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
from fencepost.stores.jsonl import JsonlStore
from tests.stores.sample import note

async def main():
    store = JsonlStore(sys.argv[1])
    print("ready", flush=True)
    sys.stdin.readline()
    wins = 0
    for _ in range(40):
        try:
            handle = await store.own("s1")
        except HeldError:
            continue
        seq = handle.stored.watermark + 1
        await handle.append([note(seq)], seq)
        await handle.release()
        wins += 1
    await store.close()
    print(wins)

asyncio.run(main())
"""


def start(script: str, root: Path) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    child = subprocess.Popen([sys.executable, "-c", script, str(root)], stdin=pipe, stdout=pipe, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() in {"owned\n", "ready\n"}
    return child


def say(child: subprocess.Popen[str], line: str) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(line + "\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A real process that owns the session s1 in tmp_path."""
    child = start(OWNER, tmp_path)
    yield child
    child.kill()
    child.communicate()


def with_store(root: Path, scenario: Callable[[JsonlStore], object]) -> None:
    async def main() -> None:
        async with store_at(root) as store:
            await scenario(store)  # type: ignore[misc]

    asyncio.run(main())


# --- one owner ------------------------------------------------------------------------------------------------------


def test_the_second_opener_is_told_who_holds_it_since_when(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    async def scenario(store: JsonlStore) -> None:
        with pytest.raises(HeldError) as caught:
            await store.own("s1")
        host = re.escape(os.uname().nodename)
        assert re.fullmatch(rf"session s1 is held by {owner.pid} on {host} since 20\d\d-\S+\+00:00", str(caught.value))
        stored = await store.read("s1")
        assert stored.owner is not None
        assert stored.owner.pid == owner.pid
        assert len(stored.entries) == 1

    with_store(tmp_path, scenario)
    assert set(json.loads((tmp_path / "s1" / "lock").read_bytes())) == {"pid", "host", "since"}


def test_a_killed_owner_holds_nothing(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    owner.send_signal(signal.SIGKILL)
    owner.wait()

    async def scenario(store: JsonlStore) -> None:
        assert (await store.read("s1")).owner is None
        handle = await store.own("s1")
        await handle.append([note(1)], 1)

    with_store(tmp_path, scenario)


def test_two_processes_race_and_the_log_is_dense(tmp_path: Path) -> None:
    async def first(store: JsonlStore) -> None:
        await (await store.create(header())).append([note(0)], 0)

    with_store(tmp_path, first)
    racers = [start(RACER, tmp_path) for _ in range(2)]
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    wins = sum(int(racer.communicate()[0]) for racer in racers)

    async def last(store: JsonlStore) -> None:
        stored = await store.read("s1")
        assert lines_of(stored.entries) == lines_of(notes(0, wins + 1))
        assert stored.damage == ()

    with_store(tmp_path, last)
    assert wins >= 2


def test_a_paused_owner_that_wakes_lands_nothing(tmp_path: Path, owner: subprocess.Popen[str]) -> None:
    """A lock that somebody took away (its file deleted, as by a lease that ran out) still fences the old owner out."""
    owner.send_signal(signal.SIGSTOP)
    (tmp_path / "s1" / "lock").unlink()

    async def take_over(store: JsonlStore) -> None:
        handle = await store.own("s1")
        await handle.append([note(1, "new owner")], 1)

    with_store(tmp_path, take_over)
    before = (tmp_path / "s1" / "log.jsonl").read_bytes()
    owner.send_signal(signal.SIGCONT)
    assert say(owner, "1") == "LOST_OWNERSHIP"
    assert say(owner, "2") == "LOST_OWNERSHIP"
    assert (tmp_path / "s1" / "log.jsonl").read_bytes() == before


def test_reading_in_a_loop_never_keeps_an_owner_out(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore) -> None:
        await (await store.create(header())).append([note(0)], 0)
        await store.close()

    with_store(tmp_path, scenario)

    async def main() -> None:
        reading, owning = JsonlStore(tmp_path), JsonlStore(tmp_path)
        done = False

        async def read() -> int:
            count = 0
            while not done:
                await reading.read("s1")
                count += 1
            return count

        readers = [asyncio.create_task(read()) for _ in range(3)]
        for _ in range(50):
            await (await owning.own("s1")).release()
        done = True
        assert all(await asyncio.gather(*readers))
        await reading.close()
        await owning.close()

    asyncio.run(main())


def test_what_the_lock_file_says_decides_nothing(tmp_path: Path) -> None:
    (tmp_path / "s1").mkdir()
    for text in (b"", b"garbage", b'{"pid":1,"host":"x","since":1}', b'{"pid":"one"}'):
        (tmp_path / "s1" / "lock").write_bytes(text)
        assert owner_of(tmp_path / "s1" / "lock") is None
        lock = SessionLock("s1", tmp_path / "s1" / "lock")
        lock.take()
        held = owner_of(tmp_path / "s1" / "lock")
        assert held is not None
        assert held.pid == os.getpid()
        lock.release()
        lock.release()
        assert owner_of(tmp_path / "s1" / "lock") is None
    assert owner_of(tmp_path / "s1" / "missing") is None


def test_an_owner_that_has_not_written_its_name_yet_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = SessionLock("s1", path)
    lock.take()
    path.write_bytes(b"")
    held = owner_of(path)
    assert held is not None
    with pytest.raises(HeldError, match="session s1 is held by another process"):
        SessionLock("s1", path).take()
    lock.release()


def test_a_probe_is_waited_for_and_not_taken_for_an_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probe = os.open(tmp_path / "lock", os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(probe, fcntl.LOCK_SH)
    monkeypatch.setattr("fencepost.stores.lock.time.sleep", lambda seconds: fcntl.flock(probe, fcntl.LOCK_UN))
    lock = SessionLock("s1", tmp_path / "lock")
    lock.take()
    assert lock.held
    lock.release()
    os.close(probe)


def test_a_lock_on_a_deleted_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody deletes the file between our opening and our locking it: the lock must be on the file that is there."""
    path, flock, deleted = tmp_path / "lock", fcntl.flock, []

    def delete_first(fd: int, operation: int) -> None:
        if not deleted:
            deleted.append(path.unlink())
        flock(fd, operation)

    monkeypatch.setattr("fencepost.stores.lock.fcntl.flock", delete_first)
    lock = SessionLock("s1", path)
    lock.take()
    assert owner_of(path) is not None
    lock.release()


# --- children -------------------------------------------------------------------------------------------------------


def test_a_forked_child_that_outlives_its_parent_keeps_no_lock(tmp_path: Path) -> None:
    """The owner forks a child that only waits, and is killed: the child's copy of the descriptor is closed."""
    script = OWNER.replace(
        'print("owned", flush=True)',
        "import os, signal\n    child = os.fork()\n    if not child:\n        signal.pause()\n"
        '    print("owned", flush=True)\n    print(child, flush=True)',
    )
    with start(script, tmp_path) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        try:
            owner.kill()
            owner.wait()
            os.kill(child, 0)

            async def scenario(store: JsonlStore) -> None:
                assert (await store.read("s1")).owner is None
                await (await store.own("s1")).release()

            with_store(tmp_path, scenario)
        finally:
            os.kill(child, signal.SIGKILL)


def test_an_executed_child_that_outlives_its_parent_keeps_no_lock(tmp_path: Path) -> None:
    script = OWNER.replace(
        'print("owned", flush=True)',
        'import subprocess\n    child = subprocess.Popen(["sleep", "600"], close_fds=False)\n'
        '    print("owned", flush=True)\n    print(child.pid, flush=True)',
    )
    with start(script, tmp_path) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        try:
            owner.kill()
            owner.wait()
            os.kill(child, 0)

            async def scenario(store: JsonlStore) -> None:
                await (await store.own("s1")).release()

            with_store(tmp_path, scenario)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_forked_child_owns_nothing_and_may_use_the_store_for_itself(tmp_path: Path) -> None:
    async def in_child(store: JsonlStore, handle: object) -> None:
        with pytest.raises(LostOwnershipError):
            await handle.append([note(1)], 1)  # type: ignore[attr-defined]
        await handle.release()  # type: ignore[attr-defined]
        stored = await store.read("s1")
        assert stored.owner is not None
        assert stored.owner.pid == os.getppid()
        with pytest.raises(HeldError):
            await store.own("s1")

    async def scenario() -> None:
        store = JsonlStore(tmp_path)
        handle = await store.create(header())
        await handle.append([note(0)], 0)
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, forked, lambda: asyncio.run(in_child(store, handle))) == 0
        await handle.append([note(1)], 1)
        await store.close()

    asyncio.run(scenario())
