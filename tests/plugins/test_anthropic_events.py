"""Anthropic's messages, coming in: events to deltas, thinking sealed where it is kept to the letter."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.core import events as ev
from fencepost.errors import ModelError
from fencepost.plugins.anthropic_events import MessageReader
from fencepost.runtime.answer import Assembler
from fencepost.runtime.models import CallDelta, Finished, ReasoningDelta, ReasoningEnd, TextDelta, UsageDelta

STOP = {"type": "message_stop"}


def begin(index, **block):
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index, **fields):
    return {"type": "content_block_delta", "index": index, "delta": fields}


def end(index):
    return {"type": "content_block_stop", "index": index}


def reason(word, **usage):
    return {"type": "message_delta", "delta": {"stop_reason": word}, **({"usage": usage} if usage else {})}


def thinking(index, *words, signature="sig"):
    pieces = [delta(index, type="thinking_delta", thinking=word) for word in words]
    sealed = [delta(index, type="signature_delta", signature=signature)] if signature else []
    return [begin(index, type="thinking", thinking="", signature=""), *pieces, *sealed, end(index)]


def text(index, words):
    return [begin(index, type="text", text=""), delta(index, type="text_delta", text=words), end(index)]


def read(*events):
    reader = MessageReader("m")
    deltas = [one for event in events for one in reader.read(event)]
    return [*deltas, *reader.end()]


def blocks(*events):
    numbers = iter(range(1, 100))
    assembler = Assembler(lambda: f"c{next(numbers)}")
    for one in read(*events):
        assembler.feed(one)
    return assembler.blocks("tool_calls")


def sealed(**fields):
    return {"provider": "anthropic", "model": "m", **fields}


def test_an_answer_of_every_kind_of_block():
    calls = [begin(3, type="tool_use", id="t1", name="look", input={})]
    calls += [delta(3, type="input_json_delta", partial_json=piece) for piece in ("", '{"a":', " 1}")]
    assert blocks(
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        *thinking(0, "I ", "think"),
        {"type": "ping"},
        *[begin(1, type="redacted_thinking", data="d"), end(1)],
        *text(2, "I look."),
        *[*calls, end(3)],
        *[reason("tool_use"), STOP],
    ) == (
        ev.Reasoning("I think", sealed(signature="sig")),
        ev.Reasoning("", sealed(data="d")),
        ev.Text("I look."),
        ev.CallRequest("c1", "look", '{"a": 1}', "t1"),
    )


def test_blocks_of_thinking_in_a_row_stay_apart():
    assert blocks(
        *thinking(0, "a", signature="s1"), *thinking(1, "b", signature="s2"), *thinking(2, signature="s3")
    ) == (
        ev.Reasoning("a", sealed(signature="s1")),
        ev.Reasoning("b", sealed(signature="s2")),
        ev.Reasoning("", sealed(signature="s3")),
    )


@pytest.mark.parametrize(
    "events",
    [
        thinking(0, "a", signature=""),
        thinking(0, "a", "\ud83d", "\ude00"),
        thinking(0, "a", signature="s\ud83d"),
        thinking(0, "a")[:-1],
    ],
)
def test_thinking_that_cannot_be_kept_to_the_letter_is_not_sealed(events):
    """Two halves of a character in two pieces would be joined when they are stored."""
    [block] = blocks(*events)
    assert block.text.startswith("a")
    assert block.opaque is None


def test_a_signature_that_comes_in_pieces_or_at_once():
    pieces = [delta(0, type="signature_delta", signature="s1"), delta(0, type="signature_delta", signature="s2")]
    assert read(begin(0, type="thinking", thinking="a", signature=""), *pieces, end(0)) == [
        ReasoningDelta("a"),
        ReasoningEnd(sealed(signature="s1s2")),
    ]
    assert read(begin(0, type="thinking", thinking="a", signature="s"), end(0))[1] == ReasoningEnd(
        sealed(signature="s")
    )


def test_a_call_whose_input_comes_with_its_beginning():
    begins = begin(1, type="tool_use", id="t", name="f", input={"a": "ä"})
    assert read(begins, end(1)) == [CallDelta(1, "t", "f"), CallDelta(1, arguments='{"a": "ä"}')]
    streamed = [begins, delta(1, type="input_json_delta", partial_json="{}"), end(1)]
    assert read(*streamed) == [CallDelta(1, "t", "f"), CallDelta(1, arguments="{}")]


@pytest.mark.parametrize(
    ("word", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "max_tokens"),
        ("model_context_window_exceeded", "max_tokens"),
        ("pause_turn", "max_tokens"),
        ("refusal", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_stop_reasons(word, finish):
    assert read(*text(0, "x"), reason(word), STOP)[-1] == Finished(finish)


def test_a_refusal_and_an_end_need_no_words():
    assert read(reason("refusal"), STOP) == [Finished("content_filter")]
    assert read(reason("end_turn"), STOP) == [Finished("stop")]


@pytest.mark.parametrize("events", [[STOP], [reason("something_new"), STOP]])
def test_an_end_without_words_for_no_known_reason_is_no_answer(events):
    with pytest.raises(ModelError) as caught:
        read(*events)
    assert (caught.value.code, caught.value.retryable) == ("PROVIDER_ERROR", True)


@pytest.mark.parametrize("events", [[], text(0, "x"), [*text(0, "x"), reason("end_turn")], [{"type": "ping"}]])
def test_a_stream_without_its_end_marker_has_no_end(events):
    reader = MessageReader("m")
    for event in events:
        reader.read(event)
    assert (reader.complete, reader.end()) == (False, [])


def test_token_counts_add_up_and_what_is_left_out_stays():
    begins = {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000}
    counted = read(
        {"type": "message_start", "message": {"usage": {**begins, "output_tokens": 1}}},
        reason("end_turn", output_tokens=50, input_tokens=None, output_tokens_details={"thinking_tokens": 40}),
    )
    assert counted == [UsageDelta(ev.Usage(3210, 1, 3000)), UsageDelta(ev.Usage(3210, 50, 3000, 40))]


def test_kinds_that_are_not_known_are_passed_over():
    assert read(
        {"type": "something_new"},
        *[begin(0, type="server_tool_use", id="s"), delta(0, type="input_json_delta", partial_json="{}"), end(0)],
        *[begin(1, type="text", text="x"), delta(1, type="citations_delta", citation={}), end(1)],
    ) == [TextDelta("x")]


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        "x",
        {"type": "message_start", "message": "x"},
        {"type": "message_delta", "delta": None},
        reason(3),
        begin(0, type=3),
        begin("0", type="text"),
        begin(0, type="text", text=3),
        begin(0, type="tool_use", id=3),
        {"type": "content_block_start", "index": 0},
        delta(0, type="text_delta", text="x"),
        end(0),
    ],
)
def test_events_without_the_form_are_refused_by_name(event):
    with pytest.raises(ModelError) as caught:
        read(event)
    assert (caught.value.code, caught.value.retryable) == ("MALFORMED_STREAM", True)
    assert "Anthropic messages form" in str(caught.value)


def test_a_block_that_begins_inside_another_one():
    with pytest.raises(ModelError, match="block 1 begins where another one is open"):
        read(begin(0, type="text"), begin(1, type="text"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["message", "usage", "content_block", "delta", "text", "thinking", "signature", "input"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
KINDS = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]
BLOCK = st.fixed_dictionaries({"type": st.sampled_from(["text", "thinking", "tool_use", "redacted_thinking"])})
EVENTS = JSON | st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS), "index": st.integers(0, 1)},
    optional={"content_block": BLOCK | JSON, "delta": JSON, "message": JSON, "usage": JSON},
)


@given(st.lists(EVENTS, max_size=4))
@example([begin(0, type="tool_use", input=[1])])
def test_no_event_makes_the_reader_fail_otherwise(events):
    with contextlib.suppress(ModelError):
        read(*events)
