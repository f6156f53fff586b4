"""Group commit, and what is left of a group when its medium fails: rules of `group` and of `sessionlog`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import apsw
import pytest

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.errors import (
    DamagedError,
    EncodingRefusedError,
    LostOwnershipError,
    MediumError,
    NoSpaceError,
    StoreError,
    UnsupportedError,
)
from fencepost.stores.sqlite import SqliteStore
from fencepost.stores.sqlite.handle import SqliteHandle
from tests.stores.sample import header, lines_of, note, notes
from tests.stores.sqlite.medium import Medium, Operation
from tests.stores.sqlite.sessions import run, store_at, write


async def together(
    medium: Medium,
    other: SqliteHandle,
    *appends: Coroutine[None, None, None],
    before: Callable[[], None] = lambda: None,
) -> list[object]:
    """Let all of them go in one group: they come while another session's commit is held up in its sync.

    `before` is called before the group is written.
    """
    seq = other._log.head.next
    come, go = medium.hold("sync", suffix="-wal")
    first = asyncio.create_task(other.append([note(seq)], seq))
    await asyncio.to_thread(come.wait)
    tasks = [asyncio.create_task(append) for append in appends]
    await asyncio.sleep(0)
    before()
    go.set()
    await first
    return await asyncio.gather(*tasks, return_exceptions=True)


async def owned(store: SqliteStore, count: int) -> list[SqliteHandle]:
    """Sessions s0, s1, … with one note each."""
    handles = [await store.create(header(f"s{number}")) for number in range(count)]
    await asyncio.gather(*(handle.append([note(0)], 0) for handle in handles))
    return handles


def test_the_gates_of_all_sessions_share_their_syncs(tmp_path: Path) -> None:
    async def main() -> None:
        with Medium() as medium:
            async with store_at(tmp_path / "a.db", vfs=medium.name) as store:
                handles = await owned(store, 16)
                before = medium.calls["sync", "-wal"]
                for seq in range(1, 11):
                    await asyncio.gather(*(handle.append([note(seq)], seq) for handle in handles))
                assert medium.calls["sync", "-wal"] - before <= 20
                for number in range(16):
                    assert lines_of((await store.read(f"s{number}")).entries) == lines_of(notes(0, 11))

    asyncio.run(main())


def test_each_gate_of_one_session_has_its_own_sync(tmp_path: Path) -> None:
    with Medium() as medium:

        async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
            for seq in range(2, 12):
                before = medium.calls["sync", "-wal"]
                await handle.append([note(seq)], seq)
                assert medium.calls["sync", "-wal"] == before + 1

        run(tmp_path / "a.db", scenario, vfs=medium.name)


def test_a_batch_that_is_refused_takes_no_other_with_it(tmp_path: Path) -> None:
    """Lost ownership, a wrong seq and an event without bytes, in one group with two that are fine."""

    async def main() -> None:
        with Medium() as medium:
            async with store_at(tmp_path / "a.db", vfs=medium.name) as store:
                fine, stale, unwritable, stolen, also_fine, other = await owned(store, 6)
                thief = apsw.Connection(str(tmp_path / "a.db"))
                thief.execute("UPDATE head SET epoch = epoch + 1, writer = 'another' WHERE session = 4")
                thief.close()
                before = medium.calls["sync", "-wal"]
                found = await together(
                    medium,
                    other,
                    fine.append([note(1)], 1),
                    stale.append([note(5)], 5),
                    unwritable.append([note(1, "half a pair \ud83d")], 1),
                    stolen.append([note(1)], 1),
                    also_fine.append([note(1)], 1),
                )
                assert medium.calls["sync", "-wal"] == before + 2
                refused = [type(error) for error in found]
                assert refused[1:4] == [LostOwnershipError, EncodingRefusedError, LostOwnershipError]
                assert (found[0], found[4]) == (None, None)
                assert [(await store.read(f"s{number}")).watermark for number in range(6)] == [1, 0, 0, 0, 1, 1]
                with pytest.raises(LostOwnershipError):
                    await stolen.append([note(1)], 1)
                await stale.append([note(1)], 1)
                await unwritable.append([note(1)], 1)

    asyncio.run(main())


def test_a_group_that_has_no_space_is_taken_apart(tmp_path: Path) -> None:

    async def main() -> None:
        with Medium() as medium:
            async with store_at(tmp_path / "a.db", vfs=medium.name) as store:
                small, large, other, first = await owned(store, 4)
                found = await together(
                    medium,
                    first,
                    small.append([note(1)], 1),
                    large.append([note(1, "x" * 20_000)], 1),
                    other.append([note(1)], 1),
                    before=lambda: medium.fail("write", apsw.SQLITE_FULL, suffix="-wal"),
                )
                assert found == [None, None, None]
                medium.fail("write", apsw.SQLITE_FULL, suffix="-wal", times=1000)
                found = await asyncio.gather(
                    small.append([note(2)], 2), other.append([note(2)], 2), return_exceptions=True
                )
                assert [type(error) for error in found] == [NoSpaceError, NoSpaceError]
                medium.heal()
                await asyncio.gather(small.append([note(2)], 2), other.append([note(2)], 2))
                for session, count in (("s0", 3), ("s1", 2), ("s2", 3)):
                    assert (await store.read(session)).watermark == count - 1

    asyncio.run(main())


FAULTS: list[tuple[Operation, int, type[StoreError]]] = [
    ("sync", apsw.SQLITE_IOERR_FSYNC, MediumError),
    ("write", apsw.SQLITE_IOERR_WRITE, MediumError),
    ("write", apsw.SQLITE_FULL, NoSpaceError),
]


@pytest.mark.parametrize(("operation", "code", "kind"), FAULTS, ids=lambda value: getattr(value, "__name__", value))
def test_after_a_fault_the_log_is_as_before_and_the_next_gate_succeeds(
    tmp_path: Path, operation: Operation, code: int, kind: type[StoreError]
) -> None:
    """A larger batch may follow: what is pending by then goes with it, once."""
    with Medium() as medium:

        async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
            for times in (1, 2, 7):
                seq = (await store.read("s1")).watermark + 1
                medium.fail(operation, code, suffix="-wal", times=times)
                for _ in range(2):
                    with pytest.raises(kind, match=r"session s1: writing to .*a\.db"):
                        await handle.append([note(seq)], seq)
                    assert (await store.read("s1")).watermark == seq - 1
                    medium.fail(operation, code, suffix="-wal", times=1)
                medium.heal()
                await handle.append(notes(seq, 2), seq)
                stored = await store.read("s1")
                assert lines_of(stored.entries) == lines_of(notes(0, seq + 2))
                assert stored.damage == ()

        run(tmp_path / "a.db", scenario, vfs=medium.name)


def test_what_a_failed_sync_left_in_the_log_never_comes_back(tmp_path: Path) -> None:
    """The bytes of the failed commit are in the file, whole, and nobody knows whether they are on the medium. Nobody
    else has the database open, so it is this process alone that still knows that they do not count."""
    with Medium() as medium:

        async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
            for suffix in ("", "-wal"):
                medium.fail("sync", apsw.SQLITE_IOERR_FSYNC, suffix=suffix, times=99)
            for _ in range(3):
                with pytest.raises(MediumError):
                    await handle.append([note(2)], 2)
            medium.heal()
            assert (await store.read("s1")).watermark == 1
            await handle.append([note(2, "another")], 2)
            assert lines_of((await store.read("s1")).entries) == lines_of([*notes(0, 2), note(2, "another")])

        run(tmp_path / "a.db", scenario, vfs=medium.name)


def test_after_a_fault_a_new_session_can_still_be_made(tmp_path: Path) -> None:
    async def main() -> None:
        with Medium() as medium:
            async with store_at(tmp_path / "a.db", vfs=medium.name) as store:
                handle = await store.create(header())
                for operation in ("open", "sync", "write"):
                    medium.fail(operation, apsw.SQLITE_IOERR, times=3)  # type: ignore[arg-type]
                    with pytest.raises(MediumError):
                        await handle.append([note(0)], 0)
                    medium.heal()
                    assert await store.sessions() == []
                await handle.append([note(0)], 0)
                assert await store.sessions() == ["s1"]

    asyncio.run(main())


def test_a_commit_that_failed_and_landed_all_the_same_is_there_once(tmp_path: Path) -> None:
    """The next append may pack the same events otherwise, so it takes the place of what landed."""
    file = tmp_path / "a.db"
    chunks: list[ev.Entry] = [ev.AssistantChunk(seq, 1_000, 1, 1, f"word{seq} ") for seq in range(2, 8)]

    async def main() -> None:
        with Medium() as medium:
            async with store_at(file, vfs=medium.name) as store:
                handle = await store.create(header())
                await handle.append(notes(0, 2), 0)
                medium.fail("sync", apsw.SQLITE_IOERR_FSYNC, suffix="-wal")
                with pytest.raises(MediumError):
                    await handle.append(list(codec.pack(chunks[:3])), 2)
                _land(file, next(codec.pack(chunks[:3])), session=1, following=5)
                assert (await store.read("s1")).watermark == 4
                await handle.append(list(codec.pack(chunks)), 2)
                stored = await store.read("s1")
                assert lines_of(stored.entries) == lines_of([*notes(0, 2), *chunks])
                assert stored.damage == ()

    asyncio.run(main())


def _land(file: Path, entry: ev.Entry, *, session: int, following: int) -> None:
    """Write the batch as the failed commit would have, had it come through."""
    from fencepost.stores.sqlite.rows import checksum

    data = codec.encode(entry) + b"\n"
    other = apsw.Connection(str(file))
    prev, batch, seq = other.execute("SELECT batch, batch + 1, next FROM head WHERE session = ?", (session,)).fetchone()
    crc = checksum(session, seq, following, data)
    other.execute("BEGIN")
    other.execute(
        "INSERT INTO batch VALUES (?, ?, ?, ?, ?, 0, ?, ?)", (batch, session, prev, seq, following, crc, data)
    )
    other.execute("UPDATE head SET batch = ?, next = ? WHERE session = ?", (batch, following, session))
    other.execute("UPDATE head SET batch = ? WHERE session = 0", (batch,))
    other.execute("COMMIT")
    other.close()


def test_a_malformed_database_fails_the_gate_as_damaged(tmp_path: Path) -> None:
    with Medium() as medium:

        async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
            medium.fail("write", apsw.SQLITE_CORRUPT, suffix="-wal", times=1)
            with pytest.raises(DamagedError):
                await handle.append([note(2)], 2)
            await handle.append([note(2)], 2)

        run(tmp_path / "a.db", scenario, vfs=medium.name)


def test_the_commit_is_synchronous_whatever_the_default(tmp_path: Path) -> None:
    """Here every connection of the process begins without syncs."""

    def careless(connection: apsw.Connection) -> None:
        connection.pragma("synchronous", 0)

    async def main() -> None:
        with Medium() as medium:
            async with store_at(tmp_path / "a.db", vfs=medium.name) as store:
                handle = await store.own("s1")
                for seq in (2, 3):
                    before = medium.calls["sync", "-wal"]
                    await handle.append([note(seq)], seq)
                    assert medium.calls["sync", "-wal"] > before

    write(tmp_path / "a.db", 2)
    apsw.connection_hooks.append(careless)
    try:
        asyncio.run(main())
    finally:
        apsw.connection_hooks.remove(careless)


@pytest.mark.parametrize("change", ["epoch = epoch + 1", "writer = 'another'", "next = next + 1", "session = 99"])
def test_an_append_lands_only_behind_the_very_head_that_its_owner_left(tmp_path: Path, change: str) -> None:
    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        thief = apsw.Connection(str(tmp_path / "a.db"))
        thief.execute(f"UPDATE head SET {change} WHERE session = 1")
        before = list(thief.execute("SELECT * FROM head")), list(thief.execute("SELECT * FROM batch"))
        for _ in range(2):
            with pytest.raises(LostOwnershipError):
                await handle.append([note(2)], 2)
        assert (list(thief.execute("SELECT * FROM head")), list(thief.execute("SELECT * FROM batch"))) == before
        thief.close()

    run(tmp_path / "a.db", scenario)


def test_a_place_without_a_write_ahead_log_is_refused(tmp_path: Path) -> None:
    """SQLite then says nothing and goes on with another journal, so it is asked."""

    async def main() -> None:
        async with store_at(tmp_path / "a.db", vfs="unix-dotfile") as store:
            handle = await store.create(header())
            with pytest.raises(UnsupportedError, match="write-ahead log"):
                await handle.append([note(0)], 0)

    asyncio.run(main())


@pytest.mark.parametrize("gone", ["a.db", "a.db-wal"])
def test_a_database_that_is_taken_away_is_never_written_to_unseen(tmp_path: Path, gone: str) -> None:
    file = tmp_path / "a.db"

    async def scenario(store: SqliteStore, handle: SqliteHandle) -> None:
        (tmp_path / gone).unlink()
        if gone == "a.db":
            with pytest.raises(LostOwnershipError):
                await handle.append([note(2)], 2)
            assert await store.sessions() == []
        else:  # the only writer had all of it still open: it is in the database now
            await handle.append([note(2)], 2)

    run(file, scenario)

    async def again() -> None:
        async with store_at(file) as store:
            if gone != "a.db":
                assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))

    asyncio.run(again())
