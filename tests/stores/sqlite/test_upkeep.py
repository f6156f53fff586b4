"""Sessions that nobody works on, beyond what the contract says: their large outputs, cuts in between, and no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from fencepost.errors import MediumError, SessionExistsError
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, lines_of, notes
from tests.stores.sqlite.medium import Medium
from tests.stores.sqlite.sessions import store_at, write

FOREVER = 1 << 50


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with s1, which has one large output, and s2."""
    path = tmp_path / "a.db"
    write(path, 3)
    write(path, 2, session="s2")
    output = SqliteStore(path).files("s1")
    output.mkdir(parents=True)
    (output / "large").write_text("an output")
    return path


def on(file: Path, scenario: Callable[[SqliteStore], Awaitable[None]], **options: str) -> None:
    async def main() -> None:
        async with store_at(file, **options) as store:
            await scenario(store)

    asyncio.run(main())


def test_outputs_go_with_their_session_and_come_back(file: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        output = store.files("s1") / "large"
        await store.delete("s1")
        assert not output.parent.exists()
        other = await store.create(header())
        await other.append(notes(0, 1), 0)
        await other.release()
        await store.delete("s1")
        await store.purge((await store.trash())[0].deleted)
        await store.restore("s1")
        assert len((await store.read("s1")).entries) == 1
        await store.delete("s1")
        await store.purge(FOREVER)
        assert await store.sessions() == ["s2"]
        assert not any((file.parent / "a.db-trash").iterdir())

    on(file, scenario)


def test_the_outputs_of_the_one_that_is_restored(file: Path) -> None:
    async def scenario(store: SqliteStore) -> None:
        await store.delete("s1")
        await store.restore("s1")
        assert (store.files("s1") / "large").read_text() == "an output"
        await store.delete("s1")
        store.files("s1").mkdir()
        with pytest.raises(SessionExistsError, match="left files behind"):
            await store.restore("s1")
        store.files("s1").rmdir()
        await store.restore("s1")
        assert (store.files("s1") / "large").read_text() == "an output"

    on(file, scenario)


def test_after_a_cut_in_the_middle_the_next_owner_has_its_outputs(file: Path) -> None:
    """Between the move of the outputs and the commit, in either direction, they lie in the trash of a session that is
    not there."""

    async def scenario(store: SqliteStore) -> None:
        await store.delete("s1")
        (kept,) = (file.parent / "a.db-trash").iterdir()
        kept.rename(file.parent / "aside")
        await store.restore("s1")
        (file.parent / "aside").rename(kept)
        assert not store.files("s1").exists()
        handle = await store.own("s1")
        assert (store.files("s1") / "large").read_text() == "an output"
        await handle.append(notes(3, 1), 3)

    on(file, scenario)


def test_a_delete_that_fails_changes_nothing(file: Path) -> None:
    with Medium() as medium:

        async def scenario(store: SqliteStore) -> None:
            medium.fail("sync", apsw.SQLITE_IOERR_FSYNC, suffix="-wal", times=1)
            with pytest.raises(MediumError, match="session s1: deleting it from"):
                await store.delete("s1")
            assert await store.trash() == []
            assert (store.files("s1") / "large").read_text() == "an output"
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))
            await store.delete("s1")
            assert [item.session for item in await store.trash()] == ["s1"]

        on(file, scenario, vfs=medium.name)


@pytest.mark.parametrize("damage", ["", "DELETE FROM batch WHERE session = 3 AND seq = 1"])
def test_what_is_purged_leaves_no_trace(file: Path, damage: str) -> None:
    """Whether its batches can still be followed from its head or not."""
    write(file, 3, session="secret", text="the-word-that-nobody-may-find")
    if damage:
        connection = apsw.Connection(str(file))
        connection.execute(damage)
        connection.close()
    assert b"the-word" in file.read_bytes()

    async def scenario(store: SqliteStore) -> None:
        await store.delete("secret")
        assert await store.purge(FOREVER) == 1
        assert await store.purge(FOREVER) == 0

    on(file, scenario)
    assert b"the-word" not in file.read_bytes()
    assert not file.with_name("a.db-wal").exists()

    async def look(store: SqliteStore) -> None:
        assert sorted(await store.sessions()) == ["s1", "s2"]
        assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))

    on(file, look)
    connection = apsw.Connection(str(file))
    assert connection.execute("SELECT count(*) FROM batch WHERE session = 3").get == 0
    connection.close()


def test_revisions_tell_of_lost_commits_too(file: Path) -> None:
    async def before(store: SqliteStore) -> None:
        found.append(await store.revisions())
        handle = await store.own("s1")
        await handle.append(notes(3, 1), 3)

    async def after(store: SqliteStore) -> None:
        found.append(await store.revisions())

    found: list[dict[str, str]] = []
    earlier = file.read_bytes()
    on(file, before)
    file.write_bytes(earlier)
    on(file, after)
    assert found[0].keys() == found[1].keys() == {"s1", "s2"}
    assert not set(found[0].values()) & set(found[1].values())
