"""Writing (the rows of that name): what fails is rolled back, named by its cause, and written once later."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.errors import (
    LostOwnershipError,
    MediumError,
    NoSpaceError,
    PermissionDeniedError,
    PoisonedError,
    ReadOnlyError,
    StoreError,
)
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.jsonl.handle import FileHandle
from tests.stores.faults import FaultyDisk, Loss
from tests.stores.jsonl.session import log_of, run
from tests.stores.sample import lines_of, log_bytes, note, notes

CAUSES = [
    (errno.ENOSPC, NoSpaceError),
    (errno.EDQUOT, NoSpaceError),
    (errno.EFBIG, NoSpaceError),
    (errno.EROFS, ReadOnlyError),
    (errno.EACCES, PermissionDeniedError),
    (errno.EPERM, PermissionDeniedError),
    (errno.EIO, MediumError),
    (errno.ENXIO, MediumError),
]

# --- the form -------------------------------------------------------------------------------------------------------


def test_the_bytes_are_those_of_the_format(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        await handle.append([note(2)], 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])

    run(tmp_path, scenario)


def test_batch_and_commit_go_out_in_one_write_and_one_sync(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.calls.clear()
        await handle.append(notes(2, 100), 2)
        assert (disk.calls["write"], disk.calls["sync_data"], disk.calls["sync_dir"]) == (1, 1, 0)

    run(tmp_path, scenario)


def test_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    for mask in (0, 0o777):
        root = tmp_path / f"{mask:o}" / "deep"
        before = os.umask(mask)
        try:
            run(root, lambda store, handle, disk: asyncio.sleep(0))
        finally:
            os.umask(before)
        session = root / "s1"
        assert {path.name for path in session.iterdir()} == {"log.jsonl", "lock", "watermark"}
        assert {path.stat().st_mode & 0o7777 for path in session.iterdir()} == {0o600}
        assert {path.stat().st_mode & 0o7777 for path in (root.parent, root, session)} == {0o700}


def test_every_kind_of_entry_is_written(tmp_path: Path) -> None:
    chunks = [ev.AssistantChunk(seq, seq, 1, 1, f"w{seq}") for seq in range(2, 40)]

    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        await handle.append(list(codec.pack(chunks)), 2)
        unknown = codec.CORE.decode(b'{"type":"acme/x","seq":40,"time":1}')
        await handle.append([unknown, note(41)], 40)
        assert lines_of((await store.read("s1")).entries) == lines_of([*notes(0, 2), *chunks, unknown, note(41)])

    run(tmp_path, scenario)


# --- failing writes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "error"), CAUSES, ids=[errno.errorcode[number] for number, _ in CAUSES])
@pytest.mark.parametrize("keep", [0, 1, 100])
def test_a_failed_write_is_rolled_back_and_lands_once_later(
    tmp_path: Path, number: int, error: type[StoreError], keep: int
) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        before = log_of(tmp_path)
        disk.fail("write", number, times=2, keep=keep)
        for _ in range(2):
            with pytest.raises(error, match=r"s1.*log\.jsonl.*" + os.strerror(number)) as caught:
                await handle.append(notes(2, 3), 2)
            assert type(caught.value) is error
            assert log_of(tmp_path) == before
        await handle.append(notes(2, 4), 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), notes(2, 4))

    run(tmp_path, scenario)


def test_the_rollback_is_synced(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.calls.clear()
        disk.fail("write", errno.ENOSPC, keep=50)
        with pytest.raises(NoSpaceError):
            await handle.append([note(2)], 2)
        assert (disk.calls["truncate"], disk.calls["sync_data"]) == (1, 1)

    run(tmp_path, scenario)


@pytest.mark.parametrize("step", ["truncate", "sync_data"])
def test_a_failed_rollback_poisons_the_writer_and_the_next_owner_sees_a_tail(tmp_path: Path, step: str) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.fail("write", errno.ENOSPC, keep=50)
        disk.fail(step, errno.EIO)
        for _ in range(3):
            with pytest.raises(PoisonedError, match="s1"):
                await handle.append([note(2)], 2)
        with pytest.raises(PoisonedError):
            await handle.set_aside()
        await handle.release()
        after = await store.own("s1")
        assert lines_of(after.stored.entries) == lines_of(notes(0, 2))
        assert after.stored.tail_bytes == (50 if step == "truncate" else 0)
        assert after.stored.damage == ()
        await after.set_aside()
        await after.append([note(2)], 2)
        assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))

    run(tmp_path, scenario)


@pytest.mark.parametrize("at_most", [1, 7, 64])
def test_short_writes_are_gone_on_with(tmp_path: Path, at_most: int) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.at_most = at_most
        await handle.append(notes(2, 3), 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), notes(2, 3))

    run(tmp_path, scenario)


def test_a_medium_that_takes_nothing_is_an_error_and_not_a_loop(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.at_most = 0
        with pytest.raises(MediumError):
            await handle.append([note(2)], 2)
        disk.at_most = None
        await handle.append([note(2)], 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])

    run(tmp_path, scenario)


@pytest.mark.parametrize("operation", ["write", "sync_data"])
def test_a_signal_in_between_is_no_failure(tmp_path: Path, operation: str) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.fail(operation, errno.EINTR, times=3)
        await handle.append([note(2)], 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])

    run(tmp_path, scenario)


# --- failing syncs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["nothing", "vanish", "nul"])
@pytest.mark.parametrize("times", [1, 2])
def test_after_a_failed_sync_the_batch_is_written_again_through_a_fresh_handle(
    tmp_path: Path, loss: Loss, times: int
) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.calls.clear()
        disk.fail("sync_data", errno.EIO, times=times, loss=loss)
        for _ in range(times):
            with pytest.raises(MediumError):
                await handle.append(notes(2, 2), 2)
        await handle.append(notes(2, 3), 2)
        assert disk.calls["open_log"] == times
        assert disk.calls["write"] == disk.calls["sync_data"] == times + 1
        assert log_of(tmp_path) == log_bytes(notes(0, 2), notes(2, 3))
        assert (await store.read("s1")).evidence.blind_at == ()

    run(tmp_path, scenario)


def test_what_a_failed_sync_left_is_never_taken_for_durable(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.fail("sync_data", errno.EIO)
        with pytest.raises(MediumError):
            await handle.append([note(2)], 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2))

    run(tmp_path, scenario)


def test_a_file_that_cannot_be_reopened_at_once_is_reopened_by_the_next_append(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.fail("sync_data", errno.EIO, loss="nul")
        disk.fail("open_log", errno.EIO, times=2, loss="nul")
        for _ in range(2):
            with pytest.raises(MediumError):
                await handle.append([note(2)], 2)
        await handle.append([note(2)], 2)
        assert log_of(tmp_path) == log_bytes(notes(0, 2), [note(2)])

    run(tmp_path, scenario)


def test_a_failed_sync_keeps_the_lock(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.fail("sync_data", errno.EIO)
        with pytest.raises(MediumError):
            await handle.append([note(2)], 2)
        assert (await store.read("s1")).owner is not None

    run(tmp_path, scenario)


def test_foreign_bytes_behind_a_failed_sync_are_not_cut(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        disk.fail("sync_data", errno.EIO, loss="vanish")
        disk.fail("open_log", errno.EIO, loss="vanish")
        with pytest.raises(MediumError):
            await handle.append([note(2)], 2)
        foreign = log_bytes(notes(0, 2), [note(2, "of another writer")])
        (tmp_path / "s1" / "log.jsonl").write_bytes(foreign)
        for _ in range(2):
            with pytest.raises(LostOwnershipError):
                await handle.append([note(2)], 2)
        assert log_of(tmp_path) == foreign

    run(tmp_path, scenario)


# --- compare and append ---------------------------------------------------------------------------------------------


def appended(path: Path) -> None:
    with path.open("ab") as file:
        file.write(log_bytes([note(2)]).split(b"\n", 1)[1])


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def replaced(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.rename(path)


@pytest.mark.parametrize("change", [appended, cut, replaced, Path.unlink], ids=lambda change: change.__name__)
def test_nothing_lands_when_somebody_else_changed_the_log(tmp_path: Path, change: Callable[[Path], None]) -> None:
    async def scenario(store: JsonlStore, handle: FileHandle, disk: FaultyDisk) -> None:
        path = tmp_path / "s1" / "log.jsonl"
        change(path)
        after = path.read_bytes() if path.exists() else None
        for _ in range(2):
            with pytest.raises(LostOwnershipError):
                await handle.append([note(2)], 2)
        assert (path.read_bytes() if path.exists() else None) == after

    run(tmp_path, scenario)
