"""Damage: listed, shown up to it and beyond it, never continued, never cut; and commits that are gone unseen."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import apsw
import pytest

from fencepost.core.log import Fold
from fencepost.core.verdict import verdicts
from fencepost.errors import DamagedError, SessionExistsError, SessionNotFoundError, UnsupportedError
from fencepost.stores.base import StoredLog
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, is_prefix, lines_of, note, notes, turn_with_call
from tests.stores.sqlite.sessions import store_at, write

T = TypeVar("T")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `file` is a copy of."""
    path = tmp_path_factory.mktemp("template") / "a.db"
    write(path, 12)
    write(path, 2, session="s2")
    return path


@pytest.fixture
def file(template: Path, tmp_path: Path) -> Path:
    """A database, closed: s1 with twelve notes in twelve batches, and s2 with two."""
    shutil.copytree(template.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "a.db"


def change(file: Path, *statements: str) -> None:
    """Change rows behind the store's back."""
    connection = apsw.Connection(str(file))
    for statement in statements:
        connection.execute(statement)
    connection.close()


def looking(file: Path, look: Callable[[SqliteStore], Awaitable[T]]) -> T:
    """Look at the database with a fresh store."""

    async def main() -> T:
        async with store_at(file) as store:
            return await look(store)

    return asyncio.run(main())


def read(file: Path, session: str = "s1") -> StoredLog:
    return looking(file, lambda store: store.read(session))


def assert_it_is_never_continued(file: Path, stored: StoredLog) -> None:
    async def look(store: SqliteStore) -> None:
        assert sorted(await store.sessions()) == ["s1", "s2"]
        handle = await store.own("s1")
        with pytest.raises(DamagedError, match="s1"):
            await handle.append([note(stored.watermark + 1)], handle.stored.watermark + 1)
        await handle.release()
        other = await store.own("s2")
        seq = other.stored.watermark + 1
        await other.append([note(seq)], seq)

    before = file.read_bytes()
    assert read(file) == stored
    assert file.read_bytes() == before
    looking(file, look)


FIVE = "WHERE session = 1 AND seq = 5"


@pytest.mark.parametrize(
    ("statement", "seq", "reason", "beyond"),
    [
        (
            f"UPDATE batch SET data = cast(replace(data, 'note 5', '5') AS blob) {FIVE}",
            5,
            "checksum",
            range(5, 12),
        ),
        (f"UPDATE batch SET data = substr(data, 1, 30) {FIVE}", 5, "checksum", range(6, 12)),
        (f"UPDATE batch SET data = zeroblob(80) {FIVE}", 5, "checksum", range(6, 12)),
        (f"UPDATE batch SET session = 2 {FIVE}", 5, "missing", range(6, 12)),
        (f"UPDATE batch SET next = 9 {FIVE}", 5, "checksum", range(5, 12)),
        (f"DELETE FROM batch {FIVE}", 5, "events 5 to 5 are missing", range(6, 12)),
        ("DELETE FROM batch WHERE session = 1 AND seq = 0", 0, "events 0 to 0 are missing", range(1, 12)),
        ("DELETE FROM batch WHERE session = 1 AND seq = 11", 11, "missing at the end", range(0)),
        ("DELETE FROM batch WHERE session = 1", 0, "events 0 to 11 are missing at the end", range(0)),
        (f"UPDATE batch SET prev = 0 {FIVE}", 12, "stands where", range(0)),
        (f"UPDATE batch SET prev = 12 {FIVE}", 12, "stands where", range(0)),
        ("UPDATE head SET next = 8 WHERE session = 1", 12, "there is more", range(0)),
        ("UPDATE head SET batch = 4 WHERE session = 1", 12, "the head says", range(0)),
        ("DELETE FROM head WHERE session = 1", 12, "is missing", range(0)),
    ],
)
def test_a_row_that_is_not_what_was_written(file: Path, statement: str, seq: int, reason: str, beyond: range) -> None:
    change(file, statement)
    stored = read(file)
    assert stored.damage
    assert stored.damage[0].offset == seq
    assert reason in stored.damage[0].reason
    assert lines_of(stored.entries) == lines_of(notes(0, seq))
    assert [entry.seq for entry in stored.beyond] == list(beyond)
    assert stored.header == header()
    assert_it_is_never_continued(file, stored)


@pytest.mark.parametrize("header", ["zeroblob(20)", "(SELECT header FROM session WHERE id = 2)"])
def test_a_header_that_is_not_what_was_written(file: Path, header: str) -> None:
    change(file, f"UPDATE session SET header = {header}, crc = (SELECT crc FROM session WHERE id = 2) WHERE id = 1")
    stored = read(file)
    assert stored.header is None
    assert [(damage.offset, damage.reason) for damage in stored.damage] == [(0, "the header is not what was written")]
    assert lines_of(stored.entries) == lines_of(notes(0, 12))
    assert_it_is_never_continued(file, stored)


def test_the_same_seq_twice_shows_both(file: Path) -> None:
    """Two writers' damage from elsewhere."""
    change(
        file,
        f"INSERT INTO batch SELECT 500, session, prev, seq, next, written, crc, data FROM batch {FIVE}",
        "UPDATE head SET batch = 500 WHERE session = 1",
    )
    stored = read(file)
    assert stored.damage[0].offset == 5
    assert "a second time" in stored.damage[0].reason
    assert [entry.seq for entry in stored.beyond] == [5, *range(6, 12)]
    assert_it_is_never_continued(file, stored)


def test_calls_beyond_damage_are_never_not_started(tmp_path: Path) -> None:
    file = tmp_path / "a.db"

    async def lay(store: SqliteStore) -> None:
        handle = await store.create(header())
        for entry in [*turn_with_call(), note(5), note(6)]:
            await handle.append([entry], entry.seq)

    looking(file, lay)
    assert [found.verdict for found in verdicts(folded(read(file)), read(file).evidence)] == ["not_started"]
    change(file, "DELETE FROM batch WHERE seq = 5")
    stored = read(file)
    assert [found.verdict for found in verdicts(folded(stored), stored.evidence)] == ["outcome_unknown"]


def folded(stored: StoredLog) -> Fold:
    fold = Fold()
    for entry in stored.entries:
        fold.take(entry)
    return fold


# --- pages ----------------------------------------------------------------------------------------------------------


def test_no_byte_that_is_flipped_hides_a_session_or_stops_a_reader(tmp_path: Path) -> None:
    """Every page in turn, and single bytes at random: listed, read, and whatever is called intact is."""
    whole = tmp_path / "whole.db"
    write(whole, 60, text="a text that fills the page " * 8)
    write(whole, 2, session="s2")
    dice = random.Random(1)
    size = whole.stat().st_size
    pages = [(start, bytes(4096)) for start in range(0, size, 4096)]
    flips = [(dice.randrange(size), bytes([dice.randrange(256)])) for _ in range(120)]
    damaged = 0
    for number, (offset, data) in enumerate([*pages, *flips]):
        file = tmp_path / f"{number}.db"
        content = bytearray(whole.read_bytes())
        content[offset : offset + len(data)] = data
        file.write_bytes(content)
        shutil.copytree(f"{whole}-locks", f"{file}-locks")
        shutil.copy(f"{whole}-watermark", f"{file}-watermark")

        async def look(store: SqliteStore) -> StoredLog:
            assert {"s1", "s2"} <= set(await store.sessions())
            await store.read("s2")
            return await store.read("s1")

        stored = looking(file, look)
        assert is_prefix(stored, notes(0, 60, "a text that fills the page " * 8)), offset
        assert len(stored.entries) == 60 or stored.damage or stored.evidence.blind_at, offset
        damaged += bool(stored.damage)
    assert damaged > len(pages) // 2


def test_both_sides_of_a_malformed_page_are_shown(tmp_path: Path) -> None:
    file = tmp_path / "a.db"
    write(file, 200, text="x" * 300)
    connection = apsw.Connection(str(file))
    leaf = (
        connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'batch' AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET 8"
        ).get
        if "ENABLE_DBSTAT_VTAB" in apsw.compile_options
        else None
    )
    connection.close()
    content = bytearray(file.read_bytes())
    start = (leaf - 1) * 4096 if leaf else len(content) // 2 // 4096 * 4096
    content[start : start + 4096] = bytes(4096)
    file.write_bytes(content)
    stored = read(file)
    assert stored.damage
    seqs = [entry.seq for entry in stored.entries], [entry.seq for entry in stored.beyond]
    assert seqs[0] == list(range(len(seqs[0])))
    assert len(seqs[0]) > 50
    assert seqs[1] == list(range(200 - len(seqs[1]), 200))
    assert 200 - len(seqs[0]) - len(seqs[1]) < 20


@pytest.mark.parametrize("missing", ["head WHERE session = 0", "meta"])
def test_counters_that_are_missing_are_damage(file: Path, missing: str) -> None:
    change(file, f"DELETE FROM {missing}")

    async def look(store: SqliteStore) -> None:
        stored = await store.read("s1")
        assert stored.damage
        assert is_prefix(stored, notes(0, 12))
        with pytest.raises(DamagedError):
            await (await store.create(header("s3"))).append([note(0)], 0)

    looking(file, look)


# --- the whole file -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 50, 4096, 6000, 8192, 12288, 16384])
def test_a_file_that_was_cut_is_damaged_and_lists_what_it_had(file: Path, left: int) -> None:
    os.truncate(file, left)

    async def look(store: SqliteStore) -> None:
        assert sorted(await store.sessions()) == ["s1", "s2"]
        stored = await store.read("s1")
        assert stored.damage
        assert is_prefix(stored, notes(0, 12))
        with pytest.raises(SessionNotFoundError):
            await store.read("s3")
        handle = await store.own("s1")
        with pytest.raises(DamagedError):
            await handle.append([note(12)], stored.watermark + 1)
        with pytest.raises(DamagedError):
            await (await store.create(header("s3"))).append([note(0)], 0)

    looking(file, look)
    assert file.stat().st_size == left


# --- commits that are gone ------------------------------------------------------------------------------------------

KILLED = """
import asyncio, os, sys
from fencepost.stores.sqlite import SqliteStore
from tests.stores.sample import header, note, turn_with_call

async def main():
    store = SqliteStore(sys.argv[1])
    handle = await store.own("s1")
    await handle.append([note(5)], 5)
    await handle.append([note(6)], 6)
    other = await store.create(header("young"))
    await other.append([note(0)], 0)
    os._exit(9)

asyncio.run(main())
"""


@pytest.fixture
def beheaded(tmp_path: Path) -> Path:
    """A database whose last commits were acknowledged and are gone: the owner was killed, and its -wal was removed."""
    file = tmp_path / "a.db"

    async def lay(store: SqliteStore) -> None:
        for session in ("s1", "s2"):
            handle = await store.create(header(session))
            await handle.append(turn_with_call(), 0)

    looking(file, lay)
    assert subprocess.run([sys.executable, "-c", KILLED, file], check=False).returncode == 9
    assert len(read(file).entries) == 7
    file.with_name("a.db-wal").unlink()
    file.with_name("a.db-shm").unlink()
    return file


def test_a_lost_log_makes_no_call_innocent(beheaded: Path) -> None:
    """The call may have stood in what is gone (law 2), in either session; nothing else is in doubt, or refused."""
    for session in ("s1", "s2"):
        stored = read(beheaded, session)
        assert (len(stored.entries), stored.damage) == (5, ())
        assert [found.verdict for found in verdicts(folded(stored), stored.evidence)] == ["outcome_unknown"]


def test_the_doubt_outlives_what_is_appended_later(beheaded: Path) -> None:
    async def go_on(store: SqliteStore) -> None:
        handle = await store.own("s1")
        await handle.append([note(5, "another life")], 5)
        for seq in range(6, 20):
            await handle.append([note(seq)], seq)
        fresh = await store.create(header("s3"))
        await fresh.append(turn_with_call(), 0)

    looking(beheaded, go_on)
    for session, verdict in (("s1", "outcome_unknown"), ("s2", "outcome_unknown"), ("s3", "not_started")):
        stored = read(beheaded, session)
        assert [found.verdict for found in verdicts(folded(stored), stored.evidence)] == [verdict]


def test_a_copy_of_a_database_is_in_no_doubt(beheaded: Path, tmp_path: Path) -> None:
    shutil.copy(beheaded, tmp_path / "copy.db")
    assert read(tmp_path / "copy.db").evidence.blind_at == ()


def test_a_new_database_in_the_place_of_an_old_one_owes_it_nothing(file: Path) -> None:
    file.unlink()
    write(file, 2, session="s3")
    assert looking(file, lambda store: store.sessions()) == ["s3"]
    assert read(file, "s3").evidence.blind_at == ()


def test_another_database_that_is_put_in_the_place_owes_it_nothing_either(file: Path, tmp_path: Path) -> None:
    write(tmp_path / "other.db", 2)
    (tmp_path / "other.db").replace(file)
    stored = read(file)
    assert (stored.watermark, stored.evidence.blind_at) == (1, ())


def test_a_database_that_was_put_back_from_before_is_in_doubt(file: Path) -> None:
    before = file.read_bytes()

    async def go_on(store: SqliteStore) -> None:
        handle = await store.own("s1")
        await handle.append([note(12)], 12)

    looking(file, go_on)
    file.write_bytes(before)
    stored = read(file)
    assert lines_of(stored.entries) == lines_of(notes(0, 12))
    assert stored.evidence.blind_at == (12,)


# --- what is newer --------------------------------------------------------------------------------------------------


def test_a_session_of_a_newer_format_is_read_and_not_continued(file: Path) -> None:
    line = b'{"type":"session","session":"s1","created":1,"cwd":"/","format":99,"new":true}'
    import zlib

    connection = apsw.Connection(str(file))
    connection.execute("UPDATE session SET header = ?, crc = ? WHERE id = 1", (line, zlib.crc32(line)))
    connection.close()
    stored = read(file)
    assert stored.damage == ()
    assert "format 99" in (stored.refusal or "")

    async def look(store: SqliteStore) -> None:
        with pytest.raises(UnsupportedError, match="format 99"):
            await (await store.own("s1")).append([note(12)], 12)
        with pytest.raises(SessionExistsError):
            await store.create(header())

    looking(file, look)
