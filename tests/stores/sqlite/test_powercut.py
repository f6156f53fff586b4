"""Power cuts while a database is made, appended to, owned again and closed: laws 6, 7 and 9 in every state."""

from __future__ import annotations

import asyncio
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.core.verdict import NO_EVIDENCE
from fencepost.errors import SessionNotFoundError
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, lines_of, note, notes
from tests.stores.sqlite.medium import Medium
from tests.stores.sqlite.powercut import Cut, cuts
from tests.stores.sqlite.sessions import store_at

SESSIONS = ("s0", "s1")


@pytest.fixture
def medium(monkeypatch: pytest.MonkeyPatch) -> Medium:
    """A medium that also hears of the directories that the store itself syncs."""
    heard = Medium()
    sync = os.fsync

    def listening(fd: int) -> None:
        sync(fd)
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            heard.sync_names()

    monkeypatch.setattr(os, "fsync", listening)
    return heard


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory, where the system has one: what a cut leaves is only looked at there."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=shared) as place:
        yield Path(place)


async def work(place: Path, medium: Medium) -> None:
    """Two sessions, in groups and alone, small and large; closed, owned again, and left open at the end."""
    file = place / "a.db"
    done = [0, 0]

    async def append(number: int, count: int, text: str = "") -> None:
        first = done[number]
        await handles[number].append(notes(first, count, text), first)
        done[number] += count
        medium.mark(*done)
        medium.note(store._place.watermark) if store._place.watermark.exists() else None

    store = SqliteStore(file, vfs=medium.name)
    handles = [await store.create(header(session)) for session in SESSIONS]
    await append(0, 1)
    await asyncio.gather(append(0, 2), append(1, 1))
    await append(1, 2, "x" * 9_000)
    await store.close()
    store = SqliteStore(file, vfs=medium.name)
    handles = [await store.own(session) for session in SESSIONS]
    await asyncio.gather(append(0, 1), append(1, 1, "y" * 5_000))
    await append(0, 3)
    await store.close()


async def judge(cut: Cut, place: Path) -> None:
    """What was acknowledged is there, what is there is a prefix, and it goes on from there."""
    cut.restore(place)
    acknowledged = cut.acknowledged or (0, 0)
    async with store_at(place / "a.db") as store:
        listed = await store.sessions()
        assert set(listed) <= set(SESSIONS), cut.after
        for session, count in zip(SESSIONS, acknowledged, strict=True):
            try:
                stored = await store.read(session)
            except SessionNotFoundError:
                assert session not in listed, cut.after
                assert count == 0, cut.after
                handle = await store.create(header(session))
                await handle.append([note(0)], 0)
                continue
            assert session in listed
            texts = [(entry.seq, len(entry.text)) for entry in stored.entries]  # type: ignore[union-attr]
            assert [seq for seq, _ in texts] == list(range(len(texts)))
            assert len(texts) >= count, cut.after
            assert (stored.damage, stored.evidence, stored.refusal) == ((), NO_EVIDENCE, None), cut.after
            handle = await store.own(session)
            await handle.append([note(len(texts))], len(texts))
            after = await store.read(session)
            assert lines_of(after.entries) == [*lines_of(stored.entries), *lines_of([note(len(texts))])]


def test_whatever_a_power_cut_leaves_keeps_the_laws(tmp_path: Path, memory: Path, medium: Medium) -> None:
    with medium:
        (tmp_path / "live").mkdir()
        asyncio.run(work(tmp_path / "live", medium))

        async def main() -> int:
            count = 0
            for cut in cuts(medium.ops, seed=1, many=8):
                await judge(cut, memory / "cut")
                count += 1
            return count

        states = asyncio.run(main())
        assert any(op.kind == "unname" and op.file == "a.db-wal" for op in medium.ops)
        assert states > 400


def weaker(medium: Medium, forgotten: Callable[[str], bool]) -> list[Cut]:
    """The same, but some syncs never reached the medium."""
    ops = [op for op in medium.ops if not (op.kind == "sync" and forgotten(op.file))]
    return list(cuts(ops, seed=1, many=2))


def test_the_simulator_notices_a_log_that_is_not_synced(tmp_path: Path, memory: Path, medium: Medium) -> None:
    with medium:
        (tmp_path / "live").mkdir()
        asyncio.run(work(tmp_path / "live", medium))

        async def main() -> int:
            failed = 0
            for cut in weaker(medium, lambda file: file == "a.db-wal"):
                try:
                    await judge(cut, memory / "cut")
                except AssertionError:
                    failed += 1
            return failed

        assert asyncio.run(main()) > 10
