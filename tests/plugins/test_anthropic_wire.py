"""Anthropic's messages, going out: accepted by the strictest endpoint, thinking to the letter or not at all."""

import json

import pytest
from hypothesis import given
from tests.plugins.transcripts import ANSWERS, Talk, call, reopened, talk_of

from fencepost.core import events as ev
from fencepost.core import projection
from fencepost.plugins.anthropic_wire import BEGINNING, conversation, messages_body, seal
from fencepost.testing import anthropic_problem

ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def thought(words, model="any", provider="anthropic", **more):
    sealed = seal(model, {"signature": f"s-{words}", **more})
    return ev.Reasoning(words, {**sealed, "provider": provider})


def wired(words):
    return {"type": "thinking", "thinking": words, "signature": f"s-{words}"}


def talk(*blocks, **header):
    return Talk(provider="anthropic", **header).user("Look.").answer(*blocks)


def answer(*blocks, **header):
    """How an answer goes out."""
    [_, message, *_] = messages_body(talk(*blocks, **header).user("And?").request())["messages"]
    assert message["role"] == "assistant"
    return message["content"]


def test_a_whole_transcript_in_the_form():
    said = Talk(provider="anthropic", system="Be brief.", model="m", settings={"max_tokens": 5}).user("Look.")
    said.answer(ev.Text("I look. "), call(1, provider_id="p1"), call(2, provider_id="p2"))
    said.answer(ev.Text("Nothing there. ")).user("And now?")
    assert messages_body(said.request()) == {
        "model": "m",
        "max_tokens": 5,
        "system": "Be brief.",
        "tools": [
            {
                "name": "look",
                "description": "Look at a path.",
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
            }
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look. "},
                    {"type": "tool_use", "id": "p1", "name": "look", "input": {"path": "."}},
                    {"type": "tool_use", "id": "p2", "name": "look", "input": {"path": "."}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "p1", "content": "result of c1"},
                    {"type": "tool_result", "tool_use_id": "p2", "content": "result of c2"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Nothing there."}]},
            {"role": "user", "content": [{"type": "text", "text": "And now?"}]},
        ],
        "stream": True,
    }


def test_without_system_and_tools_the_fields_are_absent():
    body = messages_body(Talk(provider="anthropic", tools=(), system=" ").user("hi").request())
    assert body.keys() == {"model", "messages", "stream"}


# --- thinking ---------------------------------------------------------------------------------------------------


def test_thinking_goes_back_where_it_stood():
    hidden = ev.Reasoning("", seal("any", {"data": "d"}))
    blocks = answer(thought("a"), hidden, ev.Text("I look."), thought("b"), call(1), thought("c"), call(2))
    kinds = [block["type"] for block in blocks]
    assert kinds == ["thinking", "redacted_thinking", "text", "thinking", "tool_use", "thinking", "tool_use"]
    assert [block for block in blocks if block["type"] == "thinking"] == [wired("a"), wired("b"), wired("c")]
    assert blocks[1] == {"type": "redacted_thinking", "data": "d"}


def test_thinking_that_was_not_shown_goes_back_with_its_signature():
    assert answer(thought(""), ev.Text("x"))[0] == {"type": "thinking", "thinking": "", "signature": "s-"}


@pytest.mark.parametrize(
    "block",
    [
        ev.Reasoning("a"),
        thought("a", model="other"),
        thought("a", provider="other"),
        ev.Reasoning("a", {"provider": "anthropic", "model": "any"}),
        ev.Reasoning("a", {"signature": "s"}),
        ev.Reasoning("a", "opaque"),
    ],
)
def test_thinking_of_somebody_else_stays_here_and_so_does_the_rest_of_its_answer(block):
    assert answer(thought("b"), ev.Text("x"), block, ev.Text("y")) == [
        {"type": "text", "text": "x"},
        {"type": "text", "text": "y"},
    ]


def test_an_answer_that_ends_in_thinking_ends_before_it():
    assert answer(thought("a"), ev.Text("x "), thought("b")) == [wired("a"), {"type": "text", "text": "x"}]


def test_an_answer_that_only_thought_is_left_out():
    body = messages_body(talk(thought("a")).user("And?").request())
    assert [message["role"] for message in body["messages"]] == ["user"]
    assert [block["text"] for block in body["messages"][0]["content"]] == ["Look.", "And?"]


@pytest.mark.parametrize(
    ("first", "second", "thinks"),
    [
        ([thought("a"), call(1)], [], True),
        ([thought("a"), call(1)], [call(2)], True),
        ([call(1)], [thought("a"), call(2)], False),
        ([thought("a", model="other"), call(1)], [], False),
        ([ev.Reasoning("a"), ev.Text("x"), call(1)], [], False),
    ],
)
def test_a_turn_that_began_without_thinking_goes_on_without(first, second, thinks):
    said = talk(*first, settings=ENABLED)
    if second:
        said.answer(*second)
    body = messages_body(said.request())
    assert ("thinking" in body) is thinks
    assert anthropic_problem(body["messages"], thinks=thinks) is None
    assert "thinking" in messages_body(said.answer(ev.Text("done")).user("Next.").request()), "the next turn thinks"


def test_a_model_that_decides_by_itself_is_not_kept_from_thinking():
    said = talk(call(1), settings={"thinking": {"type": "adaptive"}})
    assert messages_body(said.request())["thinking"] == {"type": "adaptive"}


# --- calls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider_id", "wire"),
    [("toolu_01-A", "toolu_01-A"), ("functions.look:0", "functions_look_0"), ("", "c1"), ("i" * 65, "c1")],
)
def test_ids_have_letters_that_the_form_allows(provider_id, wire):
    assert answer(call(1, provider_id=provider_id))[0]["id"] == wire


def test_ids_that_become_the_same_are_told_apart():
    first, second = answer(call(1, provider_id="a.b"), call(2, provider_id="a:b"))
    assert (first["id"], second["id"]) == ("a_b", "a_b_")


@pytest.mark.parametrize(
    ("name", "wire"), [("look", "look"), ("a.b c", "a_b_c"), ("", "unnamed"), ("x" * 200, "x" * 128)]
)
def test_names_that_the_model_made_up(name, wire):
    assert answer(call(1, name=name))[0]["name"] == wire


@pytest.mark.parametrize("arguments", ['{"path":', "", " ", "[1]", '"a"', "NaN", '{"a":1,"a":2}', '{"a":NaN}'])
def test_arguments_that_are_no_object_go_out_as_an_empty_one(arguments):
    assert answer(call(1, arguments))[0]["input"] == {}


def test_failed_and_silent_results():
    said = Talk(provider="anthropic").user("Look.")
    said.log.append(
        ev.AssistantMessage, turn=1, step=1, message_id="m1", content=(call(1), call(2)), finish="tool_calls"
    )
    said.log.append(ev.ToolResult, turn=1, step=1, call_id="c1", content=(), is_error=False)
    said.log.append(ev.ToolResult, turn=1, step=1, call_id="c2", content=(ev.Text("no"),), is_error=True)
    *_, results = messages_body(said.request())["messages"]
    assert results["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": "(empty)"},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
    ]


def test_what_is_said_while_calls_run_stands_behind_their_results():
    said = talk(call(1))
    said.log.append(ev.UserMessage, message_id="u2", content=(ev.Text("Faster."),), source="test")
    *_, last = messages_body(said.request())["messages"]
    assert [block["type"] for block in last["content"]] == ["tool_result", "text"]


def test_a_transcript_that_an_answer_begins_gets_a_beginning():
    whole = Talk(provider="anthropic").user(" ").answer(ev.Text("Hello.")).user("Hi.").request()
    assert conversation(whole)["messages"][0]["content"] == [{"type": "text", "text": BEGINNING}]


# --- whatever a model answered ----------------------------------------------------------------------------------


@given(ANSWERS)
def test_whatever_a_model_answered_its_history_passes_a_strict_endpoint(answers):
    body = messages_body(talk_of(answers, "anthropic", settings=ENABLED).request())
    assert anthropic_problem(body["messages"], thinks="thinking" in body) is None


@given(ANSWERS)
def test_a_body_is_rebuilt_from_the_log_byte_for_byte(answers):
    said = talk_of(answers, "anthropic")
    body = json.dumps(messages_body(said.request()))
    assert json.dumps(messages_body(projection.request(reopened(said.log)))) == body
