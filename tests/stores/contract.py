"""The contract of `fencepost.stores.base`, as a suite that any store can run.

For a store of your own:

    from tests.stores.contract import StoreContract

    class TestMyStore(StoreContract):
        def open(self, place):
            return MyStore(place / "my.db")

`open` is called several times with one `place` (a directory of its own for each test) and gives a store over the same
sessions each time: a second process, as far as the suite can make one. A store that is not durable gives the same
object again.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.errors import (
    ClosedError,
    EncodingRefusedError,
    FencepostError,
    HeldError,
    IllegalEventError,
    LostOwnershipError,
    SessionExistsError,
    SessionNotFoundError,
    UsageError,
)
from fencepost.stores.base import Handle, Store
from tests.stores.contract_upkeep import UpkeepContract
from tests.stores.sample import header, is_prefix, lines_of, note, notes

ODD_IDS = (
    "../x",
    "..",
    ".",
    "/etc/passwd",
    "CON",
    "con",
    "nul.txt",
    ".hidden",
    "ends.",
    "a b",
    "A b",
    "50%41",
    "50A",
    "naïve-☕",
    "x" * 300,
    "x" * 299 + "y",
    "☕" * 120,
    "line\nbreak",
    "nul\0char",
    "~",
)


class StoreContract(UpkeepContract):
    """What every store owes. Subclass it and say how yours is opened."""

    # --- what a store is ----------------------------------------------------------------------------------------

    def test_it_has_the_shape_of_a_store(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            assert isinstance(store, Store)
            handle = await store.create(header())
            assert isinstance(handle, Handle)
            assert store.url
            assert store.ownership
            assert "\n" not in repr(store) + repr(handle)

        self.run(place, scenario)

    def test_each_session_has_a_place_for_files(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            places = {store.files(session).absolute() for session in ODD_IDS}
            assert len(places) == len(ODD_IDS)
            assert not any(path.exists() for path in places)

        self.run(place, scenario)

    def test_closing_is_idempotent_and_ends_ownership(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            await store.close()
            await store.close()
            with pytest.raises(FencepostError):
                await handle.append([note(1)], 1)
            with pytest.raises(ClosedError):
                await store.create(header("s2"))

        self.run(place, scenario)

    # --- creating -----------------------------------------------------------------------------------------------

    def test_nothing_is_listed_before_the_first_append(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            assert await store.sessions() == []
            handle = await store.create(header())
            await handle.append([], 0)
            assert await store.sessions() == []
            with pytest.raises(SessionNotFoundError):
                await store.read("s1")
            await handle.append(notes(0, 2), 0)
            assert await store.sessions() == ["s1"]
            stored = await store.read("s1")
            assert stored.header == header()
            assert lines_of(stored.entries) == lines_of(notes(0, 2))

        self.run(place, scenario)

    def test_an_id_is_taken_once(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            first = await store.create(header())
            with pytest.raises(HeldError):
                await store.create(header())
            await first.append([note(0)], 0)
            with pytest.raises(SessionExistsError):
                await store.create(header())
            await first.release()
            with pytest.raises(SessionExistsError):
                await store.create(header())
            assert len((await store.read("s1")).entries) == 1

        self.run(place, scenario)

    def test_an_id_that_was_never_written_is_free_again(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            first = await store.create(header())
            await first.release()
            with pytest.raises(SessionNotFoundError):
                await store.own("s1")
            second = await store.create(header())
            await second.append([note(0)], 0)
            assert await store.sessions() == ["s1"]

        self.run(place, scenario)

    def test_odd_ids_are_ids_like_others(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            for session in ODD_IDS:
                handle = await store.create(header(session))
                await handle.append([note(0, session)], 0)
                await handle.release()
            assert sorted(await store.sessions()) == sorted(ODD_IDS)
            for session in ODD_IDS:
                stored = await store.read(session)
                assert stored.session == session
                assert lines_of(stored.entries) == lines_of([note(0, session)])

        self.run(place, scenario)
        if place.exists():
            assert {path.parent for path in place.parent.rglob("log.jsonl")} <= set(place.iterdir())

    def test_an_empty_id_is_refused(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            with pytest.raises(UsageError):
                await store.create(header(""))

        self.run(place, scenario)

    # --- appending ----------------------------------------------------------------------------------------------

    def test_what_was_appended_is_read_in_order(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            for first in range(0, 30, 3):
                await handle.append(notes(first, 3), first)
                stored = await store.read("s1")
                assert lines_of(stored.entries) == lines_of(notes(0, first + 3))
                assert stored.watermark == first + 2
                assert (stored.tail_bytes, stored.damage, stored.refusal) == (0, (), None)

        self.run(place, scenario)

    def test_an_append_behind_the_wrong_seq_does_not_land(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await handle.append(notes(0, 3), 0)
            for stale in (0, 2, 4):
                with pytest.raises(LostOwnershipError):
                    await handle.append([note(stale)], stale)
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 3))

        self.run(place, scenario)

    @pytest.mark.parametrize("batch", [[0, 2], [1], [0, 0]], ids=str)
    def test_a_batch_with_a_gap_is_refused_whole(self, place: Path, batch: list[int]) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            with pytest.raises(IllegalEventError):
                await handle.append([note(seq) for seq in batch], 0)
            await handle.append([note(0)], 0)
            assert lines_of((await store.read("s1")).entries) == lines_of([note(0)])

        self.run(place, scenario)

    def test_what_cannot_be_written_is_refused_and_the_next_batch_lands(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            with pytest.raises(EncodingRefusedError):
                await handle.append([note(0), note(1, "half a pair \ud83d")], 0)
            await handle.append([note(0), note(1)], 0)
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 2))

        self.run(place, scenario)

    def test_text_comes_back_to_the_letter(self, place: Path) -> None:
        texts = [
            "\u2028\u2029\u0085",
            "nul \0 here",
            "back\\slash \\ud83d",
            "☕" * 1000,
            "x" * (1 << 20),
            "\r\n\v\f\x1c",
        ]

        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            entries = [note(seq, text) for seq, text in enumerate(texts)]
            await handle.append(entries, 0)
            await handle.release()
            stored = await store.read("s1")
            assert [entry.text for entry in stored.entries if isinstance(entry, ev.ToolNote)] == texts
            assert stored.damage == ()

        self.run(place, scenario)

    def test_runs_of_chunks_come_back_as_the_same_events(self, place: Path) -> None:
        chunks = [ev.AssistantChunk(seq, 1_000 + seq * seq, 1, 1, f"word{seq} ") for seq in range(200)]

        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await handle.append(list(codec.pack(chunks)), 0)
            await handle.append([note(200)], 200)
            stored = await store.read("s1")
            assert lines_of(stored.entries) == lines_of([*chunks, note(200)])
            assert stored.watermark == 200

        self.run(place, scenario)

    def test_an_event_of_an_unknown_type_is_kept_to_the_byte(self, place: Path) -> None:
        raw = b'{"type":"acme/thing",  "seq":0,"time":5,"odd":[1.50,null]}'

        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await handle.append([codec.CORE.decode(raw)], 0)
            entry = (await store.read("s1")).entries[0]
            assert isinstance(entry, ev.UnknownEvent)
            assert entry.raw == raw

        self.run(place, scenario)

    def test_sessions_do_not_mix(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            names = [f"s{number}" for number in range(12)]
            handles = [await store.create(header(name)) for name in names]

            async def fill(handle: Handle, name: str) -> None:
                for seq in range(10):
                    await handle.append([note(seq, name)], seq)

            await asyncio.gather(*map(fill, handles, names))
            for name in names:
                stored = await store.read(name)
                assert lines_of(stored.entries) == lines_of(note(seq, name) for seq in range(10))

        self.run(place, scenario)

    # --- cancelling ---------------------------------------------------------------------------------------------

    def test_a_cancelled_append_is_whole_or_absent_and_never_late(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await handle.append([note(0)], 0)
            task = asyncio.create_task(handle.append(notes(1, 50), 1))
            await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            landed = len((await store.read("s1")).entries)
            assert landed in {1, 51}
            await handle.append([note(landed, "after")], landed)
            await handle.release()
            stored = await store.read("s1")
            assert is_prefix(stored, [*notes(0, landed), note(landed, "after")])
            assert stored.watermark == landed

        self.run(place, scenario)

    def test_appends_that_are_not_awaited_in_turn_land_in_turn(self, place: Path) -> None:
        async def scenario(store: Store) -> None:
            handle = await store.create(header())
            await asyncio.gather(*(handle.append([note(seq)], seq) for seq in range(20)))
            assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 20))

        self.run(place, scenario)
