"""The trash of a directory of files: what stands where, other processes, and power cuts."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from fencepost.errors import NoSpaceError, SessionNotFoundError
from fencepost.stores.base import StoredLog
from fencepost.stores.jsonl import JsonlStore
from tests.apps.command import tree
from tests.stores.contract_upkeep import FOREVER, write
from tests.stores.faults import FaultyDisk
from tests.stores.jsonl.session import store_at, write_session
from tests.stores.powercut import Cut, RecordingDisk, survey
from tests.stores.sample import header, is_prefix, lines_of, log_bytes, notes


def test_a_session_moves_with_all_that_belongs_to_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path) as store:
            await write(store)
            store.files("s1").mkdir()
            (store.files("s1") / "output").write_text("long")
            (tmp_path / "s1" / "tail-3-9.bin").write_bytes(b"torn")
            before = tree(tmp_path / "s1")
            await store.delete("s1")
            assert [path.name for path in tmp_path.iterdir()] == [".trash"]
            assert (tmp_path / ".trash").stat().st_mode & 0o777 == 0o700
            await store.restore("s1")
            after = tree(tmp_path / "s1")
            assert {**after, "lock": None} == {**before, "lock": None}

    asyncio.run(main())


def test_a_damaged_session_can_be_deleted_and_restored(tmp_path: Path) -> None:
    data = log_bytes(notes(0, 2)).replace(b"note 1", b"nope 1")
    write_session(tmp_path, data)

    async def main() -> None:
        async with store_at(tmp_path) as store:
            await store.delete("s1")
            await store.restore("s1")
            assert (tmp_path / "s1" / "log.jsonl").read_bytes() == data
            assert (await store.read("s1")).damage

    asyncio.run(main())


def test_listing_the_trash_changes_no_byte(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path) as store:
            await store.trash()
            assert list(tmp_path.iterdir()) == []
            await write(store)
            await store.delete("s1")
            before = tree(tmp_path)
            assert [item.session for item in await store.trash()] == ["s1"]
            assert await store.revisions() == {}
            assert tree(tmp_path) == before

    asyncio.run(main())


def test_a_waiting_owner_finds_no_session_when_it_was_deleted(tmp_path: Path) -> None:
    """Both hold the path; only one of them can have the lock of what stands there."""

    async def main() -> None:
        async with store_at(tmp_path) as one, store_at(tmp_path) as other:
            await write(one)
            outcomes = await asyncio.gather(one.delete("s1"), other.own("s1"), return_exceptions=True)
            there = "s1" in await one.sessions()
            failed = [type(outcome) for outcome in outcomes if isinstance(outcome, Exception)]
            assert len(failed) == 1
            assert there == (failed[0] is not SessionNotFoundError)

    asyncio.run(main())


def test_a_trash_that_cannot_be_made_leaves_the_session(tmp_path: Path) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        async with store_at(tmp_path, disk) as store:
            await write(store)
            disk.fail("mkdir", errno.ENOSPC)
            with pytest.raises(NoSpaceError):
                await store.delete("s1")
            assert len((await store.read("s1")).entries) == 3
            await store.delete("s1")
            assert await store.sessions() == []

    asyncio.run(main())


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    base.mkdir()
    return base


def test_after_a_power_cut_a_deleted_session_is_in_one_place_and_whole(tmp_path: Path, base: Path) -> None:
    root, place, disk = base / "root", tmp_path / "after", RecordingDisk()
    seen: set[tuple[int, bool, int]] = set()

    async def check(cut: Cut, stored: StoredLog | None, store: JsonlStore) -> None:
        trashed = len(await store.trash())
        seen.add((cut.acknowledged, stored is not None, trashed))
        if cut.acknowledged == 0:  # it is still being written
            assert trashed + (stored is not None) <= 1, cut.story
            return
        assert trashed + (stored is not None) == 1, cut.story
        if trashed:
            await store.restore("s1")
            stored = await store.read("s1")
        assert stored is not None
        assert lines_of(stored.entries) == lines_of(notes(0, 3)), cut.story
        assert (stored.damage, stored.tail_bytes, stored.header) == ((), 0, header())

    async def main() -> int:
        store = JsonlStore(root, disk=disk)
        await write(store)
        disk.mark(1)
        await store.delete("s1")
        disk.mark(2)
        await store.restore("s1")
        await store.close()
        return await survey(disk, base, root, "s1", place, check, step=97)

    assert asyncio.run(main()) > 20
    assert {(1, True, 0), (1, False, 1), (2, False, 1), (2, True, 0)} <= seen
    assert (2, True, 1) not in seen


def test_after_a_power_cut_a_purged_session_is_whole_or_gone(tmp_path: Path, base: Path) -> None:
    root, place, disk = base / "root", tmp_path / "after", RecordingDisk()
    seen: set[tuple[int, int]] = set()

    async def check(cut: Cut, stored: StoredLog | None, store: JsonlStore) -> None:
        if cut.acknowledged == 0:
            return
        trashed = len(await store.trash())
        seen.add((cut.acknowledged, trashed))
        if trashed:
            await store.restore("s1")
            again = await store.read("s1")
            assert lines_of(again.entries) == lines_of(notes(0, 3)), cut.story
            assert is_prefix(again, notes(0, 3))
        assert await store.purge(FOREVER) == 0
        trash = place / "root" / ".trash"
        assert list(trash.iterdir()) == [], "what a purge left is taken away by the next one"

    async def main() -> int:
        store = JsonlStore(root, disk=disk)
        await write(store)
        await store.delete("s1")
        disk.mark(1)
        assert await store.purge(FOREVER) == 1
        disk.mark(2)
        disk.sync_dir(root)  # something that happens later, so that there are cuts behind the mark
        await store.close()
        return await survey(disk, base, root, "s1", place, check, step=997)

    assert asyncio.run(main()) > 5
    assert seen == {(1, 1), (1, 0), (2, 0)}
