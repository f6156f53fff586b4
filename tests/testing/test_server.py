"""The model server as a process and over plain HTTP. How it misbehaves is seen in `tests/plugins/test_openai.py`."""

import http.client
import json
import signal
import subprocess
import sys

import pytest

from fencepost.plugins.script import NotAnAnswerError
from fencepost.testing import ModelServer


def post(server, messages, path="/v1/chat/completions", **fields):
    """Status, content type and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("POST", path, json.dumps({"model": "m", "messages": messages, **fields}))
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read()
    finally:
        connection.close()


def talk(answers):
    return [{"role": "user", "content": "hi"}, *[{"role": "assistant", "content": "x"}] * answers]


def events(body):
    return [line.removeprefix(b"data: ") for line in body.split(b"\n\n") if line]


def test_a_stream_is_made_of_chunks_with_a_finish_reason_usage_and_an_end():
    with ModelServer(["one two"]) as server:
        status, kind, body = post(server, talk(0), stream=True, stream_options={"include_usage": True})
    *chunks, end = events(body)
    parsed = [json.loads(chunk) for chunk in chunks]
    assert (status, kind, end) == (200, "text/event-stream; charset=utf-8", b"[DONE]")
    assert [chunk["choices"][0]["delta"] for chunk in parsed[:-1]] == [
        {"content": "one ", "role": "assistant"},
        {"content": "two"},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in parsed[:-1]] == [None, None, "stop"]
    assert (parsed[-1]["choices"], parsed[-1]["usage"]["total_tokens"]) == ([], 15)


def test_usage_comes_only_if_it_is_asked_for():
    with ModelServer(["one two"]) as server:
        _, _, body = post(server, talk(0), stream=True)
    assert b"usage" not in body


def test_without_a_stream_the_answer_is_one_object():
    call = {"id": "x", "function": {"name": "look", "arguments": {"path": "."}}}
    with ModelServer([{"content": "I look.", "reasoning_content": "hm", "tool_calls": [call]}]) as server:
        status, kind, body = post(server, talk(0))
    choice = json.loads(body)["choices"][0]
    assert (status, kind, choice["finish_reason"]) == (200, "application/json", "tool_calls")
    assert choice["message"] == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "hm",
        "tool_calls": [{"id": "x", "type": "function", "function": {"name": "look", "arguments": '{"path": "."}'}}],
    }


def test_the_number_of_assistant_messages_chooses_the_answer():
    with ModelServer(["one", "two", "three"]) as server:
        said = [json.loads(post(server, talk(n))[2])["choices"][0]["message"]["content"] for n in (2, 0, 1, 1)]
    assert said == ["three", "one", "two", "two"]


def test_attempts_at_one_answer_come_in_order_and_the_last_one_stays():
    with ModelServer([[{"fault": {"kind": "status", "status": 429}}, "fine"]]) as server:
        assert [post(server, talk(0))[0] for _ in range(3)] == [429, 200, 200]


def test_it_keeps_every_request_to_the_byte():
    with ModelServer(["one"]) as server:
        post(server, talk(0), temperature=0.5)
    assert server.requests == [json.dumps({"model": "m", "messages": talk(0), "temperature": 0.5}).encode()]
    assert server.headers[0]["host"] == f"127.0.0.1:{server.port}"


@pytest.mark.parametrize(
    ("messages", "path", "status", "says"),
    [
        (talk(1), "/v1/chat/completions", 400, "the script has no answer 2"),
        ([{"role": "tool", "tool_call_id": "x", "content": ""}], "/v1/chat/completions", 400, "a result for 'x'"),
        (None, "/v1/chat/completions", 400, "no chat request"),
        ([3], "/v1/chat/completions", 400, "no chat request"),
        (talk(0), "/v1/responses", 404, "there is no /v1/responses"),
    ],
)
def test_what_is_no_sound_request_is_refused_with_the_reason(messages, path, status, says):
    with ModelServer(["one"]) as server:
        got, _, body = post(server, messages, path)
    assert (got, says in json.loads(body)["error"]["message"]) == (status, True)


@pytest.mark.parametrize(
    "item", [{}, [], [[]], 3, {"content": "x", "fault": {"kind": "bored"}}, {"fault": {"kind": "cut", "afterr": 1}}]
)
def test_a_script_that_makes_no_sense_is_refused_when_the_server_is_made(item):
    with pytest.raises(NotAnAnswerError):
        ModelServer([item])


def test_closing_it_releases_a_hold_and_waits_for_its_threads():
    with ModelServer([{"content": "one two", "fault": {"kind": "hold"}}]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        connection.request("POST", "/v1/chat/completions", json.dumps({"messages": talk(0)}))
        assert server.holds[0].reached.wait(10)
    assert server.holds[0].release.is_set()
    connection.close()


def test_as_a_process_it_says_where_it_is_and_when_a_hold_is_reached(tmp_path):
    script = tmp_path / "script.jsonl"
    script.write_text('{"content": "one"}\n\n[{"fault": {"kind": "hold"}}, {"content": "two"}]\n')
    port_file = tmp_path / "port"
    command = [sys.executable, "-W", "error", "-m", "fencepost.testing.model_server", script, "--port-file", port_file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().strip()
        server = ProcessServer(int(url.removeprefix("http://127.0.0.1:").removesuffix("/v1")))
        assert json.loads(post(server, talk(0))[2])["choices"][0]["message"]["content"] == "one"
        held = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        held.request("POST", "/v1/chat/completions", json.dumps({"messages": talk(1)}))
        assert process.stdout.readline() == "hold 0\n"
        assert json.loads(post(server, talk(1))[2])["choices"][0]["message"]["content"] == "two"
        assert port_file.read_text() == str(server.port)
        process.send_signal(signal.SIGTERM)
        assert (process.wait(10), process.stderr.read()) == (0, "")
        held.close()


class ProcessServer:
    """Where a server process listens."""

    def __init__(self, port):
        self.port = port


def test_a_script_that_cannot_be_read_ends_the_process_with_a_sentence(tmp_path):
    script = tmp_path / "script.jsonl"
    script.write_text('{"content": "one"}\n{')
    for path, says in ((script, "line 2 is not JSON"), (tmp_path / "missing", "No such file")):
        done = subprocess.run(
            [sys.executable, "-m", "fencepost.testing.model_server", path], capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (2, True, False)


# --- Anthropic's form -------------------------------------------------------------------------------------------


def said(answers):
    text = [{"type": "text", "text": "x"}]
    return [{"role": "user", "content": text}, *[{"role": "assistant", "content": text}] * answers]


def test_the_path_decides_which_form_is_spoken():
    call = {"id": "x", "function": {"name": "look", "arguments": {"path": "."}}}
    with ModelServer([{"content": "I look.", "reasoning_content": "hm", "tool_calls": [call]}]) as server:
        status, _, body = post(server, said(0), "/v1/messages", max_tokens=9)
        _, kind, stream = post(server, said(0), "/v1/messages", max_tokens=9, stream=True)
    answer = json.loads(body)
    assert (status, answer["stop_reason"]) == (200, "tool_use")
    assert [block["type"] for block in answer["content"]] == ["thinking", "text", "tool_use"]
    assert answer["content"][2]["input"] == {"path": "."}
    assert (kind, stream.rstrip().splitlines()[-2]) == ("text/event-stream; charset=utf-8", b"event: message_stop")


@pytest.mark.parametrize(
    ("messages", "fields", "says"),
    [
        (said(0), {}, "max_tokens"),
        ([*said(0), *said(0)], {"max_tokens": 9}, "'user' where assistant is next"),
        ([{"role": "system", "content": "x"}], {"max_tokens": 9}, "a field of its own"),
        (
            [
                *said(0),
                {
                    "role": "assistant",
                    "content": [{"type": "thinking", "thinking": "a", "signature": "s"}, {"type": "text", "text": "x"}],
                },
            ],
            {"max_tokens": 9},
            "Invalid `signature`",
        ),
        (None, {"max_tokens": 9}, "no messages request"),
    ],
)
def test_what_the_strict_endpoint_refuses(messages, fields, says):
    with ModelServer(["hello"]) as server:
        status, _, body = post(server, messages, "/v1/messages", **fields)
    assert status == 400
    assert says in json.loads(body)["error"]["message"]
