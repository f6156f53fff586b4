"""Torn tails, missing commit lines and cut logs: nothing is welded to them, and nothing of them is forgotten."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from fencepost.core import codec
from fencepost.errors import (
    NoSpaceError,
)
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.jsonl.handle import FileHandle
from tests.stores.faults import FaultyDisk
from tests.stores.jsonl.session import log_of, owning, run, store_at, write_session
from tests.stores.sample import header, log_bytes, note, notes

# --- the tail -------------------------------------------------------------------------------------------------------


def test_a_torn_tail_is_set_aside_before_the_first_append(tmp_path: Path) -> None:
    clean, torn = log_bytes(notes(0, 2)), codec.encode(note(2))[:25]
    session = write_session(tmp_path, clean + torn)

    async def scenario(store: JsonlStore, handle: FileHandle) -> None:
        assert handle.stored.tail_bytes == 25
        assert (session / "log.jsonl").read_bytes() == clean + torn
        assert await handle.set_aside() == 25
        assert await handle.set_aside() == 0
        side = session / f"tail-2-{len(clean)}.bin"
        assert side.read_bytes() == torn
        assert side.stat().st_mode & 0o777 == 0o600
        assert log_of(tmp_path) == clean
        await handle.append([note(2)], 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])

    owning(tmp_path, scenario)


def test_an_append_sets_the_tail_aside_by_itself(tmp_path: Path) -> None:
    clean = log_bytes(notes(0, 2))
    session = write_session(tmp_path, clean + b'{"type":"to')

    async def scenario(store: JsonlStore, handle: FileHandle) -> None:
        await handle.append([note(2)], 2)
        assert (session / f"tail-2-{len(clean)}.bin").read_bytes() == b'{"type":"to'
        assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])

    owning(tmp_path, scenario)


@pytest.mark.parametrize("newline", [b"\n", b""], ids=["newline", "no newline"])
def test_whole_records_without_a_commit_line_are_committed_by_the_next_append(tmp_path: Path, newline: bytes) -> None:
    write_session(tmp_path, log_bytes(notes(0, 2)) + codec.encode(note(2)) + newline)

    async def scenario(store: JsonlStore, handle: FileHandle) -> None:
        assert handle.stored.watermark == 2
        await handle.append([note(3)], 3)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), notes(2, 2))
        assert (await store.read("s1")).damage == ()

    owning(tmp_path, scenario)


def test_a_commit_line_without_its_newline_gets_it(tmp_path: Path) -> None:
    write_session(tmp_path, log_bytes(notes(0, 2))[:-1])

    async def scenario(store: JsonlStore, handle: FileHandle) -> None:
        await handle.append([note(2)], 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])

    owning(tmp_path, scenario)


def test_a_header_alone_is_gone_on_with(tmp_path: Path) -> None:
    for newline in (b"\n", b""):
        root = tmp_path / str(len(newline))
        write_session(root, codec.encode(header()) + newline)

        async def scenario(store: JsonlStore, handle: FileHandle) -> None:
            await handle.append([note(0)], 0)

        owning(root, scenario)
        assert log_of(root) == log_bytes([note(0)])


@pytest.mark.parametrize("step", ["create", "write", "sync_data", "rename", "sync_dir", "truncate"])
def test_setting_aside_that_fails_loses_no_evidence_and_can_be_repeated(tmp_path: Path, step: str) -> None:
    clean, torn = log_bytes(notes(0, 2)), b'{"type":"tool/call","call_id":"c9",'
    session = write_session(tmp_path, clean + torn)

    async def main() -> None:
        disk = FaultyDisk()
        async with store_at(tmp_path, disk) as store:
            handle = await store.own("s1")
            disk.fail(step, errno.ENOSPC)
            with pytest.raises(NoSpaceError):
                await handle.set_aside()
            assert "c9" in (await store.read("s1")).evidence.named
            await handle.append([note(2)], 2)
            assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])
            assert (session / f"tail-2-{len(clean)}.bin").read_bytes() == torn
            assert "c9" in (await store.read("s1")).evidence.named

    asyncio.run(main())


def test_a_second_tail_at_the_same_place_is_added_to_the_first(tmp_path: Path) -> None:
    clean = log_bytes(notes(0, 2))
    session = write_session(tmp_path, clean + b'{"call_id":"a",')

    async def scenario(store: JsonlStore, handle: FileHandle) -> None:
        await handle.set_aside()

    owning(tmp_path, scenario)
    (session / "log.jsonl").write_bytes(clean + b'{"call_id":"b",')
    owning(tmp_path, scenario)
    assert (session / f"tail-2-{len(clean)}.bin").read_bytes() == b'{"call_id":"a",{"call_id":"b",'

    async def look() -> None:
        async with store_at(tmp_path) as store:
            assert (await store.read("s1")).evidence.named == {"a", "b"}

    asyncio.run(look())


def test_a_loss_without_torn_bytes_is_remembered_past_the_next_append(tmp_path: Path) -> None:
    """The commit line is missing and all records are whole: nothing to move, and still bytes may be gone."""
    write_session(tmp_path, log_bytes(notes(0, 2)) + codec.encode(note(2)) + b"\n")

    async def scenario(store: JsonlStore, handle: FileHandle) -> None:
        assert handle.stored.evidence.blind_at == (3,)
        assert await handle.set_aside() == 0
        await handle.append([note(3)], 3)
        assert (await store.read("s1")).evidence.blind_at == (3,)

    owning(tmp_path, scenario)


# --- the watermark hint ---------------------------------------------------------------------------------------------


def test_acknowledged_bytes_that_were_cut_off_are_missed(tmp_path: Path) -> None:
    async def write(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        await handle.append(notes(2, 3), 2)

    run(tmp_path, write)
    session = tmp_path / "s1"
    assert (session / "watermark").read_bytes() == b"%020d\n" % 4
    (session / "log.jsonl").write_bytes(log_bytes(notes(0, 2)))

    async def scenario(store: JsonlStore, handle: FileHandle) -> None:
        assert handle.stored.watermark == 1
        assert handle.stored.evidence.blind_at == (2,)
        assert (session / "watermark").read_bytes() == b"%020d\n" % 4
        await handle.append([note(2)], 2)
        await handle.release()
        assert (session / "watermark").read_bytes() == b"%020d\n" % 2
        assert (await store.read("s1")).evidence.blind_at == (2,)

    owning(tmp_path, scenario)


@pytest.mark.parametrize("hint", [b"", b"\0" * 21, b"9" * 50, b"7\n", b"x" * 20 + b"\n"], ids=repr)
def test_a_hint_that_is_none_adds_no_doubt(tmp_path: Path, hint: bytes) -> None:
    session = write_session(tmp_path, log_bytes(notes(0, 2)))
    (session / "watermark").write_bytes(hint)

    async def scenario(store: JsonlStore, handle: FileHandle) -> None:
        assert handle.stored.evidence.blind_at == ()

    owning(tmp_path, scenario)


@pytest.mark.parametrize("operation", ["open_hint", "overwrite"])
def test_a_hint_that_cannot_be_written_stops_nothing(tmp_path: Path, operation: str) -> None:
    async def main() -> None:
        disk = FaultyDisk()
        disk.fail(operation, errno.ENOSPC, times=50)
        async with store_at(tmp_path, disk) as store:
            handle = await store.create(header())
            for seq in range(6):
                await handle.append([note(seq)], seq)
            await handle.release()
            assert disk.calls[operation] > 0
            stored = await store.read("s1")
            assert (stored.watermark, stored.evidence.blind_at) == (5, ())

    asyncio.run(main())
