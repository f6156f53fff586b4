"""Opening, listing, forking and deleting sessions; and what is refused."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.apps.acp.client import HOLDS, Client, Schema
from tests.apps.acp.conftest import Connect
from tests.apps.command import SECONDS, Command, call, tree

NOISY = """\
import os

class Noisy:
    name = "noisy"
    requires = ()

    def apply(self, context):
        print("hello", flush=True)
        os.system("echo from a child")

plugin = Noisy()
"""


def test_it_says_what_it_can(cli: Command, schema: Schema) -> None:
    client = Client(cli, schema)
    said = client.initialize()
    assert (said["protocolVersion"], said["agentInfo"]["name"], said["authMethods"]) == (1, "fencepost", [])
    able = said["agentCapabilities"]
    assert able["loadSession"] is True
    assert sorted(able["sessionCapabilities"]) == ["close", "delete", "fork", "list", "resume"]
    assert able["promptCapabilities"] == {"image": False, "audio": False, "embeddedContext": True}
    newer = client.call("initialize", protocolVersion=7)
    assert newer["protocolVersion"] == 1, "the newest that is spoken here"
    assert client.response(client.request("logout"))["error"]["code"] == -32601
    assert client.close() == 0
    client.gone()


def test_load_replays_all_of_it_before_its_answer_and_changes_no_byte(cli: Command, connect: Connect) -> None:
    cli.finished("s1")
    before = tree(cli.root)
    client = connect()
    number = client.request("session/load", sessionId="s1", cwd=_cwd(cli, "s1"), mcpServers=[])
    loaded = client.result(number)
    frames = [frame for side, frame in client.frames if side == "<"]
    assert frames[-1]["id"] == number, "nothing comes behind the answer"
    told = client.updates("s1")
    assert [one["sessionUpdate"] for one in told] == [
        "user_message_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "tool_call_update",
        "agent_message_chunk",
    ]
    assert told[0]["content"]["text"] == "look around"
    assert client.said("s1") == "I look.It is one."
    assert (told[4]["status"], told[4]["content"][0]["content"]["text"]) == ("completed", "one\n")
    assert loaded["_meta"]["fencepost"]["state"] == "clean"
    assert client.close() == 0
    assert tree(cli.root) == before


def test_resume_replays_nothing_and_changes_no_byte(cli: Command, connect: Connect) -> None:
    cli.finished("s1")
    before = tree(cli.root)
    client = connect()
    client.call("session/resume", sessionId="s1", cwd=_cwd(cli, "s1"))
    assert client.updates("s1") == []
    assert client.close() == 0
    assert tree(cli.root) == before


def test_what_failed_to_load_changed_no_byte(cli: Command, connect: Connect) -> None:
    cli.finished("s1")
    before, cwd = tree(cli.root), _cwd(cli, "s1")
    client = connect()
    for method in ("session/load", "session/resume"):
        missing = client.refused(method, sessionId="nothing", cwd=cwd, mcpServers=[])
        assert (missing["code"], missing["data"]["code"]) == (-32002, "NOT_FOUND")
        elsewhere = client.refused(method, sessionId="s1", cwd="/", mcpServers=[])
        assert (elsewhere["code"], elsewhere["data"]["code"]) == (-32602, "USAGE")
        assert cwd in elsewhere["message"]
        assert client.refused(method, sessionId="s1", cwd="work", mcpServers=[])["code"] == -32602
    unopened = client.refused("session/prompt", sessionId="s1", prompt=[{"type": "text", "text": "x"}])
    assert unopened["data"]["code"] == "NOT_FOUND"
    assert client.close() == 0
    assert tree(cli.root) == before


def test_a_session_goes_on_where_it_was_with_the_next_prompt(cli: Command, connect: Connect) -> None:
    cli.finished("s1")
    cli.script("-", "-", {"content": "Still here."})
    client = connect()
    client.call("session/load", sessionId="s1", cwd=_cwd(cli, "s1"), mcpServers=[])
    shown = len(client.updates("s1"))
    assert client.prompt("s1", "and now?") == "end_turn"
    later = client.updates("s1")[shown:]
    assert {one["sessionUpdate"] for one in later} == {"agent_message_chunk", "session_info_update"}
    until_now = shown + len(later)
    client.call("session/load", sessionId="s1", cwd=_cwd(cli, "s1"), mcpServers=[])
    again = client.updates("s1")[until_now:]
    assert again[:shown] == client.updates("s1")[:shown], "a live session is replayed as a stored one is"
    users = [one["content"]["text"] for one in again if one["sessionUpdate"] == "user_message_chunk"]
    assert users == ["look around", "and now?"]
    assert client.close() == 0


def test_sessions_are_listed_by_directory_and_page(cli: Command, connect: Connect) -> None:
    cli.finished("s1")
    for number in range(102):
        cli.stock.copy("finished", f"t{number}", cli.store)
        _rename(cli, f"t{number}", str(cli.root / "elsewhere"))
    before = tree(cli.store)
    client = connect()
    first = client.call("session/list")
    assert len(first["sessions"]) == 100
    second = client.call("session/list", cursor=first["nextCursor"])
    assert "nextCursor" not in second
    names = [one["sessionId"] for one in first["sessions"] + second["sessions"]]
    assert sorted(names) == sorted(["s1", *(f"t{number}" for number in range(102))])
    (here,) = client.call("session/list", cwd=_cwd(cli, "s1"))["sessions"]
    assert (here["sessionId"], here["title"], here["_meta"]["fencepost"]["state"]) == ("s1", "look around", "clean")
    assert here["updatedAt"].endswith("+00:00")
    assert client.call("session/list", cwd="/nowhere")["sessions"] == []
    assert client.refused("session/list", cursor="made up")["code"] == -32602
    assert client.close() == 0
    assert tree(cli.store) == before


def test_a_fork_begins_as_the_other_did_and_goes_its_own_way(cli: Command, connect: Connect) -> None:
    cli.finished("s1")
    before = cli.log("s1").read_bytes()
    cli.script("-", "-", {"content": "On my own."})
    client = connect()
    fork = client.call("session/fork", sessionId="s1", cwd=_cwd(cli, "s1"), mcpServers=[])["sessionId"]
    assert client.updates(fork) == []
    assert client.prompt(fork, "go on") == "end_turn"
    assert client.said(fork) == "On my own."
    assert client.close() == 0
    assert cli.log("s1").read_bytes() == before


def test_a_session_is_closed_with_its_turn(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", command=HOLDS))
    client = connect("--approve", "all")
    session = client.new(cli.work)
    number = client.ask(session, "hang")
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    assert client.call("session/close", sessionId=session) == {}
    assert client.result(number)["stopReason"] == "cancelled"
    assert cli.events(session)[-1]["type"] == "turn/end"
    assert client.call("session/close", sessionId=session) == {}, "closed already"
    assert client.refused("session/close", sessionId="nothing")["code"] == -32002
    assert client.close() == 0


def test_a_deleted_session_is_in_the_trash(cli: Command, connect: Connect) -> None:
    cli.finished("s1")
    client = connect()
    client.call("session/resume", sessionId="s1", cwd=_cwd(cli, "s1"))
    assert client.call("session/delete", sessionId="s1") == {}
    assert client.call("session/delete", sessionId="s1") == {}, "deleted already"
    assert client.call("session/list")["sessions"] == []
    assert client.refused("session/resume", sessionId="s1", cwd=str(cli.work))["code"] == -32002
    assert client.close() == 0
    assert cli.run("restore", "s1").status == 0


def test_a_new_session_needs_a_directory_and_a_model(cli: Command, connect: Connect) -> None:
    client = connect()
    assert "no model is chosen" in client.refused("session/new", cwd=str(cli.work), mcpServers=[])["message"]
    cli.script({"content": "x"})
    client = connect()
    assert client.refused("session/new", cwd="work", mcpServers=[])["code"] == -32602
    assert client.refused("session/new", cwd=str(cli.work / "none"), mcpServers=[])["code"] == -32602
    more = client.refused("session/new", cwd=str(cli.work), mcpServers=[], additionalDirectories=["/tmp"])
    assert more["code"] == -32602
    assert client.call("session/list")["sessions"] == [], "a session is stored with its first prompt"
    assert client.close() == 0
    assert not cli.store.exists()


def test_each_directory_has_its_own_store_and_rules(cli: Command, connect: Connect) -> None:
    cli.script({"content": "Here."})
    del cli.environ["FENCEPOST_STORE"]
    (cli.work / "fencepost.toml").write_text('store = "jsonl:./mine"\napprove = "none"\n')
    client = connect()
    made = client.call("session/new", cwd=str(cli.work), mcpServers=[])
    assert made["modes"]["currentModeId"] == "none"
    session = made["sessionId"]
    assert client.prompt(session, "where?") == "end_turn"
    assert (cli.work / "mine" / session / "log.jsonl").exists()
    (listed,) = client.call("session/list", cwd=str(cli.work))["sessions"]
    assert listed["sessionId"] == session
    assert client.close() == 0


def test_standard_output_is_the_protocols_alone(cli: Command, connect: Connect) -> None:
    cli.plugin("noisy", NOISY)
    cli.script({"content": "Fine."})
    client = connect()
    session = client.new(cli.work)
    assert client.prompt(session, "x") == "end_turn"
    assert client.close() == 0
    assert {"hello", "from a child"} <= set(client.errors().splitlines())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_in_order(cli: Command, connect: Connect, number: signal.Signals) -> None:
    cli.script(call("shell", command=HOLDS))
    client = connect("--approve", "all")
    session = client.new(cli.work)
    prompt = client.ask(session, "hang")
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    client.process.send_signal(number)
    assert client.result(prompt)["stopReason"] == "cancelled"
    assert client.process.wait(SECONDS) == 128 + number
    assert [event["type"] for event in cli.events(session)][-2:] == ["step/end", "turn/end"]
    client.check()


def test_the_end_of_input_ends_it_in_order(cli: Command, connect: Connect) -> None:
    cli.script(call("shell", command=HOLDS))
    client = connect("--approve", "all")
    session = client.new(cli.work)
    prompt = client.ask(session, "hang")
    client.until(lambda: [one for one in client.updates(session) if one.get("status") == "in_progress"])
    assert client.close() == 0
    assert client.result(prompt)["stopReason"] == "cancelled"
    events = cli.events(session)
    assert [event["type"] for event in events][-3:] == ["tool/result", "step/end", "turn/end"]
    assert events[-1]["reason"] == "aborted"
    assert "synthetic" not in events[-1] or events[-1]["synthetic"] is False, "a real one, not repair's"
    assert client.updates(session)[-2]["status"] == "failed", "told behind the end of input too"


def _cwd(cli: Command, session: str) -> str:
    return str(json.loads(cli.log(session).read_text().split("\n")[0])["cwd"])


def _rename(cli: Command, session: str, cwd: str) -> None:
    """Let a copied session be one of its own: its header names it, and its directory."""
    path: Path = cli.log(session)
    head, rest = path.read_bytes().split(b"\n", 1)
    header = {**json.loads(head), "session": session, "cwd": cwd}
    stat = path.stat()
    path.write_bytes(json.dumps(header, separators=(",", ":")).encode() + b"\n" + rest)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
