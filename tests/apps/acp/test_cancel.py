"""Cancelling: `cancelled`, behind durable closing records; and requests that are taken back."""

from __future__ import annotations

from tests.apps.acp.client import HOLDS, Client, allow, until, writes
from tests.apps.acp.conftest import Connect
from tests.apps.command import Command, call


def entered(cli: Command, client: Client, session: str) -> None:
    """Wait until a command that hangs has begun, and is told of."""
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    until((cli.work / "begun").exists)


def test_a_cancelled_turn_is_closed_durably_before_the_answer(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", "I begin.", command=HOLDS), {"content": "Later."})
    client = connect("--approve", "all")
    session = client.new(cli.work)
    number = client.ask(session, "hang")
    waiting = client.ask(session, "and then")
    entered(cli, client, session)
    client.notify("session/cancel", sessionId=session)
    answer = client.result(number)
    client.process.kill()
    assert (answer["stopReason"], answer["_meta"]["fencepost"]["saved"]) == ("cancelled", True)
    events = cli.events(session)
    assert [event["type"] for event in events if event["type"].endswith("/end")] == ["step/end", "turn/end"]
    assert client.response(waiting)["result"]["stopReason"] == "cancelled", "all that was asked for"
    end = client.updates(session, "tool_call_update")[-1]
    assert (end["status"], end["_meta"]["fencepost"]["verdict"]) == ("failed", "outcome_unknown")


def test_the_session_works_on_after_a_cancel(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", "I begin.", command=HOLDS), {"content": "Later."})
    client = connect("--approve", "all")
    session = client.new(cli.work)
    number = client.ask(session, "hang")
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    client.notify("session/cancel", sessionId=session)
    assert client.result(number)["stopReason"] == "cancelled"
    assert client.prompt(session, "go on") == "end_turn"
    client.notify("session/cancel", sessionId=session)
    client.notify("session/cancel", sessionId="nothing")
    client.notify("no/such", thing=1)
    assert client.said(session) == "I begin.Later."


def test_a_question_is_taken_back_with_its_turn(cli: Command, connect: Connect) -> None:
    cli.script(writes("a.txt", "x"), {"content": "Done."})
    client = connect()
    session = client.new(cli.work)
    number = client.ask(session, "write")
    (question,) = client.until(lambda: client.heard("session/request_permission"))
    client.notify("session/cancel", sessionId=session)
    assert client.result(number)["stopReason"] == "cancelled"
    (back,) = client.heard("$/cancel_request")
    assert back["params"]["requestId"] == question["id"]
    client.send({"jsonrpc": "2.0", "id": question["id"], "result": allow(question["params"])})
    end = client.updates(session, "tool_call_update")[-1]
    assert end["_meta"]["fencepost"]["verdict"] == "not_started"
    assert client.close() == 0
    assert not (cli.work / "a.txt").exists()


def test_a_request_can_be_taken_back(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", command=HOLDS))
    client = connect("--approve", "all")
    session = client.new(cli.work)
    number = client.ask(session, "hang")
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    client.notify("$/cancel_request", requestId=number)
    assert client.result(number)["stopReason"] == "cancelled"
    client.notify("$/cancel_request", requestId=number)
    client.notify("$/cancel_request", requestId="nothing")
    assert client.call("session/close", sessionId=session) == {}
    assert client.close() == 0
