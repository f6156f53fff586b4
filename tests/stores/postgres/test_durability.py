"""What an acknowledged append rests on: a commit that is waited for, and bytes that do not grow with the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import psycopg
import pytest
from tests.stores.postgres.fixtures import opened
from tests.stores.postgres.servers import Cluster
from tests.stores.sample import call, header, lines_of, note, notes, turn_with_call

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.errors import DamagedError, SessionNotFoundError, UnsupportedError
from fencepost.journal.inspect import inspect
from fencepost.stores.postgres.rounds import Batch

Sql = Callable[..., list[tuple]]

SPY = """
CREATE TABLE spied (id serial, what text, setting text);
CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    what text := CASE WHEN TG_TABLE_NAME = 'entry' THEN 'entry' WHEN TG_OP = 'INSERT' THEN 'reserve' ELSE 'renew' END;
BEGIN
    IF TG_TABLE_NAME = 'head' AND TG_OP = 'UPDATE' THEN
        what := CASE WHEN NEW.pid IS NULL THEN 'release' WHEN NEW.epoch <> OLD.epoch THEN 'own'
            WHEN NEW.next_seq <> OLD.next_seq THEN 'append' ELSE 'renew' END;
    END IF;
    EXECUTE format('INSERT INTO %I.spied (what, setting) VALUES (%L, current_setting(%L))',
        TG_TABLE_SCHEMA, what, 'synchronous_commit');
    RETURN NEW;
END $$;
CREATE TRIGGER spy AFTER INSERT ON entry FOR EACH ROW EXECUTE FUNCTION spy();
CREATE TRIGGER spy AFTER INSERT OR UPDATE ON head FOR EACH ROW EXECUTE FUNCTION spy();
"""
"""Notes the setting in the very transaction that writes."""


@pytest.fixture
def hasty(cluster: Cluster) -> Iterator[str]:
    """A role whose commits are not waited for, by default."""
    with cluster.connect() as root:
        root.execute("CREATE ROLE hasty SUPERUSER LOGIN")
        root.execute("ALTER ROLE hasty SET synchronous_commit = off")
        yield f"postgresql://hasty@127.0.0.1:{cluster.port}/postgres?schema=hasty"
        root.execute("SET client_min_messages = warning")
        root.execute("DROP OWNED BY hasty CASCADE")
        root.execute("DROP ROLE hasty")


@pytest.mark.parametrize("setting", ["off", "local", "remote_write", "on", "remote_apply"])
def test_what_must_last_waits_for_its_commit_whatever_the_role_says(cluster: Cluster, hasty: str, setting: str) -> None:
    async def scenario(root: psycopg.Connection[tuple[object, ...]]) -> None:
        async with opened(hasty) as store:
            await (await store.create(header("first"))).release()
            root.execute(SPY)
            assert (await store.settings())["synchronous_commit"] == setting
            handle = await store.create(header())
            await handle.append(notes(0, 2), 0)
            await handle.append([note(2)], 2)
            await store._rounds.submit(Batch(handle.claim, [note(3)], 3, doubt=True)).outcome()
            await asyncio.to_thread(store._rounds.renew, [handle.claim])
            await handle.release()
            await store.own("s1")

    with cluster.connect(options="-c search_path=hasty") as root:
        root.execute(f"ALTER ROLE hasty SET synchronous_commit = {setting}")
        asyncio.run(scenario(root))
        owed = "remote_apply" if setting == "remote_apply" else "on"
        assert root.execute("SELECT what, setting FROM spied ORDER BY id").fetchall() == [
            ("reserve", owed),
            *[("append", owed), ("entry", owed), ("entry", owed)],
            *[("append", owed), ("entry", owed)],
            *[("renew", owed), ("append", owed), ("entry", owed)],  # what came of it is read back first
            ("renew", "off"),  # by the keeper
            ("release", "off"),
            ("own", owed),
            ("release", "off"),
        ]


def test_the_server_says_what_it_is(cluster: Cluster, private_url: str) -> None:
    async def scenario() -> None:
        async with opened(private_url) as store:
            settings = await store.settings()
            assert settings["server_version"]
            del settings["server_version"]
            assert settings == {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}

    asyncio.run(scenario())


def test_bytes_for_an_event_do_not_grow_with_the_log(url: str, sql: Sql) -> None:
    async def scenario() -> list[int]:
        async with opened(url) as store:
            handle = await store.create(header())
            spent = []
            for seq in range(2000):
                if seq in {100, 300, 1800}:
                    spent.append(sql("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])
                await handle.append([note(seq, "x" * 100)], seq)
            spent.append(sql("SELECT pg_current_wal_insert_lsn() - '0/0'")[0][0])
            return spent

    early, late, end, after = asyncio.run(scenario())
    assert after - end < 2 * (late - early)


def test_a_run_of_chunks_is_one_row(url: str, sql: Sql) -> None:
    chunks = [ev.AssistantChunk(seq, 1_000 + seq, 1, 1, f"word{seq} ") for seq in range(200)]

    async def scenario() -> None:
        async with opened(url) as store:
            handle = await store.create(header())
            await handle.append(list(codec.pack(chunks)), 0)
            await handle.append(notes(200, 2), 200)

    asyncio.run(scenario())
    assert sql("SELECT seq FROM entry ORDER BY seq") == [(0,), (200,), (201,)]


@pytest.mark.parametrize("seq", [0, 3, 10, 15, 51, 52, 53, 54])
def test_a_suffix_is_read_from_the_row_on_that_holds_its_seq(url: str, seq: int) -> None:
    entries = [*notes(0, 3), *codec.pack(ev.AssistantChunk(at, 1_000, 1, 1, "w ") for at in range(3, 53)), note(53)]

    async def scenario() -> None:
        async with opened(url) as store:
            handle = await store.create(header())
            await handle.append(entries, 0)
            assert await store.entries_from("s1", seq) == [entry for entry in entries if codec.last_seq(entry) >= seq]
            with pytest.raises(SessionNotFoundError):
                await store.entries_from("s2", seq)

    asyncio.run(scenario())


DAMAGES = {
    "a row is gone": ("DELETE FROM entry WHERE seq = 3", 3, 2),
    "the last rows are gone": ("DELETE FROM entry WHERE seq >= 4", 4, 3),
    "a byte changed": ("UPDATE entry SET body = set_byte(body, 20, 88) WHERE seq = 3", 3, 2),
    "the head stepped back": ("UPDATE head SET next_seq = 5", 5, 4),
    "the head is gone": ("DELETE FROM head", 7, 6),
    "the header changed": ("UPDATE session SET header = set_byte(header, 5, 88)", 0, 6),
}


@pytest.mark.parametrize(("harm", "place", "watermark"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_session_is_listed_and_read_and_never_continued(
    url: str, sql: Sql, harm: str, place: int, watermark: int
) -> None:
    entries = [*turn_with_call(), call(5), note(6)]

    async def scenario() -> None:
        async with opened(url) as store:
            handle = await store.create(header())
            await handle.append(entries, 0)
            await handle.release()
            sql(harm)
            assert await store.sessions() == ["s1"]
            stored = await store.read("s1")
            assert (stored.damage[0].offset, stored.watermark) == (place, watermark)
            assert lines_of(stored.entries) == lines_of(entries)[: watermark + 1]
            assert (await inspect(store, "s1")).state == "damaged"
            with pytest.raises(DamagedError):
                await (await store.own("s1")).append([note(watermark + 1)], watermark + 1)

    asyncio.run(scenario())


def test_a_log_of_a_newer_format_is_shown_and_not_continued(url: str, sql: Sql) -> None:
    async def scenario() -> None:
        async with opened(url) as store:
            handle = await store.create(ev.Header("s1", 5, "/", codec.FORMAT + 1))
            await handle.append([note(0)], 0)
            await handle.release()
            handle = await store.own("s1")
            assert handle.stored.refusal is not None
            assert "newer" in handle.stored.refusal
            assert len(handle.stored.entries) == 1
            with pytest.raises(UnsupportedError):
                await handle.append([note(1)], 1)

    asyncio.run(scenario())


def test_a_large_log_is_read_while_the_event_loop_keeps_its_beat(url: str) -> None:
    many, beats = 60_000, 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0.001)

    async def scenario() -> None:
        async with opened(url) as store:
            handle = await store.create(header())
            for first in range(0, many, 20_000):
                await handle.append(notes(first, 20_000), first)
            heart = asyncio.create_task(beat())
            await asyncio.sleep(0)
            before = beats
            stored = await store.read("s1")
            assert beats > before + 5
            assert stored.watermark == many - 1
            heart.cancel()

    asyncio.run(scenario())
