"""Real media that fill up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.errors import NoSpaceError, ReadOnlyError
from tests.stores.jsonl.session import log_of, store_at
from tests.stores.sample import header, lines_of, log_bytes, note, notes


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.decode().strip()}")
    yield place
    subprocess.run(["umount", place], check=True)


def test_a_disk_that_is_full_and_has_space_again(small_disk: Path) -> None:
    async def main() -> None:
        async with store_at(small_disk) as store:
            handle = await store.create(header())
            await handle.append(notes(0, 2), 0)
            ballast = small_disk / "ballast"
            with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * 1024)
            before = (small_disk / "s1" / "log.jsonl").read_bytes()
            big = [note(2, "y" * 12_000)]
            for _ in range(3):
                with pytest.raises(NoSpaceError):
                    await handle.append(big, 2)
                assert (small_disk / "s1" / "log.jsonl").read_bytes() == before
            other = await store.read("s1")
            assert other.tail_bytes == 0
            ballast.unlink()
            await handle.append(big, 2)
            assert log_of(small_disk) == log_bytes(notes(0, 2), big)

    asyncio.run(main())


CHILD = """
import asyncio, resource, sys
from pathlib import Path
from fencepost.errors import NoSpaceError
from fencepost.stores.jsonl import JsonlStore
from tests.stores.sample import header, note, notes

async def main():
    store = JsonlStore(Path(sys.argv[1]))
    handle = await store.create(header())
    await handle.append(notes(0, 2), 0)
    limit = (Path(sys.argv[1]) / "s1" / "log.jsonl").stat().st_size + 100
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        await handle.append([note(2, "z" * 4000)], 2)
    except NoSpaceError as error:
        print(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await handle.append([note(2)], 2)
    await store.close()

asyncio.run(main())
"""


def test_a_limit_on_the_size_of_files(tmp_path: Path) -> None:
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    child = subprocess.run([sys.executable, "-c", CHILD, tmp_path], capture_output=True, text=True, check=True)
    assert "File too large" in child.stdout
    assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])


def test_a_read_only_medium_is_read_and_named(small_disk: Path) -> None:
    async def write() -> None:
        async with store_at(small_disk) as store:
            await (await store.create(header())).append(notes(0, 2), 0)

    async def look() -> None:
        async with store_at(small_disk) as store:
            assert await store.sessions() == ["s1"]
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 2))
            with pytest.raises(ReadOnlyError, match="s1"):
                await store.own("s1")
            with pytest.raises(ReadOnlyError, match="s2"):
                await store.create(header("s2"))

    asyncio.run(write())
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    asyncio.run(look())
