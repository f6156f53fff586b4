"""What no store could carry is replaced once and named; what merely looks like it stays as it is."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import NASTY, VOCABULARY, Weather, logs, moderate, objects, texts, values

from fencepost.core import events as ev
from fencepost.core.codec import CORE, encode
from fencepost.core.normalise import clean_json, clean_text, make
from fencepost.errors import IllegalEventError


def made(cls, **fields):
    return make(cls, 0, 0, fields)


def note(text):
    return made(ev.ToolNote, call_id="c", text=text)


def call(arguments):
    return made(ev.ToolCall, turn=1, step=1, call_id="c", name="f", arguments=arguments, effect="read")


# --- text -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "becomes"),
    [
        ("\ud800", "\ufffd"),
        (chr(0xDFFF), "\ufffd"),
        ("a\udfffb", "a\ufffdb"),
        ("\udc00\ud800", "\ufffd\ufffd"),
        ("\ud800\ud800\udc00", "\ufffd\U00010000"),
        ("\ud83d\ude00", "😀"),
    ],
)
def test_lone_surrogates_are_replaced_and_pairs_are_joined(text, becomes):
    event, encoded = note(text)
    assert event.text == becomes
    assert event.normalised == ("/text",)
    assert CORE.decode(encoded) == event


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\\ud800",
        "\\u0000",
        "\x00",
        "a\x00b",
        "\u2028\u2029\x85",
        "\r\n\t\x1b[0m\x7f",
        "\ufffd",
        "\ufeff",
        "é😀",
        "NaN",
    ],
)
def test_all_other_text_stays_untouched(text):
    event, encoded = note(text)
    assert event.text == text
    assert event.normalised == ()
    assert CORE.decode(encoded) == event
    assert b"\n" not in encoded
    assert json.loads(encoded)["text"] == text


@given(st.text(st.characters()))
def test_clean_text_is_clean_and_cleaning_it_again_changes_nothing(text):
    once = clean_text(text)
    once.encode()
    assert clean_text(once) == once


def test_text_inside_blocks_is_found_and_named_by_where_it_stands():
    content = (
        ev.Text("fine"),
        ev.Reasoning("\ud800", opaque={"k": ["\udfff"]}),
        ev.CallRequest("c", "f", '{"a":"\ud800"}'),
    )
    event, encoded = made(ev.AssistantMessage, turn=1, step=1, message_id="m", content=content, finish="stop")
    assert event.normalised == ("/content/1/opaque/k/0", "/content/1/text", "/content/2/arguments")
    assert event.content[0] == ev.Text("fine")
    assert event.content[2].arguments == '{"a":"\ufffd"}'
    assert CORE.decode(encoded) == event


# --- numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "becomes"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")])
def test_numbers_that_json_has_no_word_for_become_text_and_are_named(number, becomes):
    event, encoded = call({"a": [1, {"b/c~d": number}]})
    assert event.arguments == {"a": [1, {"b/c~d": becomes}]}
    assert event.normalised == ("/arguments/a/1/b~1c~0d",)
    assert CORE.decode(encoded) == event


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_the_same_holds_for_what_belongs_to_the_provider(number):
    """The encoder writes NaN as null without a word, so the bytes alone would not show it."""
    event, encoded = made(
        ev.AssistantMessage,
        turn=1,
        step=1,
        message_id="m",
        content=(ev.Reasoning("x", opaque=number),),
        finish="stop",
    )
    assert event.normalised == ("/content/0/opaque",)
    assert CORE.decode(encoded) == event


@pytest.mark.parametrize(
    "number", [0, -1, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**40, 0.0, 1.0, -0.5, 5e-324, 1.7e308]
)
def test_all_other_numbers_stay_what_they_are(number):
    event, encoded = call({"a": number})
    assert event.arguments == {"a": number}
    assert type(event.arguments["a"]) is type(number)
    assert event.normalised == ()
    assert CORE.decode(encoded) == event


def test_minus_zero_keeps_its_sign():
    event, encoded = call({"a": -0.0})
    assert math.copysign(1, event.arguments["a"]) == -1
    assert math.copysign(1, CORE.decode(encoded).arguments["a"]) == -1


# --- keys -------------------------------------------------------------------------------------------------------


def test_a_key_is_cleaned_and_named():
    event, _ = call({"\ud800": 1})
    assert event.arguments == {"\ufffd": 1}
    assert event.normalised == ("/arguments/\ufffd",)


def test_two_keys_never_become_one():
    event, _ = call({chr(0xD800): 1, chr(0xD801): 2, "\N{REPLACEMENT CHARACTER}": 3})
    assert sorted(event.arguments.values()) == [1, 2, 3]
    assert event.arguments["\ufffd"] == 3
    assert len(event.normalised) == 2


# --- what is not JSON -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [b"bytes", bytearray(b"x"), memoryview(b"x"), object(), {1: "a"}, {None: 1}, 1j, len])
@pytest.mark.parametrize("wrap", [lambda value: value, lambda value: [value], lambda value: {"k": value}])
def test_what_is_not_json_at_all_is_refused(value, wrap):
    with pytest.raises(IllegalEventError, match="tool/call"):
        call({"a": wrap(value)})


def test_json_without_a_bottom_is_refused():
    loop = []
    loop.append(loop)
    with pytest.raises(IllegalEventError, match="tool/call"):
        call({"a": loop})


def test_tuples_are_lists():
    event, _ = call({"a": (1, (2, "\ud800"))})
    assert event.arguments == {"a": [1, [2, "\ufffd"]]}


def test_a_list_of_blocks_becomes_the_tuple_that_a_reader_gets():
    event, encoded = made(ev.InputQueued, input_id="i", target="turn", content=[ev.Text("a")])
    assert event.content == (ev.Text("a"),)
    assert CORE.decode(encoded) == event


# --- any value --------------------------------------------------------------------------------------------------


@moderate
@given(objects)
def test_what_is_made_comes_back_from_any_reader_of_json(arguments):
    event, encoded = call(arguments)
    assert CORE.decode(encoded) == event
    assert encode(event) == encoded
    assert json.loads(encoded)["arguments"] == event.arguments


@moderate
@given(objects)
def test_normalising_twice_is_normalising_once(arguments):
    event, _ = call(arguments)
    again, _ = call(event.arguments)
    assert again.arguments == event.arguments
    assert again.normalised == ()


@moderate
@given(values)
def test_what_is_clean_is_not_touched(value):
    found = []
    cleaned = clean_json(value, "", found)
    assert found or cleaned == value


@moderate
@given(texts, objects)
def test_events_of_plugins_are_normalised_like_ours(text, station):
    event, encoded = made(Weather, degrees=1, station={text: station})
    assert VOCABULARY.decode(encoded) == event


@moderate
@given(logs())
def test_no_event_of_a_log_holds_what_was_normalised_away(log):
    for event in log.entries:
        json.dumps(json.loads(encode(event)), ensure_ascii=False, allow_nan=False).encode()


def test_the_sample_of_nasty_texts_is_as_nasty_as_it_claims():
    assert {note(text)[0].normalised for text in NASTY} == {(), ("/text",)}
