"""The JSONL store as a whole: the contract, what a directory may hold, and that opening is reading (law 7)."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.core.codec import Vocabulary
from fencepost.errors import (
    DamagedError,
    FencepostError,
    MediumError,
    PermissionDeniedError,
    SessionNotFoundError,
    UnsupportedError,
    UsageError,
)
from fencepost.stores.base import Store
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.names import segment
from tests.stores.contract import StoreContract
from tests.stores.jsonl.session import forked, store_at, write_session
from tests.stores.sample import header, lines_of, log_bytes, note, notes

CLEAN = log_bytes(notes(0, 3), notes(3, 2))
STATES = {
    "clean": CLEAN,
    "torn": CLEAN + b'{"type":"tool/',
    "no newline": CLEAN[:-1],
    "no commit": CLEAN + codec.encode(note(5)),
    "empty": b"",
    "torn header": CLEAN[:30],
    "garbage": b"\xff\xfe not a log at all\n\n\n",
    "nul run in the middle": CLEAN[:200] + bytes(50) + CLEAN[250:],
    "newer": CLEAN.replace(b'"format":1', b'"format":2'),
}


class TestContract(StoreContract):
    def open(self, place: Path) -> Store:
        return JsonlStore(place)


def using(root: Path, scenario: Callable[[JsonlStore], Awaitable[None]]) -> None:
    async def main() -> None:
        async with store_at(root) as store:
            await scenario(store)

    asyncio.run(main())


def snapshot(root: Path) -> dict[str, bytes | None]:
    """Every file's bytes, but for the text in locks, which is for people."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in root.rglob("*")
        if path.name != "lock"
    }


# --- opening is reading ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_no_byte_changes_by_looking_and_owning(tmp_path: Path, state: str) -> None:
    session = write_session(tmp_path, STATES[state])
    (session / "watermark").write_bytes(b"%020d\n" % 9)
    (session / "tail-2-99.bin").write_bytes(b"torn")
    before = snapshot(tmp_path)

    async def scenario(store: JsonlStore) -> None:
        for _ in range(2):
            first = await store.read("s1")
            assert await store.sessions() == ["s1"]
            handle = await store.own("s1")
            assert msgspec.structs.replace(handle.stored, owner=None) == first
            await handle.release()
            assert await store.read("s1") == first
            assert snapshot(tmp_path) == before

    using(tmp_path, scenario)
    assert (session / "lock").stat().st_mode & 0o777 == 0o600


def test_reading_makes_no_lock_file(tmp_path: Path) -> None:
    write_session(tmp_path, CLEAN)

    async def scenario(store: JsonlStore) -> None:
        await store.sessions()
        assert (await store.read("s1")).owner is None

    using(tmp_path, scenario)
    assert [path.name for path in (tmp_path / "s1").iterdir()] == ["log.jsonl"]


@pytest.mark.parametrize("state", ["empty", "torn header", "garbage", "nul run in the middle"])
def test_a_damaged_log_takes_no_append_and_is_never_cut(tmp_path: Path, state: str) -> None:
    write_session(tmp_path, STATES[state])

    async def scenario(store: JsonlStore) -> None:
        handle = await store.own("s1")
        assert handle.stored.damage
        seq = len(handle.stored.entries)
        with pytest.raises(DamagedError, match="s1 is damaged at byte"):
            await handle.append([note(seq)], seq)
        with pytest.raises(DamagedError):
            await handle.set_aside()

    using(tmp_path, scenario)
    assert (tmp_path / "s1" / "log.jsonl").read_bytes() == STATES[state]


def test_a_log_of_a_newer_form_takes_no_append(tmp_path: Path) -> None:
    write_session(tmp_path, STATES["newer"])

    async def scenario(store: JsonlStore) -> None:
        handle = await store.own("s1")
        assert handle.stored.refusal is not None
        assert str(tmp_path / "s1" / "log.jsonl") in handle.stored.refusal
        assert "newer" in handle.stored.refusal
        with pytest.raises(UnsupportedError, match="newer"):
            await handle.append([note(5)], 5)

    using(tmp_path, scenario)
    assert (tmp_path / "s1" / "log.jsonl").read_bytes() == STATES["newer"]


class Mark(ev.Event, frozen=True, tag="acme/mark"):
    """An event of a plugin."""

    text: str


def test_an_unknown_event_is_judged_only_by_a_store_that_was_told_what_is_declared(tmp_path: Path) -> None:
    mark = Mark(0, 1, "here")
    write_session(tmp_path, log_bytes([mark]))

    async def refusal(vocabulary: Vocabulary | None) -> str | None:
        store = JsonlStore(tmp_path, vocabulary=vocabulary)
        handle = await store.own("s1")
        try:
            await handle.append([], 1)
            assert lines_of(handle.stored.entries) == lines_of([mark])
            return handle.stored.refusal
        finally:
            await store.close()

    assert asyncio.run(refusal(None)) is None
    assert asyncio.run(refusal(Vocabulary([Mark]))) is None
    refused = asyncio.run(refusal(Vocabulary()))
    assert refused is not None
    assert "acme/mark" in refused


# --- what a directory may hold --------------------------------------------------------------------------------------


def test_a_root_that_is_not_there_has_no_sessions_and_is_not_made(tmp_path: Path) -> None:
    async def scenario(store: JsonlStore) -> None:
        assert await store.sessions() == []
        with pytest.raises(SessionNotFoundError):
            await store.read("s1")

    using(tmp_path / "missing", scenario)
    assert not (tmp_path / "missing").exists()


def test_a_root_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")

    async def scenario(store: JsonlStore) -> None:
        for ask in (store.sessions(), store.create(header()), store.read("s1"), store.own("s1")):
            with pytest.raises(UsageError, match="file is not a directory"):
                await ask

    using(tmp_path / "file", scenario)


def test_foreign_files_and_broken_neighbours_do_not_break_the_list(tmp_path: Path) -> None:
    write_session(tmp_path, CLEAN)
    for name, data in STATES.items():
        (tmp_path / segment(name)).mkdir()
        (tmp_path / segment(name) / "log.jsonl").write_bytes(data)
    for name in (".trash", "Old Sessions", "%61", "lost+found"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "log.jsonl").write_bytes(CLEAN)
    (tmp_path / "empty").mkdir(exist_ok=True)
    (tmp_path / "only-a-lock").mkdir()
    (tmp_path / "only-a-lock" / "lock").touch()
    (tmp_path / "readme.txt").write_text("hello")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a-directory").mkdir()
    (tmp_path / "a-directory" / "log.jsonl").mkdir()

    async def scenario(store: JsonlStore) -> None:
        found = await store.sessions()
        assert sorted(found) == sorted(["s1", "a-directory", *STATES])
        for session in STATES:
            stored = await store.read(session)
            assert stored.session == session
            assert stored.size == len(STATES[session])
        with pytest.raises(MediumError, match="a-directory"):
            await store.read("a-directory")

    using(tmp_path, scenario)


def test_a_long_id_whose_header_is_torn_is_listed_and_read_by_its_name(tmp_path: Path) -> None:
    session = "long " * 100

    async def write(store: JsonlStore) -> None:
        await (await store.create(header(session))).append([note(0)], 0)

    using(tmp_path, write)
    name = segment(session)
    log = tmp_path / name / "log.jsonl"
    log.write_bytes(log.read_bytes()[:40])

    async def look(store: JsonlStore) -> None:
        assert await store.sessions() == [name]
        assert (await store.read(name)).damage
        assert (await store.read(session)).damage

    using(tmp_path, look)


def test_a_relative_root_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def scenario(store: JsonlStore) -> None:
        handle = await store.create(header())
        monkeypatch.chdir("/")
        await handle.append([note(0)], 0)
        assert store.url == f"jsonl:{tmp_path / 'here'}"

    using(Path("here"), scenario)
    assert (tmp_path / "here" / "s1" / "log.jsonl").exists()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that every user may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_what_another_user_may_not_read_is_listed_and_named(shared: Path) -> None:
    for session in ("hidden", "locked"):
        write_session(shared, CLEAN, session)
        (shared / session / "lock").touch()
        (shared / session / "lock").chmod(0o600)
    (shared / "hidden").chmod(0o700)
    (shared / "locked" / "log.jsonl").chmod(0o600)
    (shared / "locked").chmod(0o755)

    async def scenario(store: JsonlStore) -> None:
        assert sorted(await store.sessions()) == ["hidden", "locked"]
        for session in ("hidden", "locked"):
            for ask in (store.read, store.own):
                with pytest.raises(PermissionDeniedError, match=f"session {session}.*{shared / session}"):
                    await ask(session)

    def as_nobody() -> None:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        using(shared, scenario)

    assert forked(as_nobody) == 0


# --- waiting --------------------------------------------------------------------------------------------------------


def test_loading_100_000_events_does_not_stop_the_loop(tmp_path: Path) -> None:
    write_session(tmp_path, log_bytes(*(notes(first, 1000) for first in range(0, 100_000, 1000))))

    async def scenario(store: JsonlStore) -> None:
        other = await store.create(header("s2"))
        load = asyncio.create_task(store.read("s1"))
        gates = 0
        while not load.done():
            await other.append([note(gates)], gates)
            gates += 1
        assert (await load).watermark == 99_999
        assert gates > 3

    using(tmp_path, scenario)


def test_a_cancelled_own_leaves_the_session_free(tmp_path: Path) -> None:
    write_session(tmp_path, log_bytes(*(notes(first, 1000) for first in range(0, 20_000, 1000))))

    async def scenario(store: JsonlStore) -> None:
        task = asyncio.create_task(store.own("s1"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await store.read("s1")).owner is None
        await (await store.own("s1")).release()

    using(tmp_path, scenario)


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    async def main() -> None:
        store = JsonlStore(tmp_path)
        await store.close()
        for ask in (store.sessions, lambda: store.read("s1"), lambda: store.own("s1")):
            with pytest.raises(FencepostError, match="closed"):
                await ask()

    asyncio.run(main())
