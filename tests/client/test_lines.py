"""`fencepost serve --stdio`, met as bytes: JSON-RPC 2.0 to the letter, and the end of the input is the end."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from fencepost.client.schema import schema
from tests.client.servers import SECONDS, Place, asks


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.script({"content": "Done."})
    return made


def ask(number: object, method: str, **params: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"


def served(place: Place, *requests: bytes) -> tuple[dict[Any, dict[str, Any]], list[dict[str, Any]], int]:
    """The answers by id, what came unasked, and the exit status."""
    server = place.start("--stdio", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = server.communicate(b"".join(requests), timeout=SECONDS)
    messages = [json.loads(line) for line in out.split(b"\n") if line]
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    answers = {message["id"]: message for message in messages if "id" in message}
    return answers, [message["params"] for message in messages if "method" in message], server.returncode


def test_what_was_asked_before_the_end_of_the_input_is_answered(place: Place) -> None:
    answers, _, status = served(place, ask(1, "initialize", protocol=1), ask("b", "session/create", session="s1"))
    assert status == 0
    assert answers[1]["result"]["protocol"] == 1
    assert answers["b"]["result"]["live"] is True


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        (b"nonsense\n", None, -32700),
        (b"\xff\xfe\n", None, -32700),
        (b'{"id":7,"method":"session/list"}\n', 7, -32600),
        (b"[]\n", None, -32600),
        (ask(7, "no/such"), 7, -32601),
        (ask(7, "session/open"), 7, -32602),
        (ask(7, "session/open", session="s", more=1), 7, -32602),
        (ask(7, "initialize", protocol=99), 7, -32000),
    ],
)
def test_what_is_no_request_is_told_and_the_connection_lives(
    place: Place, line: bytes, number: object, code: int
) -> None:
    answers, _, status = served(place, line, ask("after", "session/list"))
    assert answers[number]["error"]["code"] == code
    assert answers[number]["error"]["message"]
    assert answers["after"]["result"] == {"sessions": []}
    assert status == 0


def test_a_line_over_the_limit_costs_one_error(place: Place) -> None:
    long = ask(1, "prompt/queue", session="s1", text="x" * (50 << 20))
    answers, _, _ = served(place, long, ask(2, "session/list"))
    assert answers[None]["error"]["code"] == -32600
    assert answers[2]["result"] == {"sessions": []}


def test_errors_carry_the_products_code_and_what_to_do(place: Place) -> None:
    answers, _, _ = served(place, ask(1, "session/resume", session="none"))
    assert answers[1]["error"]["data"]["code"] == "NOT_FOUND"
    assert answers[1]["error"]["data"]["next_act"]


def test_a_notification_is_not_answered(place: Place) -> None:
    line = json.dumps({"jsonrpc": "2.0", "method": "session/list"}).encode() + b"\n"
    answers, _, _ = served(place, line, ask(1, "session/list"))
    assert set(answers) == {1}


class Talk:
    """One conversation."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        self.server = server
        self.sent: list[dict[str, Any]] = []

    def ask(self, number: object, method: str, **params: object) -> dict[str, Any]:
        assert self.server.stdin is not None
        self.server.stdin.write(ask(number, method, **params))
        self.server.stdin.flush()
        return self.answer(number)

    def answer(self, number: object) -> dict[str, Any]:
        while True:
            message = self.message()
            if "id" in message:
                assert message["id"] == number, message
                return message
            self.sent.append(message["params"])

    def message(self) -> dict[str, Any]:
        assert self.server.stdout is not None
        line = self.server.stdout.readline()
        assert line, "the server ended"
        message: dict[str, Any] = json.loads(line)
        return message

    def until(self, kind: str) -> dict[str, Any]:
        while True:
            for sent in self.sent:
                if sent["kind"] == kind:
                    return sent
            self.sent.append(self.message()["params"])


@pytest.fixture
def talk(place: Place) -> Any:
    server = place.start("--stdio", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with server:
        yield Talk(server)
        server.kill()


def test_a_follower_gets_each_durable_event_once_and_in_order(place: Place, talk: Talk) -> None:
    talk.ask(1, "session/create", session="s1", cwd=str(place.work))
    talk.ask(2, "events/follow", session="s1")
    name = talk.ask(3, "prompt/queue", session="s1", text="Go.")["result"]["input_id"]
    result = talk.ask(4, "prompt/wait", session="s1", input_id=name)["result"]
    assert (result["reason"], result["text"]) == ("completed", "Done.")
    talk.ask(5, "session/close", session="s1")
    talk.until("ended")
    followed = [sent for sent in talk.sent if sent["kind"] == "event"]
    assert [sent["seq"] for sent in followed] == list(range(len(followed)))
    read = talk.ask(6, "events/read", session="s1", start=0, limit=1000)["result"]["events"]
    assert [sent["event"] for sent in followed] == read
    exported = talk.ask(7, "session/export", session="s1")["result"]["lines"]
    assert exported[1:] == read
    assert exported[0]["session"] == "s1"


def test_a_question_is_sent_and_answered_once(place: Place, talk: Talk) -> None:
    place.script(asks("echo ran > ran"), {"content": "Done."})
    talk.ask(1, "session/create", session="s1", cwd=str(place.work))
    talk.ask(2, "events/follow", session="s1")
    talk.ask(3, "prompt/queue", session="s1", text="Go.", input_id="i_one")
    question = talk.until("question")["question"]
    assert (question["tool"], question["arguments"]) == ("shell", {"command": "echo ran > ran"})
    assert not (place.work / "ran").exists()
    told = {"session": "s1", "call_id": question["call_id"], "allowed": True}
    assert talk.ask(4, "approval/decide", **told)["result"] == {}
    assert talk.ask(5, "approval/decide", **told)["error"]["data"]["code"] == "USAGE"
    assert talk.ask(6, "prompt/wait", session="s1", input_id="i_one")["result"]["reason"] == "completed"
    assert (place.work / "ran").exists()


def test_a_prompt_with_its_own_id_is_queued_once_and_runs_once(place: Place, talk: Talk) -> None:
    talk.ask(1, "session/create", session="s1", cwd=str(place.work))
    for number in (2, 3, 4):
        answer = talk.ask(number, "prompt/queue", session="s1", text="Go.", input_id="i_one")
        assert answer["result"] == {"input_id": "i_one"}
    talk.ask(5, "prompt/wait", session="s1", input_id="i_one")
    events = talk.ask(6, "events/read", session="s1", start=0, limit=1000)["result"]["events"]
    assert [event["type"] for event in events].count("input/queued") == 1
    assert [event["type"] for event in events].count("turn/start") == 1


def test_the_queue_can_be_edited_while_a_turn_runs(place: Place, talk: Talk) -> None:
    place.script(asks("echo begun > begun; exec sleep 600"), {"content": "Done."})
    talk.ask(1, "session/create", session="s1", cwd=str(place.work))
    talk.ask(2, "events/follow", session="s1")
    talk.ask(3, "prompt/queue", session="s1", text="Go.", input_id="i_one")
    question = talk.until("question")["question"]
    talk.ask(4, "prompt/queue", session="s1", text="Then this.", input_id="i_two")
    edited = talk.ask(5, "prompt/edit", session="s1", input_id="i_two", text="Rather that.")["result"]["input_id"]
    pending = talk.ask(6, "session/open", session="s1")["result"]["pending"]
    assert [(item["input_id"], item["text"]) for item in pending] == [(edited, "Rather that.")]
    talk.ask(7, "prompt/drop", session="s1", input_id=edited)
    assert talk.ask(8, "session/open", session="s1")["result"]["pending"] == []
    talk.ask(9, "turn/cancel", session="s1")
    late = talk.ask(10, "approval/decide", session="s1", call_id=question["call_id"], allowed=True)
    assert late["error"]["data"]["code"] == "USAGE"
    assert talk.ask(11, "prompt/wait", session="s1", input_id="i_one")["result"]["reason"] == "aborted"


@pytest.mark.parametrize("end", ["input", "signal"])
def test_the_end_closes_the_turn_and_leaves_it_durable(place: Place, talk: Talk, end: str) -> None:
    place.script(asks("echo begun > begun; exec sleep 600"), {"content": "Done."})
    talk.ask(1, "session/create", session="s1", cwd=str(place.work))
    talk.ask(2, "events/follow", session="s1")
    talk.ask(3, "prompt/queue", session="s1", text="Go.", input_id="i_one")
    call = talk.until("question")["question"]["call_id"]
    talk.ask(4, "approval/decide", session="s1", call_id=call, allowed=True)
    server = talk.server
    assert server.stdin is not None
    if end == "input":
        server.stdin.close()
    else:
        server.send_signal(signal.SIGTERM)
    talk.until("ended")
    assert server.wait(SECONDS) == (0 if end == "input" else 143)
    kinds = [sent["event"]["type"] for sent in talk.sent if sent["kind"] == "event"]
    assert kinds[-2:] == ["step/end", "turn/end"]


def test_results_fit_the_published_schema(place: Place, talk: Talk) -> None:
    made = schema()
    requests: list[tuple[str, dict[str, object]]] = [
        ("initialize", {"protocol": 1}),
        ("session/create", {"session": "s1", "cwd": str(place.work)}),
        ("prompt/queue", {"session": "s1", "text": "Go.", "input_id": "i_one"}),
        ("prompt/wait", {"session": "s1", "input_id": "i_one"}),
        ("session/list", {}),
        ("session/open", {"session": "s1"}),
        ("session/inspect", {"session": "s1"}),
        ("session/export", {"session": "s1"}),
        ("session/fork", {"session": "s1", "to": "s2"}),
        ("events/read", {"session": "s2"}),
        ("approval/list", {"session": "s1"}),
        ("turn/continue", {"session": "s1"}),
        ("turn/cancel", {"session": "s1"}),
        ("session/close", {"session": "s1"}),
        ("session/resume", {"session": "s1"}),
    ]
    for number, (method, params) in enumerate(requests):
        parts = made["methods"][method]
        jsonschema_rs.validate({**parts["params"], "$defs": made["$defs"]}, params)
        answer = talk.ask(number, method, **params)
        assert "result" in answer, (method, answer)
        jsonschema_rs.validate({**parts["result"], "$defs": made["$defs"]}, answer["result"])
