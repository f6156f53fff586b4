"""After kill -9: verdicts that a client sees, and that the model reads with the next prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fencepost.testing import ModelServer
from tests.apps.acp.client import HOLDS, Client, until
from tests.apps.acp.conftest import Connect
from tests.apps.command import Command, call, tree

GUIDANCE = "Retry it only if it is read-only or idempotent; otherwise verify first what really happened"


def killed(cli: Command, connect: Connect) -> str:
    """A session whose server was killed in the middle of a command."""
    client = connect("--approve", "all")
    session = client.new(cli.work)
    client.ask(session, "do it")
    until((cli.work / "begun").exists)
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    client.kill()
    return session


def last(client: Client, session: str) -> dict[str, Any]:
    """The last that was told of a call."""
    return client.updates(session, "tool_call_update")[-1]


@pytest.fixture
def model(cli: Command) -> Any:
    """A model behind a real HTTP server, which keeps every request."""
    answers = [call("shell", "I begin.", command=HOLDS), {"content": "I look first."}]
    with ModelServer(answers) as server:
        cli.environ |= {"FENCEPOST_MODEL": "openai:test", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k"}
        yield server


def test_loading_shows_the_verdict_that_repair_will_write_and_changes_no_byte(
    cli: Command, connect: Connect, model: ModelServer
) -> None:
    session = killed(cli, connect)
    before = tree(cli.store / session)
    client = connect("--approve", "all")
    loaded = client.call("session/load", sessionId=session, cwd=str(cli.work), mcpServers=[])
    assert tree(cli.store / session) == before
    (about,) = loaded["_meta"]["fencepost"]["calls"]
    assert (loaded["_meta"]["fencepost"]["state"], about["verdict"]) == ("interrupted", "outcome_unknown")
    shown = last(client, session)
    assert shown["status"] == "failed"
    assert GUIDANCE in shown["content"][0]["content"]["text"]
    assert client.prompt(session, "go on") == "end_turn"
    (written,) = [event for event in cli.events(session) if event["type"] == "tool/result"]
    assert written["call_id"] == shown["toolCallId"]
    assert GUIDANCE in written["content"][0]["text"]
    assert last(client, session)["content"][0]["content"]["text"] == written["content"][0]["text"], "told as written"
    assert client.close() == 0


def test_after_a_resume_the_model_reads_the_verdict_with_the_next_prompt(
    cli: Command, connect: Connect, model: ModelServer
) -> None:
    session = killed(cli, connect)
    before = tree(cli.store / session)
    client = connect("--approve", "all")
    client.call("session/resume", sessionId=session, cwd=str(cli.work))
    assert client.updates(session) == []
    assert tree(cli.store / session) == before
    assert client.prompt(session, "go on") == "end_turn"
    first = client.updates(session)[0]
    assert (first["sessionUpdate"], first["status"]) == ("tool_call_update", "failed")
    messages = json.loads(model.requests[-1])["messages"]
    (answer,) = [message for message in messages if message["role"] == "tool"]
    assert GUIDANCE in json.dumps(answer)
    assert [message["content"] for message in messages if message["role"] == "user"] == ["do it", "go on"]
    assert client.close() == 0


def test_a_session_of_another_process_is_read_and_not_prompted(
    cli: Command, connect: Connect, model: ModelServer
) -> None:
    owner = connect("--approve", "all")
    session = owner.new(cli.work)
    owner.ask(session, "do it")
    until((cli.work / "begun").exists)
    owner.until(lambda: [one for one in owner.updates(session) if one.get("status") == "in_progress"])
    client = connect("--approve", "all")
    loaded = client.call("session/load", sessionId=session, cwd=str(cli.work), mcpServers=[])
    assert loaded["_meta"]["fencepost"]["state"] == "running"
    assert last(client, session)["status"] == "in_progress", "no verdict while its owner lives"
    refused = client.response(client.ask(session, "go on"))["error"]
    assert (refused["code"], refused["data"]["code"]) == (-32010, "HELD")
    owner.kill()
    assert client.prompt(session, "go on") == "end_turn", "and taken once its owner is gone"
    assert client.close() == 0


def test_a_prompt_that_was_saved_and_never_ran_is_shown(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", "I begin.", command=HOLDS), {"content": "Here I am."})
    client = connect("--approve", "all")
    session = client.new(cli.work)
    client.ask(session, "do it")
    client.ask(session, "and then that")
    until((cli.work / "begun").exists)
    until(lambda: cli.log(session).exists() and b"and then that" in cli.log(session).read_bytes())
    client.kill()
    client = connect("--approve", "all")
    loaded = client.call("session/load", sessionId=session, cwd=str(cli.work), mcpServers=[])
    assert len(loaded["_meta"]["fencepost"]["pending"]) == 1
    users = [one["content"]["text"] for one in client.updates(session, "user_message_chunk")]
    assert users == ["do it", "and then that"]
    assert "has not run" in client.said(session)
    assert client.close() == 0


def test_a_damaged_session_is_shown_as_far_as_it_is_whole(cli: Command, connect: Connect) -> None:
    cli.finished("s1")
    log = cli.log("s1")
    cwd = json.loads(log.read_bytes().split(b"\n")[0])["cwd"]
    data = bytearray(log.read_bytes())
    at = data.index(b"It is one.")
    data[at : at + 2] = b"\xff\xff"
    log.write_bytes(data)
    before = tree(cli.store)
    client = connect()
    loaded = client.call("session/load", sessionId="s1", cwd=cwd, mcpServers=[])
    assert loaded["_meta"]["fencepost"]["state"] == "damaged"
    assert "can be read and not continued" in client.said("s1")
    assert tree(cli.store) == before
    refused = client.response(client.ask("s1", "go on"))["error"]
    assert (refused["code"], refused["data"]["code"]) == (-32010, "DAMAGED")
    assert refused["data"]["next"]
    assert client.close() == 0
    assert log.read_bytes() == bytes(data)
