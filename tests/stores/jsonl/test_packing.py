"""Compressed logs: one whole log at every moment, whatever is cut, killed or rotten."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from fencepost.errors import DamagedError, HeldError, MediumError, NoSpaceError, SessionExistsError, UnsupportedError
from fencepost.stores.base import StoredLog
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.jsonl.packing import pack, unpack
from tests.apps.command import tree
from tests.stores.contract_upkeep import write
from tests.stores.faults import FaultyDisk
from tests.stores.jsonl.session import store_at, write_session
from tests.stores.powercut import Cut, RecordingDisk, survey
from tests.stores.sample import batch, header, lines_of, log_bytes, note, notes

WHOLE = log_bytes(notes(0, 40), notes(40, 40))


def test_the_form_is_a_frame_with_a_checksum() -> None:
    assert unpack(pack(WHOLE)) == (WHOLE, None)
    assert unpack(pack(b"")) == (b"", None)
    assert unpack(pack(WHOLE), 10) == (WHOLE[:10], None)
    assert len(pack(WHOLE)) < len(WHOLE) / 4


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda data: data[: len(data) // 2], "ends too early"),
        (lambda data: b"", "ends too early"),
        (lambda data: b"x" + data[1:], "not what was written"),
        (lambda data: data[:-2] + bytes([data[-2] ^ 1, data[-1]]), "not what was written"),
        (lambda data: data + b"more", "4 bytes stand behind"),
        (lambda data: data + bytes(1 << 18), "262144 bytes stand behind"),
    ],
)
def test_what_is_wrong_with_a_form_is_said(spoil: object, why: str) -> None:
    assert callable(spoil)
    found, flaw = unpack(spoil(pack(WHOLE)))
    assert why in str(flaw)
    assert WHOLE.startswith(found) or "not what" in why


def test_only_the_compressed_file_stands_there_and_the_first_append_undoes_it(tmp_path: Path) -> None:
    place = write_session(tmp_path, WHOLE)
    with (place / "log.jsonl").open("rb") as file:
        assert file.read() == WHOLE

    async def main() -> None:
        async with store_at(tmp_path) as store:
            saved = await store.compress("s1")
            packed = (place / "log.jsonl.zst").read_bytes()
            assert (saved.before, saved.after) == (len(WHOLE), len(packed))
            assert sorted(path.name for path in place.iterdir()) == ["lock", "log.jsonl.zst"]
            assert (place / "log.jsonl.zst").stat().st_mode & 0o777 == 0o600
            assert await store.sessions() == ["s1"]
            with pytest.raises(SessionExistsError):
                await store.create(header())
            handle = await store.own("s1")
            assert (place / "log.jsonl.zst").read_bytes() == packed, "owning is no append (law 7)"
            await handle.append([note(80)], 80)
            assert (place / "log.jsonl").read_bytes() == WHOLE + batch([note(80)])
            assert not (place / "log.jsonl.zst").exists()

    asyncio.run(main())


def test_reading_a_compressed_log_changes_no_byte(tmp_path: Path) -> None:
    write_session(tmp_path, WHOLE)

    async def main() -> None:
        async with store_at(tmp_path) as store:
            await store.compress("s1")
            before = tree(tmp_path)
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 80))
            await store.revisions()
            assert tree(tmp_path) == before

    asyncio.run(main())


def test_a_torn_tail_is_set_aside_out_of_a_compressed_log_too(tmp_path: Path) -> None:
    torn = b'{"type":"tool/call","seq":80,"call_id":"c9"'
    place = write_session(tmp_path, WHOLE + torn)

    async def main() -> None:
        async with store_at(tmp_path) as store:
            await store.compress("s1")
            assert (await store.read("s1")).tail_bytes == len(torn)
            handle = await store.own("s1")
            assert await handle.set_aside() == len(torn)
            await handle.append([note(80)], 80)
            stored = await store.read("s1")
            assert (place / f"tail-80-{len(WHOLE)}.bin").read_bytes() == torn
            assert (stored.damage, stored.watermark) == ((), 80)
            assert "c9" in stored.evidence.named

    asyncio.run(main())


def test_what_may_not_be_continued_is_not_compressed(tmp_path: Path) -> None:
    damaged = write_session(tmp_path, WHOLE.replace(b"note 20", b"nope 20"), "bad")
    newer = write_session(tmp_path, WHOLE.replace(b'"format":1', b'"format":9'), "new")

    async def main() -> None:
        async with store_at(tmp_path) as store:
            with pytest.raises(DamagedError):
                await store.compress("bad")
            with pytest.raises(UnsupportedError, match="newer"):
                await store.compress("new")

    asyncio.run(main())
    for place in (damaged, newer):
        assert (place / "log.jsonl").exists()
        assert not list(place.glob("*zst*"))


def test_a_living_owner_keeps_its_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with store_at(tmp_path) as store, store_at(tmp_path) as other:
            handle = await store.create(header())
            await handle.append(notes(0, 50), 0)
            with pytest.raises(HeldError):
                await other.compress("s1")
            await handle.append([note(50)], 50)

    asyncio.run(main())


def test_a_rotten_compressed_log_is_damaged_listed_and_never_cut(tmp_path: Path) -> None:
    place = write_session(tmp_path, WHOLE)

    async def main() -> None:
        async with store_at(tmp_path) as store:
            await store.compress("s1")
            packed = bytearray((place / "log.jsonl.zst").read_bytes())
            packed[-20] ^= 0xFF
            (place / "log.jsonl.zst").write_bytes(packed)
            before = tree(place)
            stored = await store.read("s1")
            assert stored.damage
            assert stored.evidence.blind_at
            assert await store.sessions() == ["s1"]
            handle = await store.own("s1")
            with pytest.raises(DamagedError):
                await handle.append([note(80)], 80)
            assert {**tree(place), "lock": None} == {**before, "lock": None}

    asyncio.run(main())


def test_a_form_that_reads_back_otherwise_is_thrown_away(tmp_path: Path) -> None:
    class Rotting(FaultyDisk):
        def read(self, path: Path, start: int = 0, limit: int | None = None) -> bytes:
            data = super().read(path, start, limit)
            return data[:-1] + b"?" if path.name == "log.zst.draft" else data

    place = write_session(tmp_path, WHOLE)

    async def main() -> None:
        async with store_at(tmp_path, Rotting()) as store:
            with pytest.raises(MediumError, match="as it was"):
                await store.compress("s1")

    asyncio.run(main())
    assert sorted(path.name for path in place.iterdir()) == ["lock", "log.jsonl"]


@pytest.mark.parametrize("operation", ["create", "write", "sync_data", "rename", "sync_dir"])
def test_after_a_fault_the_log_is_whole_and_compressing_works_again(tmp_path: Path, operation: str) -> None:
    write_session(tmp_path, WHOLE)

    async def main() -> None:
        disk = FaultyDisk()
        async with store_at(tmp_path, disk) as store:
            (tmp_path / "s1" / "log.zst.draft").write_bytes(b"left by a killed process")
            disk.fail(operation, errno.ENOSPC)
            with pytest.raises(NoSpaceError):
                await store.compress("s1")
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 80))
            assert (await store.compress("s1")).after < len(WHOLE)
            handle = await store.own("s1")
            disk.fail(operation, errno.ENOSPC)
            with pytest.raises(NoSpaceError):
                await handle.append([note(80)], 80)
            await handle.append([note(80)], 80)
            assert lines_of((await store.read("s1")).entries) == lines_of([*notes(0, 80), note(80)])

    asyncio.run(main())


def test_after_any_power_cut_there_is_one_whole_log(tmp_path: Path) -> None:
    base = tmp_path / "base"
    root, place, disk = base / "root", tmp_path / "after", RecordingDisk()
    base.mkdir()
    forms: set[tuple[str, ...]] = set()

    async def check(cut: Cut, stored: StoredLog | None, store: JsonlStore) -> None:
        if cut.acknowledged == 0:
            return
        forms.add(tuple(sorted(path.name for path in cut.files if path.name.startswith("log.jsonl"))))
        assert stored is not None, cut.story
        assert (stored.damage, stored.header) == ((), header()) or cut.lost_block, cut.story
        assert lines_of(stored.entries)[:30] == lines_of(notes(0, 30)), cut.story
        assert len(stored.entries) >= cut.acknowledged, cut.story
        if stored.damage:
            return
        handle = await store.own("s1")
        await handle.set_aside()
        count = len(stored.entries)
        await handle.append([note(count, "and on")], count)
        await handle.release()
        assert lines_of((await store.read("s1")).entries)[:30] == lines_of(notes(0, 30)), cut.story

    async def main() -> int:
        store = JsonlStore(root, disk=disk)
        await write(store, count=30)
        disk.mark(30)
        await store.compress("s1")
        disk.mark(30)
        handle = await store.own("s1")
        await handle.append([note(30)], 30)
        disk.mark(31)
        await handle.release()
        await store.compress("s1")
        await store.close()
        return await survey(disk, base, root, "s1", place, check, step=211)

    assert asyncio.run(main()) > 50
    assert forms == {("log.jsonl",), ("log.jsonl.zst",), ("log.jsonl", "log.jsonl.zst")}
