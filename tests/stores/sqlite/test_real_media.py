"""Real media that fill up, or refuse: the typed cause, the log as before, and the next gate."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.errors import NoSpaceError
from tests.stores.sample import header, lines_of, note, notes
from tests.stores.sqlite.sessions import store_at, write


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 512 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(place: Path, left: int) -> Path:
    """Fill the medium up to `left` bytes."""
    ballast = place / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    os.truncate(ballast, ballast.stat().st_size - left)
    return ballast


def test_a_disk_that_is_full_and_has_space_again(small_disk: Path) -> None:
    async def main() -> None:
        async with store_at(small_disk / "a.db") as store:
            handle = await store.create(header())
            await handle.append(notes(0, 2), 0)
            ballast = fill(small_disk, 0)
            for _ in range(3):
                with pytest.raises(NoSpaceError, match="session s1"):
                    await handle.append([note(2, "y" * 12_000)], 2)
                stored = await store.read("s1")
                assert lines_of(stored.entries) == lines_of(notes(0, 2))
                assert stored.damage == ()
            ballast.unlink()
            await handle.append([note(2, "y" * 12_000), note(3)], 2)
            stored = await store.read("s1")
            assert lines_of(stored.entries) == lines_of([*notes(0, 2), note(2, "y" * 12_000), note(3)])

    asyncio.run(main())


def test_only_the_batch_that_does_not_fit_fails(small_disk: Path) -> None:
    async def main() -> None:
        async with store_at(small_disk / "a.db") as store:
            handles = [await store.create(header(f"s{number}")) for number in range(3)]
            for handle in handles:
                await handle.append([note(0)], 0)
            fill(small_disk, 40_960)
            found = await asyncio.gather(
                handles[0].append([note(1)], 1),
                handles[1].append([note(1, "y" * 200_000)], 1),
                handles[2].append([note(1)], 1),
                return_exceptions=True,
            )
            assert [type(error) for error in found] == [type(None), NoSpaceError, type(None)]
            assert [(await store.read(f"s{number}")).watermark for number in range(3)] == [1, 0, 1]

    asyncio.run(main())


def test_a_full_disk_is_still_read(small_disk: Path) -> None:
    """Also where SQLite has no space for the index that it reads with."""
    script = """
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
    assert subprocess.run([sys.executable, "-c", script, small_disk / "a.db"], check=False).returncode == 9
    (small_disk / "a.db-shm").unlink()
    fill(small_disk, 0)

    async def main() -> None:
        async with store_at(small_disk / "a.db") as store:
            assert await store.sessions() == ["s1"]
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))

    asyncio.run(main())


LIMITED = """
import asyncio, resource, sys
from pathlib import Path
from fencepost.errors import NoSpaceError
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, note, notes

async def main():
    store = SqliteStore(sys.argv[1])
    handle = await store.create(header())
    await handle.append(notes(0, 2), 0)
    limit = Path(sys.argv[1] + "-wal").stat().st_size + 100
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        await handle.append([note(2, "z" * 20000)], 2)
    except NoSpaceError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await handle.append([note(2)], 2)
    print((await store.read("s1")).watermark)
    await store.close()

asyncio.run(main())
"""


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", LIMITED, tmp_path / "a.db"], capture_output=True, text=True, check=True
    )
    said, watermark = child.stdout.splitlines()
    assert said.startswith(f"session s1: writing to {tmp_path}/a.db failed")
    assert watermark == "2"


UNPRIVILEGED = """
import asyncio, os, sys
from fencepost.errors import FencepostError
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import note

async def append(store):
    await (await store.own("s1")).append([note(3)], 3)

async def main():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    for ask in (lambda store: store.sessions(), lambda store: store.read("s1"), append):
        store = SqliteStore(sys.argv[1])
        try:
            await ask(store)
            print("fine")
        except FencepostError as error:
            print(type(error).__name__)
        await store.close()

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("mode", "answers"),
    [(0o000, ["PermissionDeniedError"] * 3), (0o444, ["fine", "fine", "PermissionDeniedError"]), (0o666, ["fine"] * 3)],
)
def test_a_file_that_may_not_be_opened(mode: int, answers: list[str]) -> None:
    """As another user, where this one may do anything."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "a.db"
        write(file, 3)
        for path in (file.parent, *file.parent.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        file.chmod(mode)
        command = [sys.executable, "-c", UNPRIVILEGED, file]
        assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == answers
