"""Copies: the same bytes in another store, or nothing there."""

import asyncio
import errno

import pytest
from hypothesis import given
from tests.core.logs import HEADER, VOCABULARY, logs, moderate
from tests.journal.test_session import files, put
from tests.stores.faults import FaultyDisk
from tests.stores.powercut import RecordingDisk, survey
from tests.stores.sample import call, header, lines_of, log_bytes, notes, turn_with_call

from fencepost.core.codec import CORE, encode, pack
from fencepost.errors import (
    DamagedError,
    HeldError,
    NoSpaceError,
    SessionExistsError,
    SessionNotFoundError,
    StoreError,
    UnsupportedError,
)
from fencepost.journal.copy import copy
from fencepost.journal.inspect import inspect
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.memory import MemoryStore
from fencepost.stores.sqlite import SqliteStore


@moderate
@given(logs())
def test_a_copy_is_the_same_to_the_byte(log):
    if not log.entries:
        return

    async def scenario():
        source, target = MemoryStore(), MemoryStore()
        handle = await source.create(HEADER)
        await handle.append(list(pack(log.entries)), 0)
        await handle.release()
        made = await copy(source, "s1", target, VOCABULARY)
        one, other = await source.read("s1"), await target.read("s1")
        assert made.events == len(log.entries)
        assert encode(other.header) == encode(one.header)
        assert lines_of(other.entries) == lines_of(one.entries) == lines_of(log.entries)

    asyncio.run(scenario())


def test_there_and_back_through_files(tmp_path):
    put(tmp_path / "a", log_bytes(notes(0, 300), turn_with_call(300)))
    before = files(tmp_path)

    async def scenario():
        one, other, third = JsonlStore(tmp_path / "a"), MemoryStore(), JsonlStore(tmp_path / "b")
        await copy(one, "s1", other)
        await copy(other, "s1", third)
        assert lines_of((await third.read("s1")).entries) == lines_of((await one.read("s1")).entries)
        ours, theirs = await inspect(one, "s1"), await inspect(third, "s1")
        assert ours == theirs
        assert [call.verdict for call in theirs.calls] == ["not_started"]
        for store in (one, third):
            await store.close()

    asyncio.run(scenario())
    assert {path: data for path, data in files(tmp_path).items() if path.is_relative_to(tmp_path / "a")} == before


def test_an_id_that_the_target_has_is_not_written_over(tmp_path):
    put(tmp_path, log_bytes(notes(0, 2)))

    async def scenario():
        source, target = JsonlStore(tmp_path), MemoryStore()
        await copy(source, "s1", target)
        with pytest.raises(SessionExistsError):
            await copy(source, "s1", target)
        with pytest.raises(SessionExistsError):
            await copy(source, "s1", source)
        with pytest.raises(SessionNotFoundError):
            await copy(source, "nobody", target)
        await source.close()

    asyncio.run(scenario())


TORN = b'{"type":"tool/call","seq":5,"call_id":"call-1","na'

REFUSED = {
    "damaged": (log_bytes(notes(0, 3)).replace(b"note 1", b"nope 1"), DamagedError, "--salvage"),
    "newer": (log_bytes(notes(0, 3)).replace(b'"format":1', b'"format":9'), UnsupportedError, "Upgrade"),
    "lost bytes name an open call": (log_bytes(turn_with_call()) + TORN, StoreError, "resume s1"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_not_mean_the_same_is_refused_with_advice(case, tmp_path):
    content, error, advice = REFUSED[case]
    put(tmp_path, content)
    before = files(tmp_path)

    async def scenario():
        source, target = JsonlStore(tmp_path), MemoryStore()
        with pytest.raises(error) as raised:
            await copy(source, "s1", target)
        assert advice in raised.value.explain()
        assert await target.sessions() == []
        await source.close()

    asyncio.run(scenario())
    assert files(tmp_path) == before


def test_lost_bytes_about_calls_that_have_a_verdict_hinder_nobody(tmp_path):
    put(tmp_path, log_bytes([*turn_with_call(), call(5)]) + TORN)

    async def scenario():
        source, target = JsonlStore(tmp_path), MemoryStore()
        await copy(source, "s1", target)
        assert [call.verdict for call in (await inspect(target, "s1")).calls] == ["outcome_unknown"]
        await source.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("scheme", [JsonlStore, SqliteStore], ids=["jsonl", "sqlite"])
@pytest.mark.parametrize(("events", "carried"), [([*turn_with_call(), call(5)], True), (turn_with_call(), False)])
def test_receipts_of_a_call_that_may_have_run_go_with_it(tmp_path, scheme, events, carried):
    put(tmp_path / "a", log_bytes(events))

    async def scenario():
        source, target = JsonlStore(tmp_path / "a"), scheme(tmp_path / "b" / "x")
        receipt = source.files("s1") / "receipts" / "call-1.1.done.json"
        receipt.parent.mkdir(parents=True)
        receipt.write_bytes(b"evidence")
        receipt.chmod(0o600)
        await copy(source, "s1", target)
        copied = target.files("s1") / "receipts" / receipt.name
        assert copied.exists() == carried
        assert not carried or (copied.read_bytes(), copied.stat().st_mode) == (b"evidence", receipt.stat().st_mode)
        assert (await target.read("s1")).owner is None
        for store in (source, target):
            await store.close()

    asyncio.run(scenario())


def test_a_session_that_somebody_works_on_is_refused(tmp_path):
    async def scenario():
        source, target = JsonlStore(tmp_path), MemoryStore()
        handle = await source.create(header())
        await handle.append(notes(0, 2), 0)
        with pytest.raises(HeldError, match="s1"):
            await copy(source, "s1", target)
        await handle.release()
        await copy(source, "s1", target)
        await source.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("operation", ["create", "write", "sync_data", "link", "sync_dir"])
def test_a_target_that_fails_has_no_part_of_it(tmp_path, operation):
    put(tmp_path / "a", log_bytes(notes(0, 2000, "x" * 100)))

    async def scenario():
        disk = FaultyDisk()
        source, target = JsonlStore(tmp_path / "a"), JsonlStore(tmp_path / "b", disk=disk)
        await (await target.create(header("warm"))).release()
        disk.fail(operation, errno.ENOSPC, keep=70_000)
        with pytest.raises(NoSpaceError):
            await copy(source, "s1", target)
        assert await target.sessions() == []
        await copy(source, "s1", target)
        assert lines_of((await target.read("s1")).entries) == lines_of(notes(0, 2000, "x" * 100))
        await source.close()
        await target.close()

    asyncio.run(scenario())


def test_after_a_power_cut_a_copy_is_whole_or_not_there(tmp_path):
    base, place, disk = tmp_path / "base", tmp_path / "after", RecordingDisk()
    base.mkdir()
    entries = notes(0, 400, "x" * 50)
    seen = set()

    async def check(cut, stored, store):
        seen.add(stored is not None)
        if stored is not None:
            assert lines_of(stored.entries) == lines_of(entries), cut.story

    async def scenario():
        source, target = MemoryStore(), JsonlStore(base / "root", disk=disk)
        handle = await source.create(header())
        await handle.append(entries, 0)
        await handle.release()
        await copy(source, "s1", target, CORE)
        await target.close()
        return await survey(disk, base, base / "root", "s1", place, check, step=4001)

    assert asyncio.run(scenario()) > 10
    assert seen == {True, False}


def test_files_to_a_database_and_back(tmp_path):
    """Two forms on disk, one canonical form of every event."""
    put(tmp_path / "a", log_bytes(notes(0, 200), turn_with_call(200)))

    async def scenario():
        one, database, other = JsonlStore(tmp_path / "a"), SqliteStore(tmp_path / "s.db"), JsonlStore(tmp_path / "b")
        await copy(one, "s1", database)
        await copy(database, "s1", other)
        wanted, *copies = [await store.read("s1") for store in (one, database, other)]
        for found in copies:
            assert encode(found.header) == encode(wanted.header)
            assert lines_of(found.entries) == lines_of(wanted.entries)
        for store in (one, database, other):
            await store.close()

    asyncio.run(scenario())
