"""Rows to entries: what is whole, what is damage, and what damage leaves to be claimed."""

from __future__ import annotations

import pytest
from tests.stores.sample import call, header, lines_of, note, notes, turn_with_call

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.core.verdict import Evidence
from fencepost.errors import EncodingRefusedError, IllegalEventError
from fencepost.stores.base import Damage
from fencepost.stores.postgres.rows import Assembly, Row, behind, checksum, read_header, to_rows


def rows_of(*entries: ev.Entry) -> list[Row]:
    return to_rows("s1", entries, entries[0].seq)


def assembled(rows: list[Row], end: int | None) -> Assembly:
    assembly = Assembly(end)
    assembly.take(rows)
    assembly.finish()
    return assembly


def chunks(first: int, count: int) -> list[ev.Entry]:
    return [ev.AssistantChunk(seq, 1_000 + seq * seq, 1, 1, f"w{seq} ") for seq in range(first, first + count)]


def test_rows_and_entries_are_inverse() -> None:
    entries = [*notes(0, 2), *codec.pack(chunks(2, 50)), note(52, "nul \0, \u2028, ☕")]
    rows = rows_of(*entries)
    assert len(rows) == 4
    assert -(1 << 31) <= min(crc for _, crc, _ in rows) <= max(crc for _, crc, _ in rows) < 1 << 31
    found = assembled(rows, 53)
    assert lines_of(found.entries) == lines_of(entries)
    assert (found.next_seq, found.damage, found.evidence) == (53, [], Evidence())


def test_bytes_of_a_row_are_the_canonical_ones() -> None:
    raw = b'{"type":"acme/thing",  "seq":0,"time":5,"odd":[1.50,null]}'
    assert rows_of(codec.CORE.decode(raw))[0][2] == raw


@pytest.mark.parametrize("batch", [[0, 2], [1], [0, 0]], ids=str)
def test_a_batch_with_a_gap_makes_no_rows(batch: list[int]) -> None:
    with pytest.raises(IllegalEventError):
        to_rows("s1", [note(seq) for seq in batch], 0)


def test_what_has_no_bytes_makes_no_rows() -> None:
    with pytest.raises(EncodingRefusedError, match=r"s1.*event 1"):
        to_rows("s1", [note(0), note(1, "half a pair \ud83d")], 0)


def flipped(row: Row) -> Row:
    return row[0], row[1], row[2].replace(b"note", b"nose")


def renumbered(row: Row, seq: int) -> Row:
    return seq, row[1], row[2]


def unreadable(row: Row) -> Row:
    return row[0], checksum(row[2][:-1]), row[2][:-1]


FIVE = rows_of(*notes(0, 5))


DAMAGES = {
    "a row is gone": ([*FIVE[:2], *FIVE[3:]], 5, [0, 1], [3, 4], [2]),
    "the last are gone": (FIVE[:3], 5, [0, 1, 2], [], [3]),
    "all are gone": ([], 5, [], [], [0]),
    "changed": ([*FIVE[:2], flipped(FIVE[2]), *FIVE[3:]], 5, [0, 1], [3, 4], [2]),
    "cut": ([*FIVE[:2], unreadable(FIVE[2]), *FIVE[3:]], 5, [0, 1], [3, 4], [2]),
    "another one's bytes": ([*FIVE[:2], renumbered(FIVE[3], 2), *FIVE[3:]], 5, [0, 1], [3, 4], [2]),
    "behind the head": (FIVE, 3, [0, 1, 2], [3, 4], [3, 4]),
    "no head": (FIVE, None, [0, 1, 2, 3, 4], [], [5]),
    "two places": ([FIVE[0], *FIVE[2:3], flipped(FIVE[3])], 5, [0], [2], [1, 3]),
}


@pytest.mark.parametrize(("rows", "end", "intact", "beyond", "places"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_named_and_nothing_beyond_it_is_lost(
    rows: list[Row], end: int | None, intact: list[int], beyond: list[int], places: list[int]
) -> None:
    found = assembled(rows, end)
    assert [entry.seq for entry in found.entries] == intact
    assert [entry.seq for entry in found.beyond] == beyond
    assert [damage.offset for damage in found.damage] == places
    assert found.evidence.blind_at == tuple(places)
    assert all(damage.reason for damage in found.damage)


def test_two_rows_that_hold_one_seq_are_damage() -> None:
    run, inside = rows_of(*codec.pack(chunks(0, 10))), rows_of(note(5))
    found = assembled([*run, *inside], 10)
    assert [codec.last_seq(entry) for entry in found.entries] == [9]
    assert [entry.seq for entry in found.beyond] == [5]
    assert found.damage[0].offset == 5


def test_calls_that_stand_beyond_damage_are_evidence() -> None:
    rows = rows_of(*turn_with_call(), call(5), note(6))
    found = assembled([*rows[:3], *rows[4:]], 7)
    assert "call-1" in found.evidence.named
    assert [entry.seq for entry in found.beyond] == [4, 5, 6]


@pytest.mark.parametrize("seq", range(3, 9))
def test_what_is_behind_a_seq_is_the_same_events(seq: int) -> None:
    entries = [note(2), *codec.pack(chunks(3, 4)), note(7)]
    assert lines_of(behind(entries, seq)) == [line for line in lines_of(entries) if codec.CORE.decode(line).seq >= seq]


def test_the_header_is_read_or_says_why_not() -> None:
    body = codec.encode(header())
    assert read_header(body, checksum(body)) == (header(), None, None)
    newer = body.replace(b'"format":1', b'"format":9')
    read, why, damage = read_header(newer, checksum(newer))
    assert read is not None
    assert why is not None
    assert "newer" in why
    assert damage is None
    for bad, crc in ((body, checksum(body) + 1), (b"{}", checksum(b"{}"))):
        assert read_header(bad, crc)[:2] == (None, None)
        assert isinstance(read_header(bad, crc)[2], Damage)
