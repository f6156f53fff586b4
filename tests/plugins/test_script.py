"""`script:FILE`: line N answers the request that has N answers before it."""

import asyncio
import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plugins.transcripts import Talk, request

from fencepost.core import events as ev
from fencepost.errors import ModelError, UsageError
from fencepost.plugins.script import NotAnAnswerError, ScriptModel, open_model, read_answer
from fencepost.runtime.answer import Assembler
from fencepost.runtime.models import Finished, Model, TextDelta


def script(tmp_path, *lines, name="script.jsonl"):
    path = tmp_path / name
    data = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    path.write_bytes(data)
    return path


def ask(model, asked=None):
    async def work():
        return [delta async for delta in model.stream(asked or request())]

    return asyncio.run(work())


def answer(model, asked=None):
    numbers = itertools.count(1)
    assembler = Assembler(lambda: f"c{next(numbers)}")
    for delta in ask(model, asked):
        assembler.feed(delta)
    assert assembler.finish is not None
    return assembler.blocks(assembler.finish), assembler.finish


def refused(model, asked=None):
    with pytest.raises(ModelError) as caught:
        ask(model, asked)
    assert not caught.value.retryable
    return caught.value


def test_lines_answer_requests_in_order(tmp_path):
    model = ScriptModel(script(tmp_path, {"content": "one"}, b"", {"content": "two"}, b"  \t", {"content": "three"}))
    assert [answer(model, request(number))[0] for number in range(3)] == [
        (ev.Text("one"),),
        (ev.Text("two"),),
        (ev.Text("three"),),
    ]


def test_the_count_comes_from_the_log_and_not_from_the_model(tmp_path):
    path = script(tmp_path, {"content": "one"}, {"content": "two"})
    talk = Talk().user("hi").answer(ev.Text("one"))
    assert answer(ScriptModel(path), talk.user("on").request())[0] == (ev.Text("two"),)
    assert answer(ScriptModel(path), talk.request())[0] == (ev.Text("two"),)


def test_half_an_answer_does_not_count(tmp_path):
    path = script(tmp_path, {"content": "one"}, {"content": "two"})
    talk = Talk().user("hi").answer(ev.Text("on"), interrupted=True, finish="cancelled").user("again")
    assert answer(ScriptModel(path), talk.request())[0] == (ev.Text("one"),)


def test_content_streams_in_several_pieces(tmp_path):
    model = ScriptModel(script(tmp_path, {"content": "one two\n three  "}))
    assert ask(model) == [TextDelta("one "), TextDelta("two\n "), TextDelta("three  "), Finished("stop")]


@given(st.text())
def test_a_text_comes_out_whole_and_in_bounded_pieces(text):
    pieces = [delta for delta in read_answer(text).deltas() if isinstance(delta, TextDelta)]
    assert "".join(piece.text for piece in pieces) == text
    assert len(pieces) <= 32


def test_a_long_text_is_not_streamed_word_by_word():
    deltas = list(read_answer("word " * 10_000).deltas())
    assert len(deltas) <= 33


CALLS = {
    "text": (
        {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
        ("f", "x", '{"a": 1}'),
    ),
    "an object": ({"function": {"name": "f", "arguments": {"a": "ä"}}}, ("f", "", '{"a": "ä"}')),
    "text that is no JSON": ({"function": {"name": "f", "arguments": '{"a": '}}, ("f", "", '{"a": ')),
    "nothing": ({"function": {"name": "f"}}, ("f", "", "")),
    "null": ({"id": None, "function": {"name": "f", "arguments": None}}, ("f", "", "")),
    "an empty id": ({"id": "", "function": {"name": "f", "arguments": "{}"}}, ("f", "", "{}")),
    "no name": ({"id": "x", "function": {"arguments": "{}"}}, ("", "x", "{}")),
    "no function around it": ({"name": "f", "arguments": "{}"}, ("f", "", "{}")),
}


@pytest.mark.parametrize("shape", CALLS)
def test_calls_are_given_as_the_line_has_them(tmp_path, shape):
    given_call, (name, provider_id, arguments) = CALLS[shape]
    model = ScriptModel(script(tmp_path, {"content": "I call.", "tool_calls": [given_call]}))
    blocks, finish = answer(model)
    assert blocks == (ev.Text("I call."), ev.CallRequest("c1", name, arguments, provider_id))
    assert finish == "tool_calls"


def test_calls_may_repeat_one_id(tmp_path):
    one = {"id": "same", "function": {"name": "f", "arguments": "{}"}}
    blocks, _ = answer(ScriptModel(script(tmp_path, {"content": None, "tool_calls": [one, one]})))
    assert [(block.call_id, block.provider_id) for block in blocks] == [("c1", "same"), ("c2", "same")]


def test_reasoning_and_finish_reason(tmp_path):
    model = ScriptModel(script(tmp_path, {"content": "cut", "reasoning_content": "hm", "finish_reason": "length"}))
    assert answer(model) == ((ev.Reasoning("hm"), ev.Text("cut")), "max_tokens")


@pytest.mark.parametrize("line", [{"content": ""}, {"content": None}, {"tool_calls": []}])
def test_an_empty_answer_is_an_answer(tmp_path, line):
    assert answer(ScriptModel(script(tmp_path, line))) == ((), "stop")


@pytest.mark.parametrize(("lines", "asked", "says"), [(0, 0, "0 answers, request 1"), (1, 1, "1 answer, request 2")])
def test_a_script_that_runs_out_says_so(tmp_path, lines, asked, says):
    path = script(tmp_path, *[{"content": "x"}] * lines)
    error = refused(ScriptModel(path), request(asked))
    assert error.code == "SCRIPT_EXHAUSTED"
    assert str(error) == f"script {path} has {says} has none"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{", "line 3 is not JSON"),
        (b'{"content": "\xff"}', "line 3 is not JSON"),
        (b"[" * 100_000, "line 3 is not JSON"),
        (b"[1]", "line 3 is no answer: an assistant message is an object, this is list"),
        (b"{}", "line 3 is no answer: there is neither `content` nor `tool_calls`"),
        (b'{"choices": []}', "line 3 is no answer: there is neither `content` nor `tool_calls`"),
        (b'{"content": 3}', "line 3 is no answer: `content` is not text"),
        (b'{"tool_calls": {"a": 1}}', "line 3 is no answer: `tool_calls` is not a list"),
        (b'{"tool_calls": ["x"]}', "line 3 is no answer: call 0 is not an object with a `function`"),
        (b'{"tool_calls": [{"function": {"name": 3}}]}', "line 3 is no answer: `name` is not text"),
        (b'{"content": "x", "finish_reason": "bored"}', "line 3 is no answer: `finish_reason` 'bored' is none of"),
    ],
)
def test_a_line_that_is_no_answer_is_named_before_anything_is_answered(tmp_path, line, says):
    path = script(tmp_path, {"content": "one"}, b"", line)
    error = refused(ScriptModel(path))
    assert error.code == "SCRIPT_INVALID"
    assert str(path) in str(error)
    assert says in str(error)


def test_lines_end_at_line_feeds_and_nowhere_else(tmp_path):
    text = "a\u2028b\u2029c\u0085d\x1ee\x0bf"
    path = tmp_path / "script.jsonl"
    path.write_bytes(json.dumps({"content": text}, ensure_ascii=False).encode() + b"\r\n" + b'{"content": "two"}')
    assert answer(ScriptModel(path))[0] == (ev.Text(text),)
    assert answer(ScriptModel(path), request(1))[0] == (ev.Text("two"),)


def test_a_byte_order_mark_is_no_answer(tmp_path):
    assert answer(ScriptModel(script(tmp_path, b'\xef\xbb\xbf{"content": "one"}')))[0] == (ev.Text("one"),)


def test_a_line_that_is_added_while_it_runs_counts(tmp_path):
    path = script(tmp_path, {"content": "one"})
    model = ScriptModel(path)
    assert refused(model, request(1)).code == "SCRIPT_EXHAUSTED"
    with path.open("ab") as file:
        file.write(b'{"content": "two"}\n')
    assert answer(model, request(1))[0] == (ev.Text("two"),)


def test_a_script_that_is_not_there_is_reported_when_it_is_opened(tmp_path):
    for missing in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(UsageError, match="there is no script"):
            open_model(f"script:{missing}", {})


def test_a_script_that_goes_away_is_an_error_of_the_model(tmp_path):
    path = script(tmp_path, {"content": "one"})
    model = ScriptModel(path)
    path.unlink()
    assert refused(model).code == "SCRIPT_INVALID"


@pytest.mark.parametrize("spec", ["script:", "script", "openai:x"])
def test_a_spec_that_names_no_script(spec):
    with pytest.raises(UsageError, match="script:FILE"):
        open_model(spec, {})


def test_it_is_a_model_that_stays_with_its_file(tmp_path, monkeypatch):
    script(tmp_path, {"content": "one"}, name="a.jsonl")
    monkeypatch.chdir(tmp_path)
    model = open_model("script:a.jsonl", {})
    monkeypatch.chdir("/")
    assert isinstance(model, Model)
    assert (model.provider, model.model, model.settings) == ("script", "a.jsonl", {})
    assert answer(model)[0] == (ev.Text("one"),)
    asyncio.run(model.close())


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=2),
        lambda i: (
            st.lists(i)
            | st.dictionaries(
                st.sampled_from(["content", "tool_calls", "function", "id", "name", "arguments", "finish_reason"]), i
            )
        ),
    )
)
def test_any_value_is_an_answer_or_says_why_not(value):
    try:
        read = read_answer(value)
    except NotAnAnswerError as error:
        read = str(error)
    assert read
