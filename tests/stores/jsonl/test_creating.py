"""A new log is there whole, under a name that lasts, or not at all."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from fencepost.errors import (
    NoSpaceError,
    SessionExistsError,
)
from tests.stores.faults import FaultyDisk
from tests.stores.jsonl.session import log_of, store_at
from tests.stores.sample import header, log_bytes, note, notes


@pytest.mark.parametrize("step", ["create", "write", "sync_data", "link", "unlink", "sync_dir", "fstat"])
def test_a_new_log_is_there_whole_or_not_at_all(tmp_path: Path, step: str) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        async with store_at(tmp_path / "root", disk) as store:
            handle = await store.create(header())
            if step == "unlink":  # the first call takes a draft of an earlier crash away
                (tmp_path / "root" / "s1" / "log.draft").touch()
            disk.fail(step, errno.ENOSPC, keep=40)
            with pytest.raises(NoSpaceError):
                await handle.append([note(0)], 0)
            assert await store.sessions() == []
            await handle.append(notes(0, 2), 0)
            await handle.append([note(2)], 2)
            assert log_of(tmp_path / "root") == log_bytes(notes(0, 2), [note(2)])
            assert not (tmp_path / "root" / "s1" / "log.draft").exists()

    asyncio.run(main())


def test_a_log_in_its_place_is_never_overwritten(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path) as store:
            handle = await store.create(header())
            (tmp_path / "s1" / "log.jsonl").write_bytes(b"of somebody else")
            with pytest.raises(SessionExistsError):
                await handle.append([note(0)], 0)
            assert log_of(tmp_path) == b"of somebody else"

    asyncio.run(main())


def test_every_name_up_to_the_root_is_synced(tmp_path: Path) -> None:
    synced: list[Path] = []

    class Watching(FaultyDisk):
        def sync_dir(self, path: Path) -> None:
            super().sync_dir(path)
            synced.append(path)

    root = tmp_path / "a" / "b" / "c"

    async def main() -> None:
        async with store_at(root, Watching()) as store:
            await (await store.create(header())).append([note(0)], 0)

    asyncio.run(main())
    assert {root / "s1", root, root.parent, root.parent.parent, tmp_path} <= set(synced)
    assert synced.index(root.parent) < synced.index(root / "s1") < synced.index(root)


def test_leftovers_of_a_killed_creation_are_not_listed_and_cleared_away(tmp_path: Path) -> None:
    session = tmp_path / "s1"
    session.mkdir()
    (session / "lock").write_bytes(b"")
    (session / "log.draft").write_bytes(log_bytes([note(0)])[:30])

    async def main() -> None:
        async with store_at(tmp_path) as store:
            assert await store.sessions() == []
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            assert {path.name for path in session.iterdir()} >= {"lock", "log.jsonl"}
            assert not (session / "log.draft").exists()

    asyncio.run(main())


def test_side_files_without_their_log_are_not_adopted(tmp_path: Path) -> None:
    session = tmp_path / "s1"
    session.mkdir()
    (session / "tail-5-100.bin").write_bytes(b"torn")

    async def main() -> None:
        async with store_at(tmp_path) as store:
            with pytest.raises(SessionExistsError, match="left files behind"):
                await store.create(header())

    asyncio.run(main())
