"""The catalogue may lag and never leads; nothing rests on it; making it changes no byte of a store."""

import asyncio
import errno
import json
import multiprocessing
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import msgspec
import pytest
from tests.core.logs import VOCABULARY
from tests.journal.test_session import put
from tests.stores.sample import call, header, log_bytes, note, turn_with_call

from fencepost.core.codec import CORE
from fencepost.journal import inspect
from fencepost.journal.catalogue import WORTH, Catalogue
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.memory import MemoryStore


class Counting(JsonlStore):
    """Counts what is asked of it."""

    def __init__(self, root):
        super().__init__(root)
        self.reads = Counter()
        self.asked = 0

    async def read(self, session):
        self.reads[session] += 1
        return await super().read(session)

    async def owner(self, session):
        self.asked += 1
        return await super().owner(session)


def name(number):
    return f"s{number:05d}"


def fill(root, count=WORTH):
    """Interrupted sessions, each in a call."""
    for number in range(count):
        put(root, log_bytes([*turn_with_call(), call(5)], session=name(number)), name(number))


def listing(root, cache, limit=None, vocabulary=CORE):
    """A listing by a process of its own, as far as one can be made here: its rows, and what it read."""

    async def main():
        store = Counting(root)
        try:
            return await Catalogue(store, vocabulary, cache).rows(limit), store
        finally:
            await store.close()

    return asyncio.run(main())


def plain(root):
    """The same listing without a catalogue."""

    async def main():
        store = JsonlStore(root)
        try:
            return await inspect.rows(store)
        finally:
            await store.close()

    return asyncio.run(main())


def append(root, session, seq):
    async def main():
        store = JsonlStore(root)
        handle = await store.own(session)
        await handle.append([note(seq)], seq)
        await store.close()

    asyncio.run(main())


@pytest.fixture
def place(tmp_path):
    fill(tmp_path / "store")
    return tmp_path / "store", tmp_path / "cache"


def file_of(root, cache):
    return Catalogue(JsonlStore(root), CORE, cache).path


def test_ten_thousand_sessions_are_read_once_and_a_page_asks_fifty_locks(tmp_path):
    root, cache = tmp_path / "store", tmp_path / "cache"
    content = log_bytes([note(0)])
    for number in range(10_000):
        put(root, content, name(number))
    _, first = listing(root, cache, 50)
    assert first.reads.total() == 10_000
    page, second = listing(root, cache, 50)
    assert (len(page), second.reads.total(), second.asked) == (50, 0, 50)
    append(root, name(17), 1)
    page, third = listing(root, cache, 50)
    assert page[0].session == name(17)
    assert third.reads == {name(17): 1}


def test_a_listing_with_a_catalogue_is_the_one_without(place):
    root, cache = place
    for _ in range(2):
        assert listing(root, cache)[0] == plain(root)
        assert listing(root, cache, 7)[0] == plain(root)[:7]


def test_what_changed_is_read_anew_and_nothing_else(place):
    root, cache = place
    listing(root, cache)
    append(root, name(3), 6)
    put(root, b"", "broken")
    (root / name(5) / "log.jsonl").unlink()
    rows, store = listing(root, cache)
    assert store.reads == {name(3): 1, "broken": 1}
    assert rows == plain(root)
    rows, store = listing(root, cache)
    assert not store.reads
    assert rows == plain(root)


def test_whether_a_session_is_running_is_asked_and_never_kept(place):
    root, cache = place
    listing(root, cache)

    async def main():
        owner, store = JsonlStore(root), Counting(root)
        handle = await owner.own(name(1))
        row = next(row for row in await Catalogue(store, CORE, cache).rows() if row.session == name(1))
        assert (row.state, row.unknown) == ("running", 0)
        assert not store.reads
        assert await Catalogue(store, CORE, cache).rows() == await inspect.rows(store)
        await handle.release()
        row = next(row for row in await Catalogue(store, CORE, cache).rows() if row.session == name(1))
        assert (row.state, row.unknown) == ("interrupted", 1)
        await owner.close()
        await store.close()

    asyncio.run(main())


SPOILED = {
    "gone": lambda data: None,
    "empty": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "rotten": lambda data: b"\xff" + data[1:],
    "not ours": lambda data: b'{"hello":1}',
    "of another release": lambda data: data.replace(b'"made_by":"', b'"made_by":"9'),
    "a directory": None,
}


@pytest.mark.parametrize("case", SPOILED)
def test_a_catalogue_that_is_no_use_is_made_anew_without_a_word(place, case, capfd):
    root, cache = place
    listing(root, cache)
    path = file_of(root, cache)
    good = path.read_bytes()
    path.unlink()
    if SPOILED[case] is None:
        path.mkdir()
    elif (data := SPOILED[case](good)) is not None:
        path.write_bytes(data)
    rows, store = listing(root, cache)
    assert store.reads.total() == WORTH
    assert rows == plain(root)
    if SPOILED[case] is not None:
        assert not listing(root, cache)[1].reads
    assert capfd.readouterr() == ("", "")
    assert [item.name for item in path.parent.iterdir()] == [path.name], "no draft is left"


def test_rows_that_lie_under_a_stale_token_are_not_believed(place):
    root, cache = place
    listing(root, cache)
    path = file_of(root, cache)
    content = json.loads(path.read_bytes())
    content["rows"][name(2)][0] = "0.0.0"
    content["rows"][name(2)][2]["title"] = "a lie"
    path.write_text(json.dumps(content))
    rows, store = listing(root, cache)
    assert store.reads == {name(2): 1}
    assert rows == plain(root)


def test_other_declared_events_make_other_rows(place):
    root, cache = place
    listing(root, cache)
    assert listing(root, cache, vocabulary=VOCABULARY)[1].reads.total() == WORTH


def test_a_log_that_cannot_be_read_is_a_marked_row_and_tried_again(place):
    root, cache = place

    class Refusing(Counting):
        async def read(self, session):
            if session == name(4):
                self.reads[session] += 1
                from fencepost.errors import PermissionDeniedError

                raise PermissionDeniedError(f"session {session}: errno {errno.EACCES}")
            return await super().read(session)

    async def main():
        for reads in (WORTH, 1):
            store = Refusing(root)
            rows = await Catalogue(store, CORE, cache).rows()
            assert store.reads.total() == reads
            assert next(row for row in rows if row.session == name(4)).state == "damaged"
            await store.close()

    asyncio.run(main())
    assert listing(root, cache)[0] == plain(root)


def test_the_store_is_not_touched_and_the_cache_is_private(place):
    root, cache = place
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    listing(root, cache)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before
    path = file_of(root, cache)
    assert path.is_relative_to(cache)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_cache_that_cannot_be_written_hinders_nobody(place):
    root, cache = place
    cache.write_text("a file in the way")
    assert listing(root, cache)[0] == plain(root)


def test_small_stores_and_those_in_memory_leave_nothing_behind(tmp_path):
    fill(tmp_path / "store", WORTH - 1)
    assert len(listing(tmp_path / "store", tmp_path / "cache")[0]) == WORTH - 1

    async def main():
        store = MemoryStore()
        for number in range(WORTH + 1):
            handle = await store.create(header(name(number)))
            await handle.append([note(0)], 0)
            await handle.release()
        assert len(await Catalogue(store, CORE, tmp_path / "cache").rows()) == WORTH + 1

    asyncio.run(main())
    assert not (tmp_path / "cache").exists()


def test_a_long_listing_tells_how_far_it_is(place):
    root, cache = place
    told = []

    async def main():
        store = JsonlStore(root)
        await Catalogue(store, CORE, cache).rows(1, lambda count, total: told.append((count, total)))
        await store.close()

    asyncio.run(main())
    assert told == [(number, WORTH) for number in range(1, WORTH + 1)]


def in_a_process(root, cache):
    rows, _ = listing(root, cache)
    return msgspec.json.encode(rows)


def test_two_processes_at_once_are_fine(place):
    root, cache = place
    wanted = msgspec.json.encode(plain(root))
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = [pool.submit(in_a_process, root, cache) for _ in range(12)]
        assert {one.result() for one in found} == {wanted}
    assert not listing(root, cache)[1].reads
