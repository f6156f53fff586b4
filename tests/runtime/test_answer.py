"""From deltas to one answer: each odd shape of a streamed call that providers are known for is a row here."""

import itertools
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.core.events import CallRequest, Reasoning, Text, Usage
from fencepost.runtime.answer import MAX_DEPTH, Assembler, parse_arguments
from fencepost.runtime.models import CallDelta, Finished, ReasoningDelta, ReasoningEnd, TextDelta, UsageDelta


def assembled(*deltas):
    numbers = itertools.count(1)
    assembler = Assembler(lambda: f"c{next(numbers)}")
    for delta in deltas:
        assembler.feed(delta)
    return assembler


def calls(*deltas):
    return assembled(*deltas).blocks("tool_calls")


WHOLE = '{"a":1}'

SHAPES = {
    "the form by the letter": (
        [CallDelta(0, "x", "f"), CallDelta(0, arguments='{"a"'), CallDelta(0, arguments=":1}")],
        [("f", "x", WHOLE)],
    ),
    "two calls, two indexes, interleaved": (
        [CallDelta(0, "x", "f"), CallDelta(1, "y", "g"), CallDelta(0, arguments="{}"), CallDelta(1, arguments=WHOLE)],
        [("f", "x", "{}"), ("g", "y", WHOLE)],
    ),
    "arguments in one piece": ([CallDelta(0, "x", "f", WHOLE)], [("f", "x", WHOLE)]),
    "every call has index 0, each with an id": (
        [CallDelta(0, "x", "f", WHOLE), CallDelta(0, "y", "f", "{}")],
        [("f", "x", WHOLE), ("f", "y", "{}")],
    ),
    "every call has index 0 and no id": (
        [CallDelta(0, "", "f", WHOLE), CallDelta(0, "", "f", "{}"), CallDelta(0, "", "g", "{}")],
        [("f", "", WHOLE), ("f", "", "{}"), ("g", "", "{}")],
    ),
    "every call has index 0 and one constant id": (
        [CallDelta(0, "x", "f", WHOLE), CallDelta(0, "x", "f", "{}")],
        [("f", "x", WHOLE), ("f", "x", "{}")],
    ),
    "calls without arguments on one index": (
        [CallDelta(0, "", "f"), CallDelta(0, "", "g")],
        [("f", "", ""), ("g", "", "")],
    ),
    "one id for calls on two indexes": (
        [CallDelta(0, "x", "f", "{}"), CallDelta(1, "x", "f", "{}")],
        [("f", "x", "{}"), ("f", "x", "{}")],
    ),
    "the id again in every piece": (
        [CallDelta(0, "x", "f"), CallDelta(0, "x", "", '{"a"'), CallDelta(0, "x", "", ":1}")],
        [("f", "x", WHOLE)],
    ),
    "id and name again in every piece": (
        [CallDelta(0, "x", "f"), CallDelta(0, "x", "f", '{"a"'), CallDelta(0, "x", "f", ":1}")],
        [("f", "x", WHOLE)],
    ),
    "another id in every piece, the name once": (
        [CallDelta(0, "x", "f"), CallDelta(0, "y", "", '{"a"'), CallDelta(0, "z", "", ":1}")],
        [("f", "x", WHOLE)],
    ),
    "the id comes late": ([CallDelta(0, "", "f", '{"a"'), CallDelta(0, "x", "", ":1}")], [("f", "x", WHOLE)]),
    "the name comes late": ([CallDelta(0, "x", "", WHOLE), CallDelta(0, "", "f")], [("f", "x", WHOLE)]),
    "no name at all": ([CallDelta(0, "x", "", WHOLE)], [("", "x", WHOLE)]),
    "empty pieces around it": (
        [CallDelta(0, "", "", ""), CallDelta(0, "x", "f", "{}"), CallDelta(0, "", "", ""), CallDelta(1, "", "", "")],
        [("f", "x", "{}")],
    ),
    "arguments that are no JSON": (
        [CallDelta(0, "x", "f", "{a: 1"), CallDelta(0, "", "", "}")],
        [("f", "x", "{a: 1}")],
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_known_shapes_of_streamed_calls_give_the_calls_that_were_meant(shape):
    deltas, meant = SHAPES[shape]
    assert [(call.name, call.provider_id, call.arguments) for call in calls(*deltas)] == meant


def test_each_call_gets_an_id_of_ours():
    first, second = calls(CallDelta(0, "same", "f", "{}"), CallDelta(1, "same", "f", "{}"))
    assert (first.call_id, second.call_id) == ("c1", "c2")


def test_blocks_stand_in_the_order_of_their_first_piece():
    answer = assembled(
        ReasoningDelta("so "),
        ReasoningDelta("then"),
        TextDelta("I "),
        TextDelta("look"),
        CallDelta(0, "x", "f"),
        CallDelta(0, "", "", "{}"),
        TextDelta(""),
        ReasoningDelta("and "),
        TextDelta("more"),
        UsageDelta(Usage(1, 1)),
        UsageDelta(Usage(2, 3)),
        Finished("tool_calls"),
    )
    assert answer.blocks("tool_calls") == (
        Reasoning("so then"),
        Text("I look"),
        CallRequest("c1", "f", "{}", "x"),
        Reasoning("and "),
        Text("more"),
    )
    assert (answer.usage, answer.finish) == (Usage(2, 3), "tool_calls")


@pytest.mark.parametrize("finish", ["max_tokens", "content_filter", "truncated", "cancelled"])
def test_an_answer_that_was_cut_asks_for_no_calls(finish):
    answer = assembled(TextDelta("I will"), CallDelta(0, "x", "f", '{"a'))
    assert answer.blocks(finish) == (Text("I will"),)


@pytest.mark.parametrize("finish", ["stop", "tool_calls"])
def test_calls_count_though_the_provider_says_stop(finish):
    assert calls(CallDelta(0, "x", "f", "{}")) == assembled(CallDelta(0, "x", "f", "{}")).blocks(finish)


def test_what_a_person_saw_is_text_and_reasoning_and_no_half_call():
    assert assembled(ReasoningDelta("hm"), TextDelta("I "), CallDelta(0, "x", "f", "{")).visible() == (
        Reasoning("hm"),
        Text("I "),
    )


@pytest.mark.parametrize("deltas", [(), (TextDelta(" \n"),), (CallDelta(0, "x", "f", "{}"),)])
def test_nothing_was_seen_where_nothing_can_be_seen(deltas):
    assert assembled(*deltas).visible() == ()


@given(st.lists(st.tuples(st.text(min_size=1), st.text(min_size=1), st.text()), max_size=4), st.data())
def test_however_a_call_is_cut_into_pieces_its_arguments_are_the_same_text(meant, data):
    deltas = []
    for index, (provider_id, name, arguments) in enumerate(meant):
        deltas.append(CallDelta(index, provider_id, name))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
        pieces = [arguments[a:b] for a, b in itertools.pairwise([0, *cuts, len(arguments)])]
        deltas.extend(CallDelta(index, arguments=piece) for piece in pieces)
    assert [(call.provider_id, call.name, call.arguments) for call in calls(*deltas)] == meant


# --- arguments --------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.booleans())
def test_every_json_object_is_read_as_it_is(value, ascii_only):
    assert parse_arguments(json.dumps(value, ensure_ascii=ascii_only)) == value


@given(st.text())
@example("[" * 100_000)
@example('{"a":' * 100_000)
@example('{"a":' + "9" * 5_000 + "}")
@example('{"a": 1e999}')
def test_any_text_is_an_object_or_one_sentence(text):
    read = parse_arguments(text)
    assert isinstance(read, dict) or (isinstance(read, str) and 0 < len(read) < 300 and not read.endswith("."))


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_no_text_means_no_arguments(text):
    assert parse_arguments(text) == {}


def test_halves_of_a_surrogate_pair_pass():
    assert parse_arguments('{"a": "\\ud83d"}') == {"a": "\ud83d"}


def test_blocks_of_thinking_stay_apart_each_with_what_the_provider_wants_back():
    deltas = [
        *(ReasoningDelta("a"), ReasoningDelta("b"), ReasoningEnd({"sign": 1})),
        *(ReasoningDelta("c"), ReasoningEnd()),
        ReasoningEnd({"hidden": 2}),
        *(ReasoningDelta("d"), TextDelta("I look."), CallDelta(0, "x", "f", "{}")),
    ]
    assert calls(*deltas) == (
        Reasoning("ab", {"sign": 1}),
        Reasoning("c"),
        Reasoning("", {"hidden": 2}),
        Reasoning("d"),
        Text("I look."),
        CallRequest("c1", "f", "{}", "x"),
    )


def test_an_end_of_thinking_that_never_began_says_nothing():
    assert calls(ReasoningEnd(), TextDelta("a"), ReasoningEnd()) == (Text("a"),)


def test_nobody_has_seen_a_block_without_words():
    assert assembled(ReasoningEnd({"hidden": 1})).visible() == ()
    assert assembled(ReasoningEnd({"hidden": 1}), TextDelta("a")).visible() == (Text("a"),)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"path": "a', "at character 10 of 11"),
        ('{"a": 1} x', "Extra data at character 10 of 10"),
        ("{'a': 1}", "at character 2 of 8"),
        ('{"a": "x\ny"}', "Invalid control character at character 9"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": -Infinity}', "-Infinity is not JSON"),
        ('{"a": 1e400}', "the number 1e400 is out of range"),
        ('{"a": ' + "1" * 400 + "}", "a number of 400 digits is out of range"),
        ('{"path": "a", "path": "b"}', 'the key "path" stands twice'),
        ('{"a": {"b": 1, "b": 1}}', 'the key "b" stands twice'),
        ("[1]", "an array where an object is needed"),
        ('"{}"', "a string where an object is needed"),
        ("12", "a number where an object is needed"),
        ("1.5", "a number where an object is needed"),
        ("true", "true or false where an object is needed"),
        ("null", "null where an object is needed"),
        ('{"a":' * 101 + "1" + "}" * 101, "nested deeper than 100 levels"),
    ],
)
def test_what_is_no_json_object_is_refused_in_one_sentence(text, says):
    assert says in parse_arguments(text)


def test_the_deepest_nesting_that_is_taken():
    assert isinstance(parse_arguments('{"a":' * MAX_DEPTH + "1" + "}" * MAX_DEPTH), dict)
