"""Bytes of a log (the rows of that name): damage is decided, whole records are kept, and reading never raises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.core.log import Log
from fencepost.core.verdict import verdicts
from fencepost.stores.jsonl.frame import Framed, read_log
from tests.stores.sample import batch, call, header, lines_of, log_bytes, note, notes, turn_with_call

CLEAN = log_bytes(notes(0, 3), notes(3, 2), notes(5, 1))


def seqs(framed: Framed) -> list[int]:
    return [entry.seq for entry in framed.entries]


def verdict_on_call(framed: Framed) -> str:
    assert framed.header is not None
    log = Log(framed.header, lambda: 0, codec.CORE, framed.entries)
    return verdicts(log.fold, framed.evidence)[0].verdict


# --- whole logs -----------------------------------------------------------------------------------------------------


def test_a_clean_log() -> None:
    framed = read_log(CLEAN)
    assert framed.header == header()
    assert lines_of(framed.entries) == lines_of(notes(0, 6))
    assert (framed.damage, framed.torn, framed.missing, framed.evidence.blind_at) == ((), b"", False, ())


def test_every_line_is_one_json_object() -> None:
    types = [json.loads(line)["type"] for line in CLEAN.decode().split("\n")[:-1]]
    assert types == ["session", *["tool/note"] * 3, "commit", *["tool/note"] * 2, "commit", "tool/note", "commit"]


def test_unicode_line_separators_do_not_end_a_line() -> None:
    text = "a\u2028b\u2029c\u0085d\u000b\u000c\u001c"
    data = log_bytes([note(0, text)], [note(1)])
    assert "\u2028".encode() in data
    framed = read_log(data)
    assert framed.damage == ()
    assert lines_of(framed.entries) == lines_of([note(0, text), note(1)])


def test_a_run_of_chunks_is_checked_where_no_checksum_vouches_for_it() -> None:
    chunks = [ev.AssistantChunk(seq, seq, 1, 1, "word") for seq in range(1, 4)]
    run = codec.encode(next(codec.pack(chunks))).replace(b',"word"]', b"]") + b"\n"
    framed = read_log(log_bytes([note(0)]) + run)
    assert seqs(framed) == [0]
    assert framed.torn == run


# --- the end of a log -----------------------------------------------------------------------------------------------


def test_every_prefix_of_a_log_is_a_prefix_of_its_entries() -> None:
    first_line = CLEAN.index(b"\n")
    for cut in range(first_line, len(CLEAN) + 1):
        framed = read_log(CLEAN[:cut])
        assert framed.damage == ()
        assert lines_of(framed.entries) == lines_of(notes(0, 6))[: len(framed.entries)]
        assert len(framed.torn) < max(len(line) for line in CLEAN.split(b"\n"))
        last = CLEAN[:cut].rstrip(b"\n").split(b"\n")[-1]
        at_commit = b'"commit"' in last and last.endswith(b'"}')
        assert framed.missing is not at_commit
        assert framed.evidence.blind_at == (() if at_commit else (framed.next_seq,))


@pytest.mark.parametrize("cut", range(CLEAN.index(b"\n")))
def test_a_torn_header_is_damage(cut: int) -> None:
    framed = read_log(CLEAN[:cut])
    assert framed.header is None
    assert framed.damage[0].offset == 0
    assert framed.entries == []


def test_a_whole_record_without_its_newline_counts() -> None:
    data = log_bytes([note(0)]) + codec.encode(note(1))
    framed = read_log(data)
    assert seqs(framed) == [0, 1]
    assert framed.torn == b""
    assert framed.owes_newline
    assert framed.evidence.blind_at == (2,)


def test_a_last_commit_line_without_its_newline_counts() -> None:
    framed = read_log(CLEAN[:-1])
    assert seqs(framed) == list(range(6))
    assert framed.owes_newline
    assert not framed.missing


def test_torn_inside_a_character() -> None:
    whole = log_bytes([note(0)])
    torn = codec.encode(note(1, "☕☕"))
    at = torn.index("☕".encode()) + 2
    framed = read_log(whole + torn[:at])
    assert framed.damage == ()
    assert seqs(framed) == [0]
    assert framed.torn == torn[:at]


@pytest.mark.parametrize("cut", [0, 1, 20, 60])
def test_a_nul_run_at_the_end_is_tail(cut: int) -> None:
    record = codec.encode(note(6)) + b"\n"
    torn = record[:cut] + b"\0" * 700
    framed = read_log(CLEAN + torn)
    assert framed.damage == ()
    assert seqs(framed) == list(range(6))
    assert framed.torn == torn


def test_a_record_whose_newline_and_successors_became_nuls_counts() -> None:
    framed = read_log(CLEAN + codec.encode(note(6)) + b"\0" * 512)
    assert framed.damage == ()
    assert seqs(framed) == list(range(7))
    assert framed.torn == b"\0" * 512


def test_a_commit_line_whose_newline_became_nuls_counts() -> None:
    framed = read_log(CLEAN[:-1] + b"\0" * 512)
    assert framed.damage == ()
    assert seqs(framed) == list(range(6))
    assert framed.torn == b"\0" * 512


def test_a_torn_record_that_holds_what_looks_like_records_is_still_a_tail() -> None:
    inner = {"type": "tool/note", "seq": 6, "time": 1, "call_id": "c", "text": "t"}
    commit = {"type": "commit", "seq": 6, "crc": "00000000"}
    record = codec.encode(ev.ToolCall(6, 1, 1, 1, "c9", "x", {"a": inner, "b": commit, "c": 1}, "read"))
    for cut in range(1, len(record)):
        framed = read_log(CLEAN + record[:cut])
        assert framed.damage == (), record[:cut]
        assert framed.torn == record[:cut]


# --- damage ---------------------------------------------------------------------------------------------------------


def test_a_nul_run_in_the_middle_is_damage_and_both_sides_are_shown() -> None:
    at = CLEAN.index(codec.encode(note(3)))
    data = CLEAN[:at] + b"\0" * 40 + CLEAN[at + 40 :]
    framed = read_log(data)
    assert framed.damage[0].offset == at
    assert seqs(framed) == [0, 1, 2]
    assert [entry.seq for entry in framed.beyond] == [4, 5]
    assert framed.torn == b""
    assert framed.evidence.blind_at == (3,)


def test_whole_records_behind_a_bad_stretch_of_the_tail_are_never_cut() -> None:
    lost = b"\0" * 512
    later = codec.encode(note(7)) + b"\n"
    for data in (
        CLEAN + lost + b"\n" + later,
        CLEAN + lost + later,
        CLEAN + lost + later.rstrip(),
        CLEAN + codec.encode(note(6))[:30] + later,
        CLEAN + codec.encode(note(6))[:30] + b"\n" + later,
    ):
        framed = read_log(data)
        assert framed.damage
        assert framed.torn == b""
        assert seqs(framed) == list(range(6))
        assert [entry.seq for entry in framed.beyond] == [7]


def test_a_lost_block_in_the_last_batch_is_damage_because_its_commit_is_there() -> None:
    data = log_bytes([note(0)], notes(1, 40))
    at = data.index(codec.encode(note(10)))
    framed = read_log(data[:at] + b"\0" * 512 + data[at + 512 :])
    assert framed.damage[0].offset == at
    assert seqs(framed) == list(range(10))
    assert framed.evidence.blind_at == (10,)


def test_a_whole_record_out_of_order_is_not_a_torn_one() -> None:
    framed = read_log(CLEAN + codec.encode(note(5)) + b"\n")
    assert framed.damage[0].offset == len(CLEAN)
    assert "seq 5 where 6 is next" in framed.damage[0].reason


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (batch([note(0)]), "seq 0 where 6 is next"),
        (batch([note(7)]), "seq 7 where 6 is next"),
        (batch([note(6)]).replace(b"note 6", b"note 8"), "checksum"),
        (batch([note(6)]).replace(b'"seq":6,"crc"', b'"seq":7,"crc"'), "ends before seq 7"),
        (batch([note(6)]).replace(b'"call_id":"c6",', b""), "missing required field `call_id`"),
    ],
    ids=["repeated", "gap", "other text", "lying commit", "missing field"],
)
def test_a_committed_batch_that_is_not_whole_is_damage(wrong: bytes, reason: str) -> None:
    framed = read_log(CLEAN + wrong + batch([note(7)]))
    assert framed.damage[0].offset == len(CLEAN)
    assert seqs(framed) == list(range(6))
    assert reason in framed.damage[0].reason


def test_any_flipped_byte_leaves_a_prefix_or_is_called_damage() -> None:
    want = lines_of(notes(0, 6))
    start = CLEAN.index(b"\n") + 1
    for at in range(start, len(CLEAN)):
        for mask in (0x01, 0x20, 0x80, 0xFF):
            data = bytearray(CLEAN)
            data[at] ^= mask
            framed = read_log(bytes(data))
            have = lines_of(framed.entries)
            assert have == want[: len(have)], (at, mask)
            assert framed.damage or framed.missing, (at, mask)


def test_a_header_of_a_newer_form_is_refused_and_not_called_damaged() -> None:
    data = CLEAN.replace(b'"format":1', b'"format":99')
    framed = read_log(data)
    assert framed.refusal is not None
    assert "newer" in framed.refusal
    assert framed.damage == ()
    framed = read_log(b'{"type":"session","format":99,"other":"form"}\nanything\n')
    assert framed.header is None
    assert framed.refusal is not None


def test_a_log_that_begins_with_something_else() -> None:
    for data in (b"", b"\n", b"[]\n", b"not json\n" + CLEAN, b"\0" * 4096, CLEAN[CLEAN.index(b"\n") + 1 :]):
        framed = read_log(data)
        assert framed.header is None
        assert framed.damage[0].offset == 0
        assert framed.entries == []


# --- evidence -------------------------------------------------------------------------------------------------------


def test_a_torn_tail_that_names_a_call_is_no_proof_that_it_did_not_start() -> None:
    data = log_bytes(turn_with_call())
    assert verdict_on_call(read_log(data)) == "not_started"
    torn = codec.encode(call(5))
    for cut in range(1, len(torn)):
        framed = read_log(data + torn[:cut])
        assert verdict_on_call(framed) == "outcome_unknown"
    named = read_log(data + torn[:-3]).evidence.named
    assert named == {"call-1"}


def test_a_missing_commit_line_is_a_loss_too() -> None:
    data = log_bytes(turn_with_call()[:4]) + codec.encode(turn_with_call()[4]) + b"\n"
    framed = read_log(data)
    assert len(framed.entries) == 5
    assert framed.torn == b""
    assert verdict_on_call(framed) == "outcome_unknown"


def test_a_call_beyond_damage_is_not_called_unstarted() -> None:
    data = log_bytes(turn_with_call(), [call(5)], notes(6, 2))
    at = data.index(b'{"type":"tool/call"')
    framed = read_log(data[:at] + b"\0" + data[at + 1 :])
    assert len(framed.entries) == 5
    assert "call-1" in framed.evidence.named
    assert verdict_on_call(framed) == "outcome_unknown"


# --- anything at all ------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        *CLEAN.split(b"\n"),
        b"\n",
        b"\0" * 9,
        b"\xff",
        b"{",
        b'{"type":"',
        *map(codec.encode, notes(0, 8)),
        batch([note(6)]),
    ]
)


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.binary(max_size=200), st.lists(PIECES, max_size=14).map(b"\n".join), st.lists(PIECES).map(b"".join))
)
def test_no_bytes_make_it_raise(rest: bytes) -> None:
    for data in (rest, CLEAN + rest, CLEAN[:-20] + rest):
        framed = read_log(data)
        assert seqs(framed) == list(range(framed.next_seq))
        assert not (framed.damage and framed.torn)
        assert data.endswith(framed.torn)
