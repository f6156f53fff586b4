"""Models over real HTTP: the official SDK against a server on this machine that misbehaves on request."""

import asyncio
import contextlib
import gc
import json

import pytest
from tests.plugins.asking import KEY, ask, deltas_from, fail, raw_server, run, sse, text
from tests.plugins.transcripts import Talk, call, request

from fencepost.core import events as ev
from fencepost.core.events import Usage
from fencepost.errors import ModelError
from fencepost.plugins.openai import OpenAIModel
from fencepost.runtime.answer import Assembler
from fencepost.runtime.models import Finished, ReasoningDelta, TextDelta, UsageDelta
from fencepost.testing import ModelServer, pairing_problem

CALLS = [
    {"id": "a", "function": {"name": "look", "arguments": '{"path": "ä"}'}},
    {"id": "b", "function": {"name": "look", "arguments": '{"path": "b"}'}},
]


# --- the good way -----------------------------------------------------------------------------------------------


def test_an_answer_streams_in_pieces_and_ends_with_its_marker():
    with ModelServer([{"content": "Nothing is there.", "reasoning_content": "I look"}]) as server:
        deltas = ask(server)
    assert text(deltas) == "Nothing is there."
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) > 1
    assert "".join(delta.text for delta in deltas if isinstance(delta, ReasoningDelta)) == "I look"
    assert deltas[-2:] == [UsageDelta(Usage(10, 5)), Finished("stop")]


def test_calls_arrive_to_the_letter():
    with ModelServer([{"content": None, "tool_calls": CALLS}]) as server:
        deltas = ask(server)
    assembler = Assembler(iter(["c1", "c2"]).__next__)
    for delta in deltas:
        assembler.feed(delta)
    assert assembler.blocks("tool_calls") == (
        ev.CallRequest("c1", "look", '{"path": "ä"}', "a"),
        ev.CallRequest("c2", "look", '{"path": "b"}', "b"),
    )
    assert deltas[-1] == Finished("tool_calls")


def test_what_the_server_receives_is_the_body_that_the_log_gives():
    talk = Talk(settings={"temperature": 0.25}, system="Sei kurz, ünd \u2028 \U0001f600.").user("Look.")
    talk.answer(ev.Text("I look."), call(1, provider_id="p"), call(2, '{"path":', provider_id="p")).user("Again.")
    with ModelServer(["", "done"]) as server:
        ask(server, talk.request())
        model = OpenAIModel("any", base_url=server.url)
        body = model.body(talk.request())
    [received] = server.requests
    assert json.loads(received) == body
    assert received == json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    assert pairing_problem(json.loads(received)["messages"]) is None


def test_nothing_is_sent_before_the_first_delta_is_pulled():
    async def work(model):
        stream = model.stream(request())
        before = len(server.requests)
        await anext(stream)
        await stream.aclose()
        return before, len(server.requests)

    with ModelServer(["one two three"]) as server:
        assert run(server, work) == (0, 1)


def test_one_client_serves_many_streams_at_once():
    async def work(model):
        async def one(answers):
            return text([delta async for delta in model.stream(request(answers))])

        return await asyncio.gather(*(one(number) for number in range(4)))

    with ModelServer(["one", "two", "three", "four"]) as server:
        assert run(server, work) == ["one", "two", "three", "four"]


def test_a_model_can_be_closed_twice_and_before_it_was_used():
    async def work(model):
        await model.close()
        await model.close()

    with ModelServer([]) as server:
        run(server, work)


# --- the bad ways -----------------------------------------------------------------------------------------------

BROKEN = {
    "the connection ends in the middle": ({"kind": "cut", "after": 1}, "CONNECTION", True, "one "),
    "a chunk is not JSON": ({"kind": "malformed", "after": 1}, "MALFORMED_STREAM", True, "one "),
    "a chunk is nested for ever": ({"kind": "raw", "chunks": ["[" * 100_000]}, "MALFORMED_STREAM", True, ""),
    "a chunk is no object": ({"kind": "raw", "chunks": ["[1]"]}, "MALFORMED_STREAM", True, ""),
    "a chunk has another form": ({"kind": "raw", "chunks": [{"choices": {"a": 1}}]}, "MALFORMED_STREAM", True, ""),
    "an error inside the stream": ({"kind": "error", "after": 2}, "PROVIDER_ERROR", True, "one two "),
    "an error inside the stream that lasts": (
        {"kind": "error", "body": {"error": {"message": "no", "code": "insufficient_quota"}}},
        "QUOTA",
        False,
        "",
    ),
    "the provider breaks off": (
        {"kind": "raw", "chunks": [{"choices": [{"delta": {}, "finish_reason": "insufficient_system_resource"}]}]},
        "PROVIDER_ERROR",
        True,
        "",
    ),
    "too many requests": ({"kind": "status", "status": 429, "headers": {"Retry-After": "7"}}, "RATE_LIMITED", True, ""),
    "a conflict": ({"kind": "status", "status": 409}, "CONFLICT", True, ""),
    "a timeout at the provider": ({"kind": "status", "status": 408}, "TIMEOUT", True, ""),
    "a page of a gateway": ({"kind": "status", "status": 502, "body": "<html>no</html>"}, "SERVER", True, ""),
    "a wrong key": ({"kind": "status", "status": 401, "body": {"error": {"message": KEY}}}, "AUTH", False, ""),
    "a wrong model": ({"kind": "status", "status": 404}, "NOT_FOUND", False, ""),
    "a bad request": ({"kind": "status", "status": 400}, "BAD_REQUEST", False, ""),
    "a redirect": ({"kind": "status", "status": 307, "headers": {"Location": "/v2"}}, "REDIRECT", False, ""),
    "a page instead of a stream": ({"kind": "status", "status": 200, "body": "<html>"}, "MALFORMED_STREAM", False, ""),
    "an object instead of a stream": ({"kind": "status", "status": 200, "body": {}}, "MALFORMED_STREAM", False, ""),
}


@pytest.mark.parametrize("row", BROKEN)
def test_every_failure_is_a_model_error_and_one_request(row):
    fault, code, retryable, seen = BROKEN[row]
    with ModelServer([{"content": "one two three", "fault": fault}]) as server:
        deltas, error = fail(server)
    assert (error.code, error.retryable, text(deltas)) == (code, retryable, seen)
    assert len(server.requests) == 1
    assert error.__cause__ is None
    assert error.__suppress_context__ or error.__context__ is None
    assert KEY not in f"{error!r} {error.explain()}"


def test_a_reset_connection_is_a_lost_connection():
    with ModelServer([{"content": "one two three", "fault": {"kind": "reset", "after": 1}}]) as server:
        _, error = fail(server)
    assert (error.code, error.retryable) == ("CONNECTION", True)


def test_an_endpoint_that_nobody_listens_at():
    with ModelServer([]) as server:
        pass
    _, error = fail(server)
    assert (error.code, error.retryable) == ("CONNECTION", True)
    assert server.url in str(error)


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


def test_a_connection_that_is_lost_behind_the_end_marker_lost_nothing():
    """Some gateways close without ending the body. What the model said is whole by then."""
    whole = [
        {"choices": [{"delta": {"content": "whole"}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    ]
    with raw_server(sse(*whole)) as url:
        deltas = asyncio.run(deltas_from(url))
    assert deltas == [TextDelta("whole"), Finished("stop")]


def test_a_connection_that_is_lost_behind_a_marker_that_was_contradicted_is_lost():
    chunks = [{"choices": [{"delta": {"content": letter}, "finish_reason": "stop"}]} for letter in ("a", "b")]
    with raw_server(sse(*chunks)) as url, pytest.raises(ModelError) as caught:
        asyncio.run(deltas_from(url))
    assert caught.value.code == "CONNECTION"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: \xff\xfe\n\n", "MALFORMED_STREAM"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\r\nnot gzip", "CONNECTION"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "CONNECTION"),
        (b"", "CONNECTION"),
    ],
)
def test_bytes_that_are_no_stream_at_all(data, code):
    with raw_server(data) as url, pytest.raises(ModelError) as caught:
        asyncio.run(deltas_from(url))
    assert (caught.value.code, caught.value.retryable) == (code, True)


def test_the_time_to_wait_comes_along():
    fault = {"kind": "status", "status": 503, "headers": {"Retry-After": "2", "retry-after-ms": "1500"}}
    with ModelServer([{"fault": fault}]) as server:
        _, error = fail(server)
    assert (error.status, error.retry_after) == (503, 1.5)


def test_a_transcript_that_a_provider_refuses_is_refused_here_too():
    """The server is a strict one: this is what a missing result would look like."""
    asked = Talk().user("Look.").answer(call(1)).request()
    broken = type(asked)(
        **{name: getattr(asked, name) for name in asked.__struct_fields__} | {"messages": asked.messages[:2]}
    )
    with ModelServer(["", "done"]) as server:
        _, error = fail(server, broken)
    assert error.code == "BAD_REQUEST"
    assert "have no result" in str(error)


# --- cancelling -------------------------------------------------------------------------------------------------


def test_closing_the_stream_early_ends_the_connection():
    async def work(model):
        stream = model.stream(request())
        first = await anext(stream)
        await stream.aclose()
        return first, await asyncio.to_thread(the_client_goes, server)

    with ModelServer([{"content": "one two", "fault": {"kind": "hold", "after": 1}}]) as server:
        assert run(server, work) == (TextDelta("one "), True)


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
        return task.cancelled(), await asyncio.to_thread(the_client_goes, server)

    with ModelServer([{"content": "one two", "fault": {"kind": "hold", "after": after}}]) as server:
        assert run(server, work) == (True, True)
    gc.collect()


def the_client_goes(server):
    """Whether the server reads the end of the connection, with the model still open."""
    [connection] = server._http.connections
    connection.settimeout(10)
    return connection.recv(1) == b""
