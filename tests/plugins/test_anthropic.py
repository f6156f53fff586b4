"""Anthropic's messages over real HTTP: the official SDK against a server on this machine that misbehaves on request."""

import asyncio
import contextlib
import gc
import json
import signal
import subprocess
import sys

import pytest
from tests.plugins import asking
from tests.plugins.asking import KEY, messages, raw_server, text
from tests.plugins.transcripts import Talk, call

import fencepost as fp
from fencepost.core import events as ev
from fencepost.core.events import Usage
from fencepost.errors import ModelError
from fencepost.plugins.anthropic import AnthropicModel
from fencepost.runtime.answer import Assembler
from fencepost.runtime.models import Finished, ReasoningDelta, TextDelta, UsageDelta
from fencepost.testing import ModelServer
from fencepost.testing.messages_form import signature_of

THINK = {"thinking": {"type": "enabled", "budget_tokens": 1024}}


def request(answers=0, **header):
    talk = Talk(**{"provider": "anthropic", "settings": {"max_tokens": 9}, **header}).user("begin")
    for number in range(answers):
        talk.answer(ev.Text(f"answer {number + 1}")).user("go on")
    return talk.request()


def ask(server, asked=None, **options):
    return asking.ask(server, asked or request(), make=messages, **options)


def fail(server, asked=None, **options):
    return asking.fail(server, asked or request(), make=messages, **options)


def sse(*events, more=100):
    """A response whose body says that more would come, and does not."""
    body = b"".join(b"event: %b\ndata: %b\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    return head % (len(body) + more) + body


async def deltas_from(url):
    model = AnthropicModel("any", base_url=url.removesuffix("/v1"))
    try:
        return [delta async for delta in model.stream(request())]
    finally:
        await model.close()


def answer_of(deltas, finish="tool_calls"):
    numbers = iter(range(1, 100))
    assembler = Assembler(lambda: f"c{next(numbers)}")
    for delta in deltas:
        assembler.feed(delta)
    return assembler.blocks(finish)


# --- the good way -----------------------------------------------------------------------------------------------


def test_an_answer_streams_in_pieces_and_ends_with_its_marker():
    with ModelServer([{"content": "Nothing is there.", "reasoning_content": "I look"}]) as server:
        deltas = ask(server)
    assert text(deltas) == "Nothing is there."
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) > 1
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "I look"
    assert deltas[-2:] == [UsageDelta(Usage(10, 5, 6)), Finished("stop")]


def test_calls_that_are_asked_for_at_once_arrive_to_the_letter():
    calls = [
        {"id": "toolu_a", "function": {"name": "look", "arguments": '{"path": "ä"}'}},
        {"id": "toolu_b", "function": {"name": "look", "arguments": '{"path": "b'}},
        {"id": "toolu_c", "function": {"name": "rest", "arguments": ""}},
    ]
    with ModelServer([{"content": "I look.", "tool_calls": calls}]) as server:
        deltas = ask(server)
    assert answer_of(deltas) == (
        ev.Text("I look."),
        ev.CallRequest("c1", "look", '{"path": "ä"}', "toolu_a"),
        ev.CallRequest("c2", "look", '{"path": "b', "toolu_b"),
        ev.CallRequest("c3", "rest", "", "toolu_c"),
    )
    assert deltas[-1] == Finished("tool_calls")


def test_what_the_server_receives_is_the_body_that_the_log_gives():
    talk = Talk(provider="anthropic", settings={"max_tokens": 7, "temperature": 0.25}, system="Sei kurz, ünd \u2028.")
    talk.user("Look.").answer(ev.Text("I look."), call(1, provider_id="p"), call(2, '{"path":', provider_id="p"))
    with ModelServer(["", "done"]) as server:
        ask(server, talk.user("Again.").request())
        body = AnthropicModel("any", api_key=KEY).body(talk.request())
    [received] = server.requests
    assert json.loads(received) == body
    assert received == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def test_a_mebibyte_of_text_arrives_whole():
    long = "ä\u2028\x00 word" * (1 << 17)
    with ModelServer([{"content": long, "reasoning_content": long}]) as server:
        deltas = ask(server)
    reasoning, said = answer_of(deltas, "stop")
    assert (reasoning.text, said) == (long, ev.Text(long))


def test_nothing_is_sent_before_the_first_delta_is_pulled():
    async def work(model):
        stream = model.stream(request())
        before = len(server.requests)
        await anext(stream)
        await stream.aclose()
        return before, len(server.requests)

    with ModelServer(["one two three"]) as server:
        assert asking.run(server, work, make=messages) == (0, 1)


# --- the bad ways -----------------------------------------------------------------------------------------------

OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}

BROKEN = {
    "the connection ends in the middle": ({"kind": "cut", "after": 1}, "CONNECTION", True, "one "),
    "an event is not JSON": ({"kind": "malformed", "after": 1}, "MALFORMED_STREAM", True, "one "),
    "an event is nested for ever": ({"kind": "raw", "chunks": ["[" * 100_000]}, "MALFORMED_STREAM", True, ""),
    "an event is no object": ({"kind": "raw", "chunks": ["[1]"]}, "MALFORMED_STREAM", True, ""),
    "a block that never began": (
        {"kind": "raw", "chunks": [{"type": "content_block_delta", "index": 4, "delta": {}}]},
        "MALFORMED_STREAM",
        True,
        "",
    ),
    "an error inside the stream": ({"kind": "error", "after": 2}, "OVERLOADED", True, "one two "),
    "an error inside the stream that is no JSON": ({"kind": "error", "body": None}, "OVERLOADED", True, ""),
    "an error inside the stream that lasts": (
        {"kind": "error", "body": {"type": "error", "error": {"type": "billing_error", "message": "pay"}}},
        "QUOTA",
        False,
        "",
    ),
    "overloaded": ({"kind": "status", "status": 529, "body": OVERLOADED}, "OVERLOADED", True, ""),
    "too many requests": ({"kind": "status", "status": 429, "headers": {"Retry-After": "7"}}, "RATE_LIMITED", True, ""),
    "a page of a gateway": ({"kind": "status", "status": 502, "body": "<html>no</html>"}, "SERVER", True, ""),
    "a wrong key": (
        {"kind": "status", "status": 401, "body": {"type": "error", "error": {"message": KEY}}},
        "AUTH",
        False,
        "",
    ),
    "a wrong model": ({"kind": "status", "status": 404}, "NOT_FOUND", False, ""),
    "a bad request": ({"kind": "status", "status": 400}, "BAD_REQUEST", False, ""),
    "a transcript that is too long": (
        {"kind": "status", "status": 400, "body": {"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}},
        "CONTEXT_TOO_LONG",
        False,
        "",
    ),
    "a redirect": ({"kind": "status", "status": 307, "headers": {"Location": "/v2"}}, "REDIRECT", False, ""),
    "a page instead of a stream": ({"kind": "status", "status": 200, "body": "<html>"}, "MALFORMED_STREAM", False, ""),
}


@pytest.mark.parametrize("row", BROKEN)
def test_every_failure_is_a_model_error_and_one_request(row):
    fault, code, retryable, seen = BROKEN[row]
    with ModelServer([{"content": "one two three", "fault": fault}]) as server:
        deltas, error = fail(server)
    assert (error.code, error.retryable, text(deltas)) == (code, retryable, seen)
    assert len(server.requests) == 1
    assert error.__cause__ is None
    assert KEY not in f"{error!r} {error.explain()}"


def test_the_words_of_the_provider_come_along():
    body = {"type": "error", "error": {"type": "invalid_request_error", "message": "max_tokens: 9 > 8"}}
    with ModelServer([{"fault": {"kind": "status", "status": 400, "body": body}}]) as server:
        _, error = fail(server)
    assert str(error) == "anthropic:any answered 400 (invalid_request_error): max_tokens: 9 > 8"


def test_the_time_to_wait_comes_along():
    fault = {"kind": "status", "status": 429, "headers": {"Retry-After": "7"}}
    with ModelServer([{"fault": fault}]) as server:
        _, error = fail(server)
    assert (error.status, error.retry_after) == (429, 7.0)


def test_a_stream_that_falls_silent():
    with ModelServer([{"content": "one two", "fault": {"kind": "hold", "after": 1}}]) as server:
        deltas, error = fail(server, timeout=1.0)
    assert (error.code, error.retryable, text(deltas)) == ("CONNECTION", True, "one ")


@pytest.mark.parametrize("kind", ["no_finish", "no_choices"])
def test_a_stream_that_ends_without_its_marker_says_nothing_at_its_end(kind):
    with ModelServer([{"content": "one two three", "fault": {"kind": kind, "after": 2}}]) as server:
        deltas = ask(server)
    assert text(deltas) == "one two "
    assert not any(isinstance(delta, Finished) for delta in deltas)


WHOLE = [
    {"type": "message_start", "message": {}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "whole"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    {"type": "message_stop"},
]


def test_a_connection_that_is_lost_behind_the_end_marker_lost_nothing():
    with raw_server(sse(*WHOLE)) as url:
        assert asyncio.run(deltas_from(url)) == [TextDelta("whole"), Finished("stop")]


def test_a_connection_that_is_lost_in_front_of_it_is_lost():
    with raw_server(sse(*WHOLE[:-1])) as url, pytest.raises(ModelError) as caught:
        asyncio.run(deltas_from(url))
    assert caught.value.code == "CONNECTION"


def test_a_stream_that_ends_well_without_the_marker_has_no_end():
    with raw_server(sse(*WHOLE[:-1], more=0)) as url:
        assert asyncio.run(deltas_from(url)) == [TextDelta("whole")]


@pytest.mark.parametrize("after", [None, 1])
def test_a_cancelled_task_is_cancelled_and_leaves_nothing_behind(after):
    async def work(model):
        async def pull():
            async for _ in model.stream(request()):
                pass

        task = asyncio.create_task(pull())
        await asyncio.to_thread(server.holds[0].reached.wait, 10)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        return task.cancelled()

    with ModelServer([{"content": "one two", "fault": {"kind": "hold", "after": after}}]) as server:
        assert asking.run(server, work, make=messages)
    gc.collect()


# --- in a session -----------------------------------------------------------------------------------------------

THOUGHT = "Hm\u2028 \x00 \\u0041 ünd \U0001f600\n\n  so. "
LOOK = {"id": "toolu_1", "function": {"name": "look", "arguments": {"path": "ä"}}}


@fp.tool(effect="read")
async def look(path: str) -> str:
    """Look at a path."""
    return f"nothing at {path}"


def agent(server, store, tools=(look,), **settings):
    environ = {"ANTHROPIC_BASE_URL": server.anthropic_url, "ANTHROPIC_API_KEY": KEY}
    return fp.open(store, model="anthropic:any", tools=tools, environ=environ, model_settings=settings)


def blocks(body, kind):
    return [b for m in json.loads(body)["messages"] for b in m["content"] if b["type"] == kind]


def test_thinking_goes_back_to_the_letter_over_turns_and_processes(tmp_path):
    """The server signs what it sends and refuses what it did not sign; here its words are compared as well."""
    script = [
        {"content": "I look.", "reasoning_content": THOUGHT, "tool_calls": [LOOK]},
        {"content": "Nothing.", "reasoning_content": "Nothing? " + THOUGHT},
        {"content": "Still nothing.", "reasoning_content": "again"},
        {"content": "Bye."},
    ]

    async def turns(*prompts, session=None):
        async with agent(server, f"jsonl:{tmp_path}", **THINK) as runtime:
            talk = await (runtime.create("s1") if session is None else runtime.resume(session))
            return [(await talk.prompt(prompt)).text for prompt in prompts]

    with ModelServer(script) as server:
        assert asyncio.run(turns("Look.", "Again.")) == ["Nothing.", "Still nothing."]
        assert asyncio.run(turns("Bye.", session="s1")) == ["Bye."]
    expected = [
        {"type": "thinking", "thinking": thought, "signature": signature_of("any", thought)}
        for thought in (THOUGHT, "Nothing? " + THOUGHT, "again")
    ]
    assert [blocks(body, "thinking") for body in server.requests] == [expected[:n] for n in range(4)]
    assert all(json.dumps(THOUGHT, ensure_ascii=False).encode() in body for body in server.requests[1:])
    assert [json.loads(body)["thinking"] for body in server.requests] == [THINK["thinking"]] * 4


def test_thinking_whose_text_could_not_be_kept_is_shown_and_stays_here(tmp_path):
    """Half a surrogate pair cannot be stored, so the block would come back changed: the provider would refuse it."""
    script = [{"content": "I look.", "reasoning_content": "a\ud83d b", "tool_calls": [LOOK]}, {"content": "Done."}]

    async def turn():
        async with agent(server, f"jsonl:{tmp_path}", **THINK) as runtime:
            session = await runtime.create()
            result = await session.prompt("Look.")
            kept = [e for e in session.journal.log.entries if isinstance(e, ev.AssistantMessage)]
            return result.text, kept[0].content[0]

    with ModelServer(script) as server:
        said, thought = asyncio.run(turn())
    assert (said, thought) == ("Done.", ev.Reasoning("a\ufffd b"))
    assert blocks(server.requests[1], "thinking") == []
    assert "thinking" not in json.loads(server.requests[1]), "a turn that began without its thinking goes on without"


def test_a_cut_answer_is_kept_and_asked_for_again(tmp_path):
    script = [[{"content": "one two three", "fault": {"kind": "no_finish"}}, "four five"]]

    async def turn():
        async with agent(server, f"jsonl:{tmp_path}") as runtime:
            session = await runtime.create()
            result = await session.prompt("Count.")
            return result.text, [e for e in session.journal.log.entries if isinstance(e, ev.RequestRetry)]

    with ModelServer(script) as server:
        said, retries = asyncio.run(turn())
    assert said == "four five"
    assert [retry.code for retry in retries] == ["TRUNCATED"]
    assert len(server.requests) == 2


CHILD = """
import asyncio, os, sys
import fencepost as fp

@fp.tool(effect="write")
async def send(to: str) -> str:
    "Send it."
    print("inside", flush=True)
    await asyncio.Event().wait()

async def main():
    environ = {"ANTHROPIC_BASE_URL": sys.argv[2], "ANTHROPIC_API_KEY": "key"}
    settings = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
    runtime = fp.open(sys.argv[1], model="anthropic:any", tools=[send], environ=environ, model_settings=settings)
    async with runtime:
        session = await runtime.create("s1")
        await session.prompt("Send it to Ada.")

asyncio.run(main())
"""


@fp.tool(effect="write")
async def send(to: str) -> str:
    """Send it."""
    return "sent"


def test_a_session_that_was_killed_in_a_call_is_taken_by_the_strict_endpoint(tmp_path):
    calls = [
        {"id": "toolu_1", "function": {"name": "send", "arguments": {"to": "ada"}}},
        {"id": "toolu_1", "function": {"name": "send", "arguments": {"to": "bob"}}},
    ]
    script = [{"content": None, "reasoning_content": THOUGHT, "tool_calls": calls}, {"content": "I shall look first."}]
    store = f"jsonl:{tmp_path}"

    async def resumed():
        async with agent(server, store, [send], **THINK) as runtime:
            session = await runtime.resume("s1")
            return (await session.go_on()).text

    with ModelServer(script) as server:
        words = [sys.executable, "-c", CHILD, store, server.anthropic_url]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as child:
            assert child.stdout.readline() == b"inside\n"
            child.send_signal(signal.SIGKILL)
        assert asyncio.run(resumed()) == "I shall look first."
    body = json.loads(server.requests[-1])
    results = blocks(server.requests[-1], "tool_result")
    assert [result["tool_use_id"] for result in results] == [b["id"] for b in blocks(server.requests[-1], "tool_use")]
    assert results[0]["content"].startswith("Outcome unknown")
    assert body["messages"][1]["content"][0]["thinking"] == THOUGHT
