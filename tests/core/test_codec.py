"""Bytes and back: any legal log survives, packed or not; what is not an event is refused by name, never skipped."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import HEADER, VOCABULARY, Weather, logs, moderate

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.core.codec import CORE, MAX_RUN, NotARecordError, Vocabulary, encode, expand, last_seq, pack, refusal


def chunk(seq, time=0, delta="x", **fields):
    return ev.AssistantChunk(seq, time, turn=1, step=1, delta=delta, **fields)


def unpacked(entries):
    return [event for entry in entries for event in expand(entry)]


# --- any legal log ----------------------------------------------------------------------------------------------


@moderate
@given(logs())
def test_every_event_comes_back_from_its_bytes(log):
    for event in log.entries:
        line = encode(event)
        assert b"\n" not in line
        assert VOCABULARY.decode(line) == event
        assert encode(VOCABULARY.decode(line)) == line


@moderate
@given(logs(), st.booleans())
def test_a_packed_log_expands_to_the_very_same_events(log, vouched):
    packed = list(pack(log.entries))
    lines = [encode(entry) for entry in packed]
    read = [VOCABULARY.decode(line, vouched=vouched) for line in lines]
    assert unpacked(packed) == log.entries
    assert unpacked(read) == log.entries
    assert [encode(entry) for entry in read] == lines
    assert [last_seq(entry) for entry in read] == [unpacked([entry])[-1].seq for entry in packed]


@moderate
@given(logs())
def test_packing_what_is_packed_changes_nothing(log):
    packed = list(pack(log.entries))
    assert list(pack(packed)) == packed


@moderate
@given(logs())
def test_every_line_is_a_flat_json_object_that_names_its_type_first(log):
    for entry in pack(log.entries):
        record = json.loads(encode(entry))
        assert list(record)[:3] == ["type", "seq", "time"]


@moderate
@given(logs(), st.data())
def test_a_torn_line_is_never_taken_for_an_event(log, data):
    for entry in pack(log.entries):
        line = encode(entry)
        cut = data.draw(st.integers(0, len(line) - 1))
        with pytest.raises(NotARecordError):
            VOCABULARY.decode(line[:cut])


def test_the_header_has_a_line_of_its_own():
    header = ev.Header("s1", 5, "/work", codec.FORMAT, parent="s0")
    assert msgspec.json.decode(encode(header), type=ev.Header) == header
    assert json.loads(encode(HEADER)) == {"type": "session", "session": "s1", "created": 0, "cwd": "/", "format": 1}


# --- runs -------------------------------------------------------------------------------------------------------


def test_a_run_keeps_ids_times_and_order_even_when_the_clock_steps_back():
    chunks = [chunk(7, 100, "a"), chunk(8, 90, "\u2028"), chunk(9, 250, "")]
    (run,) = pack(chunks)
    assert (run.seq, run.last_seq, run.time, run.last_time, run.n) == (7, 9, 100, 250, 3)
    assert list(expand(run)) == chunks


@pytest.mark.parametrize(
    "other",
    [
        chunk(1, kind="reasoning"),
        ev.AssistantChunk(1, 0, turn=1, step=2, delta="x"),
        ev.AssistantChunk(1, 0, turn=2, step=1, delta="x"),
        chunk(1, normalised=("/delta",)),
        chunk(1, ignorable=True),
        chunk(2),
    ],
    ids=["kind", "step", "turn", "normalised", "ignorable", "gap"],
)
def test_chunks_that_differ_in_more_than_text_and_time_share_no_run(other):
    assert list(pack([chunk(0), other])) == [chunk(0), other]


def test_a_run_has_an_end():
    chunks = [chunk(seq) for seq in range(2 * MAX_RUN + 1)]
    packed = list(pack(chunks))
    assert [entry.n for entry in packed[:2]] == [MAX_RUN, MAX_RUN]
    assert packed[2] == chunks[-1]


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"assistant/chunks","seq":0,"time":0,"n":3,"turn":1,"step":1,"kind":"text","dt":[0],"deltas":["a","b"]}',
        b'{"type":"assistant/chunks","seq":0,"time":0,"n":2,"turn":1,"step":1,"kind":"text","dt":[0],"deltas":["a"]}',
        b'{"type":"assistant/chunks","seq":0,"time":0,"n":2,"turn":1,"step":1,"kind":"text","dt":[],"deltas":["a","b"]}',
        b'{"type":"assistant/chunks","seq":0,"time":0,"n":0,"turn":1,"step":1,"kind":"text","dt":[],"deltas":[]}',
        b'{"type":"assistant/chunks","seq":0,"time":0,"n":2,"turn":1,"step":1,"kind":"text","dt":[0],"deltas":["a",1]}',
        b'{"type":"assistant/chunks","seq":0,"time":0,"n":2,"turn":1,"step":1,"kind":"text","dt":["a"],"deltas":["a","b"]}',
    ],
    ids=["n", "text", "times", "empty", "no text", "no time"],
)
def test_a_run_that_does_not_count_up_is_not_a_record(line):
    with pytest.raises(NotARecordError):
        CORE.decode(line)


# --- what is not known, and what is nothing at all --------------------------------------------------------------

UNKNOWN = b'{"type":"weather/sun","seq":4,"time":9,"n":1.50,"text":"\\u00e9"}'


def test_an_event_of_an_undeclared_type_is_kept_to_the_byte():
    event = CORE.decode(UNKNOWN)
    assert event == ev.UnknownEvent(4, 9, "weather/sun", UNKNOWN, ignorable=False)
    assert encode(event) == UNKNOWN
    assert list(expand(event)) == [event]


def test_a_log_with_one_is_not_continued_unless_the_event_says_that_it_may_be_stepped_over():
    ignorable = CORE.decode(UNKNOWN[:-1] + b',"ignorable":true}')
    assert refusal([chunk(0), ignorable]) is None
    assert refusal([chunk(0), CORE.decode(UNKNOWN)]) == (
        "the event type 'weather/sun' (seq 4) is not declared by any composed plugin"
    )


def test_a_vocabulary_that_declares_the_type_decodes_what_a_store_left_unknown():
    event = Weather(3, 9, degrees=20)
    unknown = CORE.decode(encode(event))
    assert isinstance(unknown, ev.UnknownEvent)
    assert VOCABULARY.know([chunk(2), unknown]) == [chunk(2), event]
    assert CORE.know([unknown]) == [unknown]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"\x00\x00\x00",
        b'{"type":"step/start","seq":0}',
        b'{"type":"step/start","seq":0,"time":0,"turn":"1","step":1}',
        b'{"type":"step/start","seq":0,"time":0,"turn":1,"step":1}{"type":"commit"}',
        b'{"type":"weather/sun","time":0}',
        b'{"type":"tool/note","seq":0,"time":0,"call_id":"c","text":"\xff"}',
        b'{"type":"weather/sun","seq":0,"time":0,"text":"\xff"}',
        b'{"type":"tool/note","seq":0,"time":0,"call_id":"c","text":"\\ud800"}',
        b'{"type":"tool/note","seq":0,"time":0,"call_id":"c","text":"a\nb"}',
    ],
)
def test_what_is_not_one_whole_event_is_refused(line):
    with pytest.raises(NotARecordError):
        CORE.decode(line)


def test_one_name_is_one_event_type():
    class Other(ev.Event, frozen=True, tag="test/weather"):
        pass

    with pytest.raises(ValueError, match="declared twice: test/weather"):
        Vocabulary([Weather, Other])


def test_a_vocabulary_knows_its_types_by_class_and_by_name():
    assert Weather in VOCABULARY
    assert Weather not in CORE
    assert VOCABULARY.declares("test/weather")
    assert not CORE.declares("test/weather")
    assert CORE.declares("assistant/chunks")
