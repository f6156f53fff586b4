"""The part of the store contract that is about sessions which nobody works on. A store may leave it out (`Upkeep`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.errors import HeldError, SessionExistsError, SessionNotFoundError, UsageError
from fencepost.stores.base import Store, Upkeep
from tests.stores.contract_owning import OwningContract
from tests.stores.sample import header, lines_of, note, notes

FOREVER = 1 << 50
"""A time that has not come, in epoch milliseconds."""

IDS = ("s1", "../x", "naïve-☕", "x" * 300)


async def write(store: Store, session: str = "s1", count: int = 3, text: str = "") -> None:
    """Store a session, and let it go."""
    handle = await store.create(header(session))
    await handle.append(notes(0, count, text), 0)
    await handle.release()


def keeping(store: Store) -> Upkeep:
    """The store, if it looks after sessions."""
    if not isinstance(store, Upkeep):
        pytest.skip("this store does not look after sessions")
    return store


class UpkeepContract(OwningContract):
    """Revisions, the owner alone, and the trash."""

    # --- revisions and owners -----------------------------------------------------------------------------------

    def test_a_revision_changes_with_the_log_and_only_with_it(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            assert await kept.revisions() == {}
            await write(store)
            await write(store, "s2")
            first = await kept.revisions()
            assert set(first) == {"s1", "s2"}
            handle = await store.own("s1")
            await store.read("s2")
            assert await kept.revisions() == first
            await handle.append([note(3)], 3)
            second = await kept.revisions()
            assert second["s1"] != first["s1"]
            assert second["s2"] == first["s2"]
            await handle.release()
            assert await kept.revisions() == second

        self.run(place, scenario)

    def test_a_revision_tells_a_session_from_another_of_its_id(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            await write(store, text="one")
            first = await kept.revisions()
            await kept.delete("s1")
            assert await kept.revisions() == {}
            await write(store, text="two")
            assert await kept.revisions() != first

        self.run(place, scenario)

    def test_the_owner_is_told_by_the_lock_alone(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            assert await kept.owner("s1") is None
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            owner = await kept.owner("s1")
            assert owner is not None
            assert owner == (await store.read("s1")).owner
            await handle.release()
            assert await kept.owner("s1") is None

        self.run(place, scenario)

    # --- the trash ----------------------------------------------------------------------------------------------

    def test_what_is_deleted_is_gone_and_comes_back_as_it_was(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            for session in IDS:
                await write(store, session, text=session)
            before = {session: await store.read(session) for session in IDS}
            for session in IDS:
                await kept.delete(session)
                assert session not in await store.sessions()
                for ask in (store.read, store.own, kept.delete):
                    with pytest.raises(SessionNotFoundError):
                        await ask(session)
            trashed = await kept.trash()
            assert {item.session for item in trashed} == set(IDS)
            assert trashed == sorted(trashed, key=lambda item: item.deleted, reverse=True)
            assert all(item.deleted > 1_700_000_000_000 for item in trashed)
            for session in IDS:
                await kept.restore(session)
                assert await store.read(session) == before[session]
            assert await kept.trash() == []
            assert set(await store.sessions()) == set(IDS)

        self.run(place, scenario)

    def test_a_restored_session_goes_on(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            await write(store)
            await kept.delete("s1")
            await kept.restore("s1")
            handle = await store.own("s1")
            await handle.append([note(3)], 3)
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 4))

        self.run(place, scenario)

    def test_a_held_session_is_not_deleted(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            with pytest.raises(HeldError, match="s1"):
                await kept.delete("s1")
            await handle.append([note(1)], 1)
            assert await kept.trash() == []
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 2))

        self.run(place, scenario)

    def test_nothing_is_restored_over_a_session(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            await write(store, text="first")
            await kept.delete("s1")
            await write(store, text="second")
            trashed = await kept.trash()
            with pytest.raises(SessionExistsError):
                await kept.restore("s1")
            assert await kept.trash() == trashed
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3, "second"))

        self.run(place, scenario)

    def test_an_id_that_is_taken_and_not_written_is_in_the_way_while_it_is_held(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            await write(store)
            await kept.delete("s1")
            handle = await store.create(header())
            with pytest.raises(HeldError):
                await kept.restore("s1")
            await handle.release()
            await kept.restore("s1")
            assert len((await store.read("s1")).entries) == 3

        self.run(place, scenario)

    def test_the_one_that_was_deleted_last_is_restored(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            for text in ("first", "second", "third"):
                await write(store, text=text)
                await kept.delete("s1")
            assert len(await kept.trash()) == 3
            await kept.restore("s1")
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3, "third"))
            assert len(await kept.trash()) == 2

        self.run(place, scenario)

    def test_purging_destroys_what_was_deleted_before(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            await write(store)
            await write(store, "s2")
            await kept.delete("s1")
            (trashed,) = await kept.trash()
            assert await kept.purge(trashed.deleted) == 0
            assert await kept.trash() == [trashed]
            assert await kept.purge(trashed.deleted + 1) == 1
            assert await kept.trash() == []
            with pytest.raises(SessionNotFoundError):
                await kept.restore("s1")
            assert await kept.purge(FOREVER) == 0
            assert await store.sessions() == ["s2"]
            assert len((await store.read("s2")).entries) == 3

        self.run(place, scenario)

    # --- compressing --------------------------------------------------------------------------------------------

    def test_a_compressed_log_reads_as_it_did_and_goes_on(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            await write(store, count=50)
            before = await store.read("s1")
            try:
                saved = await kept.compress("s1")
            except UsageError:  # it has no such form
                assert await store.read("s1") == before
                return
            assert saved.after < saved.before
            after = await store.read("s1")
            assert lines_of(after.entries) == lines_of(before.entries)
            assert (after.header, after.watermark, after.updated) == (before.header, before.watermark, before.updated)
            assert await kept.compress("s1") == saved
            handle = await store.own("s1")
            with pytest.raises(HeldError):
                await kept.compress("s1")
            await handle.append([note(50)], 50)
            assert lines_of((await store.read("s1")).entries) == lines_of([*notes(0, 50), note(50)])

        self.run(place, scenario)

    def test_restoring_what_is_not_in_the_trash_is_said(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            kept = keeping(store)
            assert await kept.trash() == []
            with pytest.raises(SessionNotFoundError, match="trash"):
                await kept.restore("nobody")

        self.run(place, scenario)

    def test_the_trash_survives_the_store(self, place: Path) -> None:
        if not self.open(place).durable:
            pytest.skip("this store says that it is not durable")

        async def throw(store: Store) -> None:
            await write(store)
            await keeping(store).delete("s1")

        async def take(store: Store) -> None:
            kept = keeping(store)
            assert await store.sessions() == []
            assert [item.session for item in await kept.trash()] == ["s1"]
            await kept.restore("s1")
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))

        self.run(place, throw)
        self.run(place, take)
