"""Blocks: one that is taken reads as its lines do, and what is out of the ordinary anywhere in it is still named."""

from __future__ import annotations

import zlib

from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.stores.jsonl.blocks import BLOCK
from fencepost.stores.jsonl.frame import Framed, _Reading, read_log
from tests.stores.sample import header, lines_of, log_bytes, note, notes

TEXT = "Three gates, one log. " * 20
BATCHES = 200


def chunks(first: int, count: int) -> list[ev.Entry]:
    return list(codec.pack([ev.AssistantChunk(first + n, 5 * n, 1, 1, f" word {n}") for n in range(count)]))


def batches() -> list[list[ev.Entry]]:
    """Batches of one note and a run of chunks, enough for several blocks."""
    return [[note(5 * number, TEXT), *chunks(5 * number + 1, 4)] for number in range(BATCHES)]


def joined(lines_of_batches: list[list[bytes]], last_seqs: list[int]) -> bytes:
    """A log of any lines at all, each batch with a commit line that fits it."""
    out = codec.encode(header()) + b"\n"
    covered = out
    for lines, seq in zip(lines_of_batches, last_seqs, strict=True):
        body = b"".join(line + b"\n" for line in lines)
        crc = zlib.crc32(covered + body)
        out += body + b'{"type":"commit","seq":%d,"crc":"%08x"}\n' % (seq, crc)
        covered = b""
    return out


def log() -> bytes:
    made = batches()
    return joined(
        [[codec.encode(entry) for entry in entries] for entries in made],
        [codec.last_seq(entries[-1]) for entries in made],
    )


LOG = log()


def line_by_line(data: bytes) -> Framed:
    """The same reading, with every block refused."""
    reading = _Reading(data, codec.CORE)
    reading.read_block = lambda *_: None
    return reading.result()


def said(framed: Framed) -> tuple[object, ...]:
    """All that a reading says, in values that can be compared."""
    return (
        [codec.encode(entry) for entry in framed.entries],
        [codec.encode(entry) for entry in framed.beyond],
        framed.next_seq,
        framed.damage,
        framed.torn,
        framed.missing,
        framed.owes_newline,
        framed.crc,
        framed.evidence,
        framed.refusal,
    )


def test_a_log_of_several_blocks_is_whole() -> None:
    assert len(LOG) > 2 * BLOCK
    framed = read_log(LOG)
    assert framed.damage == ()
    assert framed.torn == b""
    assert lines_of(framed.entries) == lines_of(entry for entries in batches() for entry in entries)


def test_a_batch_that_is_longer_than_a_block() -> None:
    framed = read_log(log_bytes(notes(0, 1), notes(1, 2000, TEXT), notes(2001, 1)))
    assert framed.damage == ()
    assert framed.next_seq == 2002


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(LOG) - 1), st.binary(max_size=3), st.integers(0, 40))
def test_after_any_damage_a_block_says_what_its_lines_say(at: int, put: bytes, cut: int) -> None:
    data = LOG[:at] + put + LOG[at + cut :]
    assert said(read_log(data)) == said(line_by_line(data))


ODD_LINES = {
    "blank": b"",
    "spaces": b"  ",
    "two in one": codec.encode(note(600)) + b" " + codec.encode(note(601)),
    "a plugin's": b'{"type":"weather","seq":600,"time":1,"ignorable":true}',
    "no event": b'{"kind":"note"}',
    "a loose commit line": b'{"type":"commit","seq":599,"crc":"xyz"}',
    "an early commit line": b'{"type":"commit","seq":599,"crc":"00000000"}',
    "a seq too far": codec.encode(note(601)),
    "the seq before": codec.encode(note(599)),
    "not UTF-8": codec.encode(note(600, "x")).replace(b'"x"', b'"\xff"'),
    "a number": b"600",
    "nothing but a bracket": b"{",
}


@settings(deadline=None)
@given(st.sampled_from(sorted(ODD_LINES)), st.integers(0, 2))
def test_a_line_that_no_writer_writes_is_judged_alike_though_a_checksum_vouches_for_it(name: str, place: int) -> None:
    made = batches()
    lines = [[codec.encode(entry) for entry in entries] for entries in made]
    lines[120].insert(place, ODD_LINES[name])
    data = joined(lines, [codec.last_seq(entries[-1]) for entries in made])
    assert said(read_log(data)) == said(line_by_line(data))


def test_a_commit_line_that_names_another_seq_is_found_in_a_block() -> None:
    lines = [[codec.encode(note(seq, TEXT))] for seq in range(600)]
    data = joined(lines, [*range(400), 999, *range(401, 600)])
    assert (read_log(data).next_seq, len(read_log(data).damage)) == (400, 1)
    assert said(read_log(data)) == said(line_by_line(data))


def test_two_lines_that_changed_places_are_found_in_a_block() -> None:
    lines = [[codec.encode(note(seq, TEXT)) for seq in (2 * number, 2 * number + 1)] for number in range(300)]
    lines[200].reverse()
    data = joined(lines, [2 * number + 1 for number in range(300)])
    assert (read_log(data).next_seq, len(read_log(data).damage)) == (400, 1)
    assert said(read_log(data)) == said(line_by_line(data))


def test_events_of_plugins_among_the_blocks_are_kept_to_the_byte() -> None:
    odd = b'{"type":"weather","seq":600,"time":1,"degrees":21.50,"ignorable":true}'
    lines = [[codec.encode(note(seq, TEXT))] for seq in range(600)]
    lines.append([odd])
    lines += [[codec.encode(note(seq, TEXT))] for seq in range(601, 900)]
    framed = read_log(joined(lines, list(range(900))))
    assert framed.damage == ()
    assert [codec.encode(entry) for entry in framed.entries] == [line for group in lines for line in group]
