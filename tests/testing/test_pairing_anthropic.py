"""The strict reading of a transcript in Anthropic's form: one row for each thing that is refused."""

import pytest

from fencepost.testing.pairing_anthropic import anthropic_problem


def text(words):
    return {"type": "text", "text": words}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def model(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def asks(call_id, name="look", **more):
    return {"type": "tool_use", "id": call_id, "name": name, "input": {}, **more}


def result(call_id, content="done"):
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def thinks(words, signature="s"):
    return {"type": "thinking", "thinking": words, "signature": signature}


HIDDEN = {"type": "redacted_thinking", "data": "d"}
HI = user(text("hi"))


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [HI],
        [HI, model(text("I look."), asks("a"), asks("b")), user(result("b"), result("a"), text("and?"))],
        [HI, model(text("hello "), asks("a")), user(result("a")), model(text("done"))],
        [HI, model(thinks("a"), HIDDEN, text("I look."), thinks(""), asks("a")), user(result("a"))],
    ],
)
def test_a_sound_transcript_passes(messages):
    assert anthropic_problem(messages) is None


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([model(text("hi"))], "messages[0]: 'assistant' where user is next"),
        ([HI, HI], "messages[1]: 'user' where assistant is next"),
        ([user()], "it is empty"),
        ([user(text(" "))], "an empty text"),
        ([HI, model(asks("a"))], "the calls a have no result"),
        ([HI, model(asks("a"), asks("b")), user(result("a"))], "the calls b have no result in it"),
        ([HI, model(asks("a")), user(text("x"), result("a"))], "text stands in front of the results"),
        ([HI, model(asks("a")), user(result("a"), result("a"))], "a result for 'a'"),
        ([HI, model(asks("a"), asks("a"))], "a call with the id 'a'"),
        ([HI, model(asks("a.b"))], "a call with the id 'a.b'"),
        ([HI, model(asks("a", "no name"))], "'no name', which is no name"),
        ([HI, model(asks("a", input="x"))], "no JSON object"),
        ([HI, model(result("a"))], "a block of type 'tool_result' from the assistant"),
        ([HI, model(text("bye "))], "ends in blanks"),
        ([HI, model(thinks("a", ""), text("x"))], "thinking without its signature"),
        ([HI, model({"type": "redacted_thinking"}, text("x"))], "hidden thinking without its data"),
        ([HI, model(text("x"), thinks("a"))], "it ends in thinking"),
    ],
)
def test_what_is_refused_is_said(messages, says):
    assert says in anthropic_problem(messages)


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ([thinks("a")], [], None),
        ([HIDDEN], [], None),
        ([], [thinks("a")], "messages[1]: it must start with a thinking block"),
        ([text("x"), thinks("a")], [thinks("a")], "messages[1]: it must start with a thinking block"),
    ],
)
def test_where_turns_must_think_the_one_that_goes_on_began_so(first, second, problem):
    turn = [HI, model(*first, asks("a")), user(result("a")), model(*second, asks("b")), user(result("b"))]
    assert anthropic_problem(turn, thinks=True) == problem
    assert anthropic_problem(turn) is None
    assert anthropic_problem([*turn, model(text("done")), HI], thinks=True) is None, "that turn is over"
