"""The chat-completions form: what goes out is accepted by the strictest provider, what comes in is read loosely."""

import contextlib
import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.plugins.transcripts import ANSWERS, Talk, call, reopened, request, talk_of

from fencepost.core import events as ev
from fencepost.core import projection
from fencepost.errors import ModelError
from fencepost.plugins.openai_wire import ChunkReader, chat_body
from fencepost.runtime.models import CallDelta, Finished, ReasoningDelta, TextDelta, UsageDelta
from fencepost.testing import pairing_problem

# --- out --------------------------------------------------------------------------------------------------------


def test_a_whole_transcript_in_the_form():
    talk = Talk(system="Be brief.", model="gpt-5", settings={"temperature": 0.5}).user("Look.")
    talk.answer(ev.Reasoning("hm"), ev.Text("I look."), call(1, provider_id="p1"), call(2, provider_id="p2"))
    talk.answer(ev.Text("Nothing there."))
    assert chat_body(talk.request()) == {
        "model": "gpt-5",
        "temperature": 0.5,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look."},
            {
                "role": "assistant",
                "content": "I look.",
                "tool_calls": [
                    {"id": "p1", "type": "function", "function": {"name": "look", "arguments": '{"path":"."}'}},
                    {"id": "p2", "type": "function", "function": {"name": "look", "arguments": '{"path":"."}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "p1", "content": "result of c1"},
            {"role": "tool", "tool_call_id": "p2", "content": "result of c2"},
            {"role": "assistant", "content": "Nothing there."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "look",
                    "description": "Look at a path.",
                    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
                },
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_without_system_and_tools_the_fields_are_absent():
    body = chat_body(request(tools=()))
    assert "tools" not in body
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_a_system_prompt_that_is_blank_is_left_out():
    assert chat_body(request(system=" \u2028"))["messages"][0]["role"] == "user"


@given(ANSWERS, st.sampled_from(["openai", "deepseek"]))
def test_whatever_a_model_answered_its_history_passes_a_strict_provider(answers, provider):
    body = chat_body(talk_of(answers, provider).request())
    assert pairing_problem(body["messages"]) is None


@given(ANSWERS, st.sampled_from(["openai", "deepseek"]))
def test_a_body_is_rebuilt_from_the_log_byte_for_byte(answers, provider):
    talk = talk_of(answers, provider)
    body = json.dumps(chat_body(talk.request()))
    assert json.dumps(chat_body(projection.request(reopened(talk.log)))) == body


@pytest.mark.parametrize("arguments", ['{"path":', "", " ", "[1]", '"a"', "NaN", '{"a":1,"a":2}', '{"a":NaN}'])
def test_arguments_that_providers_refuse_go_out_as_an_empty_object(arguments):
    talk = Talk().user("Look.").answer(call(1, arguments))
    sent = chat_body(talk.request())["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert sent == "{}"


@pytest.mark.parametrize("arguments", ['{"path":  "."}', '{"n": 1.0, "s": "\\u00e4"}', ' {"b":1,"a":2} '])
def test_arguments_that_are_an_object_go_out_to_the_letter(arguments):
    talk = Talk().user("Look.").answer(call(1, arguments))
    sent = chat_body(talk.request())["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert sent == arguments


@pytest.mark.parametrize(
    ("name", "sent"), [("look", "look"), ("", "unnamed"), ("fs.read file", "fs_read_file"), ("x" * 99, "x" * 64)]
)
def test_a_made_up_tool_name_goes_out_in_letters_that_the_form_allows(name, sent):
    talk = Talk().user("Look.").answer(call(1, name=name))
    assert chat_body(talk.request())["messages"][1]["tool_calls"][0]["function"]["name"] == sent


@pytest.mark.parametrize(
    ("first", "second", "sent"),
    [
        ("p1", "p2", ["p1", "p2"]),
        ("same", "same", ["c1", "c2"]),
        ("", "", ["c1", "c2"]),
        ("p" * 41, "p2", ["c1", "p2"]),
    ],
)
def test_ids_are_the_providers_where_they_are_usable_and_ours_where_not(first, second, sent):
    talk = Talk().user("Look.").answer(call(1, provider_id=first), call(2, provider_id=second))
    messages = chat_body(talk.request())["messages"]
    assert [asked["id"] for asked in messages[1]["tool_calls"]] == sent
    assert [message["tool_call_id"] for message in messages[2:4]] == sent


@pytest.mark.parametrize("blocks", [(), (ev.Text(""),), (ev.Text(" \n"),), (ev.Reasoning("hm"),)])
def test_an_answer_that_shows_nothing_is_not_sent(blocks):
    talk = Talk().user("Look.").answer(*blocks).user("Again.")
    assert [message["role"] for message in chat_body(talk.request())["messages"]] == ["user", "user"]


def test_half_an_answer_is_not_sent():
    talk = Talk().user("Look.").answer(ev.Text("I wi"), interrupted=True, finish="cancelled").user("Again.")
    assert [message["role"] for message in chat_body(talk.request())["messages"]] == ["user", "user"]


@pytest.mark.parametrize(
    ("provider", "settings", "sent"),
    [
        ("deepseek", {}, ["hm", ""]),
        ("openai", {}, [None, None]),
        ("openai", {"echo_reasoning": True}, ["hm", ""]),
        ("deepseek", {"echo_reasoning": False}, [None, None]),
    ],
)
def test_reasoning_goes_back_to_those_who_ask_for_it_with_every_call_even_where_it_was_empty(provider, settings, sent):
    talk = Talk(provider=provider, settings=settings).user("Look.")
    talk.answer(ev.Reasoning("hm"), call(1)).answer(call(2)).answer(ev.Text("done"))
    body = chat_body(talk.request())
    answers = [message for message in body["messages"] if message["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in answers] == [*sent, None]
    assert "echo_reasoning" not in body


# --- in ---------------------------------------------------------------------------------------------------------


def chunk(delta=None, finish=None, **fields):
    return {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}], **fields}


def read(*chunks):
    reader = ChunkReader()
    return [delta for part in chunks for delta in reader.read(part)] + reader.end()


def pieces(*calls, finish="tool_calls"):
    return read(*(chunk({"tool_calls": [piece]}) for piece in calls), chunk(finish=finish))[:-1]


def test_text_reasoning_refusals_and_parts():
    assert read(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "a", "reasoning": "a"}),
        chunk({"reasoning": "b", "content": None}),
        chunk({"content": "c"}),
        chunk({"content": [{"type": "text", "text": "d"}]}),
        chunk({"refusal": "e"}),
        chunk(finish="stop"),
    ) == [ReasoningDelta("a"), ReasoningDelta("b"), *(TextDelta(letter) for letter in "cde"), Finished("stop")]


@pytest.mark.parametrize(
    ("piece", "delta"),
    [
        ({"index": 0, "id": "x", "function": {"name": "f", "arguments": ""}}, CallDelta(0, "x", "f")),
        ({"index": 3, "function": {"arguments": "{"}}, CallDelta(3, arguments="{")),
        ({"id": None, "function": {"name": None, "arguments": None}}, CallDelta(0)),
        ({"index": None, "id": "x", "function": {"name": "f"}}, CallDelta(0, "x", "f")),
        ({"index": 0, "function": {"name": "f", "arguments": {"a": "ä"}}}, CallDelta(0, "", "f", '{"a": "ä"}')),
        ({"index": 0}, CallDelta(0)),
    ],
)
def test_pieces_of_calls(piece, delta):
    assert pieces(piece) == [delta]


def test_a_piece_without_an_index_goes_to_the_newest_call():
    deltas = pieces({"index": 2, "function": {"name": "f"}}, {"function": {"arguments": "{}"}})
    assert deltas == [CallDelta(2, "", "f"), CallDelta(2, arguments="{}")]


def test_the_old_form_of_a_call():
    deltas = read(chunk({"function_call": {"name": "f", "arguments": "{}"}}), chunk(finish="function_call"))
    assert deltas == [CallDelta(0, "", "f", "{}"), Finished("tool_calls")]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("tool_calls", "tool_calls"),
        ("function_call", "tool_calls"),
        ("length", "max_tokens"),
        ("MAX_TOKENS", "max_tokens"),
        ("content_filter", "content_filter"),
        ("something_new", "stop"),
    ],
)
def test_finish_reasons(reason, finish):
    assert read(chunk({"content": "x"}), chunk(finish=reason))[-1] == Finished(finish)


@pytest.mark.parametrize(
    "chunks",
    [
        [chunk(finish="something_new")],
        [chunk({"content": "x"}), chunk(finish="insufficient_system_resource")],
        [chunk({"content": "x"}), chunk(finish="error")],
    ],
)
def test_a_provider_that_breaks_off_has_not_answered(chunks):
    with pytest.raises(ModelError) as caught:
        read(*chunks)
    assert (caught.value.code, caught.value.retryable) == ("PROVIDER_ERROR", True)


@pytest.mark.parametrize("chunks", [[], [chunk({"content": "x"})], [{}], [{"choices": None}], [{"choices": []}]])
def test_a_stream_without_a_finish_reason_has_no_end(chunks):
    assert not any(isinstance(delta, Finished) for delta in read(*chunks))


def test_the_end_comes_last_though_a_finish_reason_stands_in_every_chunk():
    deltas = read(chunk({"content": "a"}, "stop"), chunk({"content": "b"}, "stop"), {"choices": [], "usage": {}})
    assert deltas == [TextDelta("a"), TextDelta("b"), UsageDelta(ev.Usage()), Finished("stop")]


def test_an_end_marker_counts_if_nothing_came_behind_it():
    reader = ChunkReader()
    reader.read(chunk({"content": "a"}, "stop"))
    assert reader.complete
    reader.read(chunk({"content": "b"}, "stop"))
    assert not reader.complete


def test_only_the_first_choice_is_read():
    two = {"choices": [{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]}
    assert read(two) == [TextDelta("a")]


@pytest.mark.parametrize(
    ("usage", "counted"),
    [
        (
            {
                "prompt_tokens": 7,
                "completion_tokens": 5,
                "prompt_tokens_details": {"cached_tokens": 3},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            ev.Usage(7, 5, 3, 2),
        ),
        ({"prompt_tokens": 7, "prompt_cache_hit_tokens": 4, "completion_tokens_details": None}, ev.Usage(7, 0, 4)),
        ({"prompt_tokens": -1, "completion_tokens": "many"}, ev.Usage()),
    ],
)
def test_token_counts(usage, counted):
    assert read({"choices": [], "usage": usage}) == [UsageDelta(counted)]


@pytest.mark.parametrize(
    "part",
    [
        None,
        [],
        "x",
        {"choices": {}},
        {"choices": ["x"]},
        {"choices": [{"delta": "x"}]},
        chunk({"content": 3}),
        chunk({"reasoning_content": {"a": 1}}),
        chunk({"tool_calls": {"index": 0}}),
        chunk({"tool_calls": ["x"]}),
        chunk({"tool_calls": [{"function": "f"}]}),
        chunk({"tool_calls": [{"id": 3}]}),
        chunk(finish={"a": 1}),
    ],
)
def test_chunks_without_the_form_are_refused_by_name(part):
    with pytest.raises(ModelError) as caught:
        read(part)
    assert (caught.value.code, caught.value.retryable) == ("MALFORMED_STREAM", True)
    assert "chat-completions form" in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "tool_calls", "function", "index", "id", "name", "arguments", "usage"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(JSON)
@example({"choices": [{"index": [], "delta": {}}]})
def test_no_chunk_makes_the_reader_fail_otherwise(part):
    with contextlib.suppress(ModelError):
        read(part)
