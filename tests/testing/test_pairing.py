"""The strict reading of a transcript: one row for each thing that some provider refuses."""

import pytest

from fencepost.testing import pairing_problem

USER = {"role": "user", "content": "hi"}


def asks(*ids, **function):
    made = {"name": "look", "arguments": "{}", **function}
    calls = [{"id": call_id, "type": "function", "function": made} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id, content="done"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": "hello"}, USER],
        [USER, asks("a", "b"), result("b"), result("a"), asks("c"), result("c", ""), USER],
    ],
)
def test_a_sound_transcript_passes(messages):
    assert pairing_problem(messages) is None


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([USER, asks("a")], "the calls a have no result"),
        ([USER, asks("a", "b"), result("a")], "the calls b have no result"),
        ([USER, asks("a"), USER], "messages[2]: user where the calls a still have no result"),
        ([USER, asks("a"), asks("b")], "messages[2]: assistant where the calls a"),
        ([USER, result("a")], "messages[1]: a result for 'a'"),
        ([USER, asks("a"), result("a"), result("a")], "messages[3]: a result for 'a'"),
        ([USER, asks("a"), result("b")], "messages[2]: a result for 'b'"),
        ([USER, asks("a"), result("a", None)], "has no text"),
        ([USER, asks("a", "a")], "the id 'a' is used twice"),
        ([USER, asks("a"), result("a"), asks("a")], "the id 'a' is used twice"),
        ([USER, asks("")], "a call with the id ''"),
        ([USER, asks("x" * 41)], "a call with the id"),
        ([USER, asks("a", name="")], "which is no name"),
        ([USER, asks("a", name="fs.read")], "which is no name"),
        ([USER, asks("a", arguments="[1]")], "no JSON object"),
        ([USER, asks("a", arguments='{"a":')], "no JSON object"),
        ([USER, asks("a", arguments={})], "no JSON object"),
        ([USER, {"role": "assistant", "content": " "}], "an empty assistant message"),
        ([USER, {"role": "assistant", "content": None}], "an empty assistant message"),
        ([USER, {"role": "assistant", "content": "x", "tool_calls": []}], "an empty list"),
        ([{"role": "user", "content": ""}], "an empty user message"),
        ([{"role": "robot", "content": "x"}], "no such role"),
    ],
)
def test_what_a_strict_provider_refuses(messages, says):
    assert says in pairing_problem(messages)
