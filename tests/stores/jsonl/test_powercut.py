"""Power cuts at every boundary: what is durable is a prefix, and all that was acknowledged is there (laws 6 and 9)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fencepost.core import events as ev
from fencepost.stores.base import StoredLog
from fencepost.stores.jsonl import JsonlStore
from tests.stores.powercut import Cut, RecordingDisk, survey
from tests.stores.sample import header, is_prefix, lines_of, note, notes

BATCHES: list[list[ev.Entry]] = [notes(0, 2), notes(2, 1), notes(3, 5, "x" * 150), notes(8, 3, "☕" * 40), notes(11, 1)]
ALL = [entry for batch in BATCHES for entry in batch]


async def work(root: Path, disk: RecordingDisk) -> None:
    """Append all batches, with a release and a new owner in the middle."""
    store = JsonlStore(root, disk=disk)
    handle = await store.create(header())
    for number, batch in enumerate(BATCHES):
        if number == 2:
            await handle.release()
            handle = await store.own("s1")
        await handle.append(batch, batch[0].seq)
        disk.mark(batch[-1].seq + 1)
    await store.close()


def laws(cut: Cut, stored: StoredLog | None) -> None:
    if stored is None:
        assert cut.acknowledged == 0, cut.story
        return
    assert is_prefix(stored, ALL), cut.story
    assert len(stored.entries) >= cut.acknowledged, cut.story
    assert stored.header == header(), cut.story
    assert stored.owner is None
    if stored.damage:
        assert cut.lost_block, cut.story
    log = next(content for path, content in cut.files.items() if path.name == "log.jsonl")
    last = log.rstrip(b"\n").split(b"\n")[-1]
    whole = not stored.damage and last.startswith(b'{"type":"commit"') and last.endswith(b'"}')
    # The hint is never ahead of the log, so a log that ends with a commit line raises no doubt.
    assert stored.evidence.blind_at == (() if whole else (len(stored.entries),)), cut.story


@pytest.fixture
def base(tmp_path: Path) -> Path:
    base = tmp_path / "base"
    base.mkdir()
    return base


def test_after_any_power_cut_the_log_is_a_prefix_with_all_that_was_acknowledged(tmp_path: Path, base: Path) -> None:
    root, place, disk = base / "new" / "root", tmp_path / "after", RecordingDisk()
    listed, damaged = set(), 0

    async def check(cut: Cut, stored: StoredLog | None, store: JsonlStore) -> None:
        nonlocal damaged
        laws(cut, stored)
        listed.add(stored is not None)
        damaged += bool(stored and stored.damage)

    async def main() -> int:
        await work(root, disk)
        return await survey(disk, base, root, "s1", place, check, step=13)

    assert asyncio.run(main()) > 300
    assert listed == {True, False}
    assert 0 < damaged < 20


def test_after_any_power_cut_the_next_owner_goes_on(tmp_path: Path, base: Path) -> None:
    root, place, disk = base / "root", tmp_path / "after", RecordingDisk()

    async def check(cut: Cut, stored: StoredLog | None, store: JsonlStore) -> None:
        if stored is None:
            handle = await store.create(header())
        elif stored.damage:
            return
        else:
            handle = await store.own("s1")
            assert await handle.set_aside() == stored.tail_bytes
        count = len(handle.stored.entries)
        await handle.append([note(count, "and on")], count)
        await handle.release()
        after = await store.read("s1")
        assert lines_of(after.entries) == lines_of([*ALL[:count], note(count, "and on")]), cut.story
        assert (after.damage, after.tail_bytes) == ((), 0)
        assert after.evidence.blind_at == handle.stored.evidence.blind_at

    async def main() -> int:
        await work(root, disk)
        return await survey(disk, base, root, "s1", place, check, step=97)

    assert asyncio.run(main()) > 30


def test_a_power_cut_while_the_tail_is_set_aside_loses_no_evidence(tmp_path: Path, base: Path) -> None:
    root, place, disk = base / "root", tmp_path / "after", RecordingDisk()
    torn = b'{"type":"tool/call","seq":2,"time":1,"turn":1,"step":1,"call_id":"c9","na'

    async def check(cut: Cut, stored: StoredLog | None, store: JsonlStore) -> None:
        if stored is None or cut.acknowledged < 2:
            return
        assert "c9" in stored.evidence.named, cut.story
        assert 2 in stored.evidence.blind_at, cut.story
        assert is_prefix(stored, notes(0, 3)), cut.story
        assert len(stored.entries) >= cut.acknowledged

    async def main() -> int:
        store = JsonlStore(root, disk=disk)
        handle = await store.create(header())
        await handle.append(notes(0, 2), 0)
        await handle.release()
        fd = disk.open_log(root / "s1" / "log.jsonl")
        disk.write(fd, torn)
        disk.sync_data(fd)
        disk.close(fd)
        disk.mark(2)
        handle = await store.own("s1")
        assert await handle.set_aside() == len(torn)
        await handle.append([note(2)], 2)
        disk.mark(3)
        await store.close()
        return await survey(disk, base, root, "s1", place, check, step=9)

    assert asyncio.run(main()) > 50


class ForgetsData(RecordingDisk):
    def sync_data(self, fd: int) -> None:
        return


class ForgetsNames(RecordingDisk):
    def sync_dir(self, path: Path) -> None:
        return


@pytest.mark.parametrize("forgetful", [ForgetsData, ForgetsNames])
def test_a_store_that_did_not_sync_would_be_found_out(
    tmp_path: Path, base: Path, forgetful: type[RecordingDisk]
) -> None:
    """The simulator's own proof: it tells a disk that forgets its syncs from one that keeps them."""
    root, place, disk = base / "root", tmp_path / "after", forgetful()
    broken = 0

    async def check(cut: Cut, stored: StoredLog | None, store: JsonlStore) -> None:
        nonlocal broken
        try:
            laws(cut, stored)
        except AssertionError:
            broken += 1

    async def main() -> None:
        await work(root, disk)
        await survey(disk, base, root, "s1", place, check, step=101)

    asyncio.run(main())
    assert broken
