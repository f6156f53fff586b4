"""The half of the store contract that is about owning and reading; `contract` has the rest and the way to use it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from fencepost.errors import FencepostError, HeldError, LostOwnershipError, SessionNotFoundError, UsageError
from fencepost.stores.base import Fenced, Store, own
from tests.stores.sample import header, lines_of, note, notes

Scenario = Callable[[Store], Awaitable[None]]


class OwningContract:
    """One writer, and readers that change nothing."""

    def open(self, place: Path) -> Store:
        """A store over the sessions at `place`."""
        raise NotImplementedError

    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """Where the sessions of one test are."""
        return tmp_path / "store"

    def run(self, place: Path, scenario: Scenario) -> None:
        """Run a scenario on a fresh store, and close that."""

        async def main() -> None:
            async with opened(self.open(place)) as store:
                await scenario(store)

        asyncio.run(main())

    def test_one_writer(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            first = await store.create(header())
            await first.append([note(0)], 0)
            other = self.open(place)
            for contender in (store, other):
                with pytest.raises(HeldError, match="s1"):
                    await contender.own("s1")
            await first.release()
            await first.release()
            second = await other.own("s1")
            with pytest.raises(FencepostError):
                await first.append([note(1)], 1)
            await second.append([note(1, "second")], 1)
            await second.release()
            assert lines_of((await store.read("s1")).entries) == lines_of([note(0), note(1, "second")])
            if other is not store:
                await other.close()

        self.run(place, scenario)

    def test_a_living_owner_is_replaced_only_where_its_late_appends_are_refused(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            first = await store.create(header())
            await first.append([note(0)], 0)
            other = self.open(place)
            if isinstance(other, Fenced):
                second = await own(other, "s1", takeover=True)
                with pytest.raises(LostOwnershipError):
                    await first.append([note(1)], 1)
            else:
                with pytest.raises(UsageError, match="cannot be taken over"):
                    await own(other, "s1", takeover=True)
                await first.append([note(1)], 1)
                await first.release()
                second = await own(other, "s1", takeover=True)
            following = second.stored.watermark + 1
            await second.append([note(following, "second")], following)
            await second.release()
            before = [note(seq) for seq in range(following)]
            assert lines_of((await store.read("s1")).entries) == lines_of([*before, note(following, "second")])
            if other is not store:
                await other.close()

        self.run(place, scenario)

    def test_a_reader_sees_who_owns_it(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            owner = (await store.read("s1")).owner
            assert owner is not None
            assert owner.pid > 0
            assert owner.host
            assert owner.since > 1_700_000_000_000
            await handle.release()
            assert (await store.read("s1")).owner is None

        self.run(place, scenario)

    def test_an_unknown_session_is_not_found(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            for ask in (store.read, store.own):
                with pytest.raises(SessionNotFoundError):
                    await ask("nobody")
            assert await store.sessions() == []

        self.run(place, scenario)

    def test_opening_twice_gives_what_opening_once_gave(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await handle.append(notes(0, 5), 0)
            await handle.release()
            before = await store.read("s1")
            for _ in range(2):
                owned = await store.own("s1")
                assert lines_of(owned.stored.entries) == lines_of(before.entries)
                assert owned.stored.watermark == 4
                await owned.release()
                assert await store.read("s1") == before

        self.run(place, scenario)

    def test_an_owner_goes_on_where_the_log_ends(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            for first in range(0, 12, 4):
                handle = await (store.own("s1") if first else store.create(header()))
                assert handle.stored.watermark == first - 1
                await handle.append(notes(first, 2), first)
                await handle.append(notes(first + 2, 2), first + 2)
                await handle.release()
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 12))

        self.run(place, scenario)

    def test_a_clean_log_has_nothing_to_set_aside(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            assert await handle.set_aside() == 0
            await handle.release()
            handle = await store.own("s1")
            assert await handle.set_aside() == 0
            assert await handle.set_aside() == 0
            await handle.append([note(1)], 1)
            assert (await store.read("s1")).evidence.blind_at == ()

        self.run(place, scenario)

    def test_what_is_stored_survives_the_store(self, place: Path) -> None:
        if not self.open(place).durable:
            pytest.skip("this store says that it is not durable")

        async def write(store: Store) -> None:
            handle = await store.create(header())
            await handle.append(notes(0, 3), 0)

        async def read(store: Store) -> None:
            assert await store.sessions() == ["s1"]
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))

        self.run(place, write)
        self.run(place, read)


@contextlib.asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    """A store that is closed at the end."""
    try:
        yield store
    finally:
        await store.close()
