"""Logs of other releases: newer ones are refused, older ones read, and rewritten only when they are continued.

Format 1 is the first that was released, so the older one here is made up: its header says `id` and `made`, and what is
a `tool/note` now was a `tool/remark` with a `message`.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import zlib
from collections.abc import Iterable
from pathlib import Path

import pytest

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.core.upgrades import Record, Step
from fencepost.errors import DamagedError, NoSpaceError, UnsupportedError
from fencepost.journal.inspect import examine, fold_stored
from fencepost.stores.base import StoredLog
from fencepost.stores.jsonl import Disk, JsonlStore
from tests.apps.command import tree
from tests.stores.faults import FaultyDisk
from tests.stores.jsonl.session import write_session
from tests.stores.powercut import Cut, RecordingDisk, cuts
from tests.stores.sample import batch, header, lines_of, log_bytes, note, notes

RELEASED = Path(__file__).parents[2] / "fixtures" / "format1" / "log.jsonl"


def _header(record: Record) -> Record:
    record["session"], record["created"] = record.pop("id"), record.pop("made")
    return record


def _event(record: Record) -> Record:
    if record["type"] == "tool/remark":
        record |= {"type": "tool/note", "text": record.pop("message")}
    return record


CHAIN = {0: Step(_header, _event)}


def old_batch(entries: Iterable[ev.Entry], before: bytes = b"") -> bytes:
    entries = list(entries)
    lines = b"".join(codec.encode(entry) + b"\n" for entry in entries)
    lines = before + lines.replace(b'"tool/note"', b'"tool/remark"').replace(b'"text":', b'"message":')
    return lines + b'{"type":"commit","seq":%d,"crc":"%08x"}\n' % (codec.last_seq(entries[-1]), zlib.crc32(lines))


def old_log(*batches: Iterable[ev.Entry]) -> bytes:
    record = json.loads(codec.encode(header()))
    record |= {"id": record.pop("session"), "made": record.pop("created"), "format": 0}
    first, *others = batches
    return old_batch(first, json.dumps(record).encode() + b"\n") + b"".join(map(old_batch, others))


OLD = old_log(notes(0, 5), notes(5, 295))
TORN = b'{"type":"tool/call","seq":300,"call_id":"c9","na'


def store_at(root: Path, disk: Disk | None = None) -> JsonlStore:
    return JsonlStore(root, chain=CHAIN, disk=disk)


# --- released formats -----------------------------------------------------------------------------------------------


def test_the_log_of_format_1_is_the_one_that_was_released() -> None:
    assert hashlib.sha256(RELEASED.read_bytes()).hexdigest() == (
        "4a387d14462b3489d99b005b5c6f8fb27ecdfd652ef8d2bd5cad4f097e93b99e"
    )


def test_a_log_of_format_1_is_read_for_ever(tmp_path: Path) -> None:
    write_session(tmp_path, RELEASED.read_bytes(), "released")

    async def main() -> None:
        store = JsonlStore(tmp_path)
        stored = await store.read("released")
        found = examine(fold_stored(stored))
        assert (found.state, found.events, stored.damage, stored.refusal) == ("clean", 29, (), None)
        assert [(call.name, call.verdict, call.code) for call in found.calls] == [
            ("list_files", "completed", ""),
            ("write_file", "completed", ""),
            ("shell", "completed", ""),
            ("no_such_tool", "not_started", "UNKNOWN_TOOL"),
        ]
        texts = [event.delta for entry in stored.entries for event in codec.expand(entry) if hasattr(event, "delta")]
        assert "".join(texts) == "I look, then write.It says Grüße."
        await store.close()

    asyncio.run(main())


# --- other formats --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "said"),
    [(2, "newer fencepost (format 2"), (99, "newer"), (0, "older fencepost (format 0)"), (-3, "older")],
)
def test_a_format_that_is_not_known_is_refused_with_the_path(tmp_path: Path, number: int, said: str) -> None:
    data = log_bytes(notes(0, 3)).replace(b'"format":1', b'"format":%d' % number)
    place = write_session(tmp_path, data)

    async def main() -> None:
        store = JsonlStore(tmp_path)
        stored = await store.read("s1")
        assert stored.refusal is not None
        assert said in stored.refusal
        assert str(place / "log.jsonl") in stored.refusal
        assert stored.damage == ()
        handle = await store.own("s1")
        with pytest.raises(UnsupportedError):
            await handle.append([note(3)], 3)
        await store.close()

    asyncio.run(main())
    assert (place / "log.jsonl").read_bytes() == data


def test_an_older_log_is_read_as_if_it_were_written_now(tmp_path: Path) -> None:
    place = write_session(tmp_path, OLD)
    before = tree(place)

    async def main() -> None:
        store = store_at(tmp_path)
        stored = await store.read("s1")
        assert stored.header == header()
        assert lines_of(stored.entries) == lines_of(notes(0, 300))
        assert (stored.damage, stored.refusal, stored.tail_bytes) == ((), None, 0)
        handle = await store.own("s1")
        await handle.release()
        await store.close()

    asyncio.run(main())
    assert {name: data for name, data in tree(place).items() if name != "lock"} == before, "opening is reading (law 7)"


def test_it_is_rewritten_when_it_is_continued_and_its_original_stays(tmp_path: Path) -> None:
    place = write_session(tmp_path, OLD)

    async def main() -> None:
        store = store_at(tmp_path)
        handle = await store.own("s1")
        await handle.append([note(300)], 300)
        await handle.append([note(301)], 301)
        await store.close()

    asyncio.run(main())
    assert (place / "log.format0.jsonl").read_bytes() == OLD
    data = (place / "log.jsonl").read_bytes()
    assert data.startswith(codec.encode(header()) + b"\n")
    assert data.endswith(batch([note(300)]) + batch([note(301)]))

    async def again() -> None:
        store = JsonlStore(tmp_path)  # without the step: it is a log of this release
        assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 302))
        await store.close()

    asyncio.run(again())


def test_its_torn_tail_is_set_aside_and_still_counts(tmp_path: Path) -> None:
    place = write_session(tmp_path, OLD + TORN)

    async def main() -> None:
        store = store_at(tmp_path)
        assert (await store.read("s1")).tail_bytes == len(TORN)
        handle = await store.own("s1")
        assert await handle.set_aside() == len(TORN)
        assert await handle.set_aside() == 0
        await handle.append([note(300)], 300)
        stored = await store.read("s1")
        assert lines_of(stored.entries) == lines_of(notes(0, 301))
        assert "c9" in stored.evidence.named
        await store.close()

    asyncio.run(main())
    assert (place / f"tail-300-{len(OLD)}.bin").read_bytes() == TORN
    assert (place / "log.format0.jsonl").read_bytes() == OLD + TORN


def test_a_compressed_older_log_goes_on(tmp_path: Path) -> None:
    place = write_session(tmp_path, OLD)

    async def main() -> None:
        store = store_at(tmp_path)
        handle = await store.own("s1")
        await handle.release()
        await store.compress("s1")
        assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 300))
        handle = await store.own("s1")
        await handle.append([note(300)], 300)
        assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, 301))
        await store.close()

    asyncio.run(main())
    assert (place / "log.format0.jsonl").read_bytes() == OLD


@pytest.mark.parametrize(
    "spoil", [lambda data: data.replace(b"note 3", b"nope 3"), lambda data: data.replace(b'"id"', b'"ID"')]
)
def test_a_damaged_older_log_is_damaged_and_stays(tmp_path: Path, spoil: object) -> None:
    assert callable(spoil)
    place = write_session(tmp_path, spoil(OLD))
    chain = {0: Step(lambda record: record, _event)} if b'"ID"' in spoil(OLD) else CHAIN

    async def main() -> None:
        store = JsonlStore(tmp_path, chain=chain)
        assert (await store.read("s1")).damage
        handle = await store.own("s1")
        with pytest.raises(DamagedError):
            await handle.append([note(0)], 0)
        await store.close()

    asyncio.run(main())
    assert (place / "log.jsonl").read_bytes() == spoil(OLD)


@pytest.mark.parametrize("operation", ["create", "write", "sync_data", "link", "sync_dir", "rename"])
@pytest.mark.parametrize("torn", [b"", TORN], ids=["whole", "torn"])
def test_after_a_fault_the_same_batch_lands_once(tmp_path: Path, operation: str, torn: bytes) -> None:
    place = write_session(tmp_path, OLD + torn)

    async def main() -> None:
        disk = FaultyDisk()
        store = store_at(tmp_path, disk)
        handle = await store.own("s1")
        for times in (1, 2):
            disk.fail(operation, errno.ENOSPC, times)
            for _ in range(times):
                with pytest.raises(NoSpaceError):
                    await handle.append([note(299 + times)], 299 + times)
            await handle.append([note(299 + times)], 299 + times)
            if operation not in {"write", "sync_data"}:
                break  # a log of this release needs none of those
        stored = await store.read("s1")
        assert lines_of(stored.entries)[:301] == lines_of(notes(0, 301))
        assert ("c9" in stored.evidence.named) == bool(torn)
        await store.close()

    asyncio.run(main())
    assert (place / "log.format0.jsonl").read_bytes() == OLD + torn


def test_after_any_power_cut_there_is_one_whole_log_and_the_original(tmp_path: Path) -> None:
    base, place, disk = tmp_path / "base", tmp_path / "after", RecordingDisk()
    old = old_log(notes(0, 3), notes(3, 6))
    base.mkdir()
    disk.mkdir(base / "s1")
    fd = disk.create(base / "s1" / "log.jsonl")
    disk.write(fd, old + TORN)
    disk.sync_data(fd)
    disk.close(fd)
    disk.sync_dir(base / "s1")
    disk.sync_dir(base)
    disk.mark(9)
    formats: set[int] = set()

    async def look(cut: Cut) -> None:
        cut.restore(base, place)
        store = store_at(place)
        stored = await store.read("s1")
        check(cut, stored)
        if cut.lost_block and stored.damage:
            return
        handle = await store.own("s1")
        await handle.set_aside()
        count = len(stored.entries)
        await handle.append([note(count)], count)
        assert lines_of((await store.read("s1")).entries) == lines_of(notes(0, count + 1)), cut.story
        await store.close()
        assert (place / "s1" / "log.format0.jsonl").read_bytes() == old + TORN, cut.story

    def check(cut: Cut, stored: StoredLog) -> None:
        log = next(data for path, data in cut.files.items() if path.name == "log.jsonl")
        formats.add(json.loads(log.partition(b"\n")[0])["format"])
        assert lines_of(stored.entries)[:9] == lines_of(notes(0, 9)), cut.story
        assert len(stored.entries) >= cut.acknowledged, cut.story
        assert "c9" in stored.evidence.named, cut.story

    async def main() -> int:
        store = store_at(base, disk)
        handle = await store.own("s1")
        await handle.append([note(9)], 9)
        disk.mark(10)
        await handle.append([note(10)], 10)
        await store.close()
        explored = 0
        for cut in cuts(disk, base, step=301):
            if cut.acknowledged:
                await look(cut)
                explored += 1
        return explored

    assert asyncio.run(main()) > 50
    assert formats == {0, 1}
