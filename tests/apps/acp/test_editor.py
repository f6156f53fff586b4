"""What an editor has beside a conversation: unsaved changes of files, and MCP servers of its own."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.apps.acp.client import Client, Frame, writes
from tests.apps.acp.conftest import Connect
from tests.apps.command import Command, call

READS = {"fs": {"readTextFile": True, "writeTextFile": True}}
BUFFER = "saved line\nunsaved line\nthird\n"


@pytest.fixture
def editor(cli: Command, connect: Connect) -> Client:
    """A client that has a file open with changes it has not saved, and says nothing of other files."""
    (cli.work / "open.txt").write_text("saved line\n")
    (cli.work / "other.txt").write_text("as on disk\n")
    cli.script("-")  # the tests say what it answers
    client = connect("--approve", "all", capabilities=READS)

    def show(params: Frame) -> Frame:
        path = Path(params["path"])
        return {"content": BUFFER if path.name == "open.txt" else path.read_text()}

    client.answers["fs/read_text_file"] = show
    return client


def ends(client: Client, session: str) -> list[Any]:
    """How each call ended: its status, and the text of its result."""
    told = client.updates(session, "tool_call_update")
    done = [one for one in told if one["status"] in {"completed", "failed"}]
    return [(one["status"], one["content"][-1]["content"]["text"]) for one in done]


def test_the_model_reads_what_the_user_sees(cli: Command, editor: Client) -> None:
    cli.script(
        call("read_file", path="open.txt"),
        call("read_file", path="open.txt", offset=2, limit=1),
        call("read_file", path="other.txt"),
        {"content": "Read."},
    )
    session = editor.new(cli.work)
    assert editor.prompt(session, "read") == "end_turn"
    whole, part, other = ends(editor, session)
    assert whole[0] == part[0] == other[0] == "completed"
    assert whole[1].startswith(BUFFER)
    assert "unsaved changes" in whole[1]
    assert part[1].startswith("unsaved line\n[")
    assert other[1] == "as on disk\n"
    results = [event for event in cli.events(session) if event["type"] == "tool/result"]
    assert results[0]["content"][0]["text"] == whole[1], "what the model gets is in the log"
    assert editor.close() == 0


def test_unsaved_work_is_not_written_over(cli: Command, editor: Client) -> None:
    edit = call("edit_file", path="open.txt", old="saved", new="lost")
    cli.script(writes("open.txt", "lost"), edit, writes("other.txt", "changed"), {"content": "Done."})
    session = editor.new(cli.work)
    assert editor.prompt(session, "write") == "end_turn"
    first, second, third = ends(editor, session)
    assert first[0] == second[0] == "failed"
    assert "unsaved changes" in first[1]
    assert "ask them to save" in second[1]
    assert third[0] == "completed"
    assert (cli.work / "open.txt").read_text() == "saved line\n"
    assert (cli.work / "other.txt").read_text() == "changed"
    assert editor.heard("fs/write_text_file") == [], "files are written where they are durable"
    assert editor.close() == 0


@pytest.mark.parametrize("answer", [{}, {"content": 5}, {"content": "saved line\r\n"}, {"content": "saved line"}])
def test_a_client_that_has_nothing_to_say_changes_nothing(cli: Command, connect: Connect, answer: Frame) -> None:
    (cli.work / "open.txt").write_text("saved line\n")
    cli.script(call("read_file", path="open.txt"), writes("open.txt", "new"), {"content": "Done."})
    client = connect("--approve", "all", capabilities=READS, checked=False)
    client.answers["fs/read_text_file"] = lambda _: answer
    session = client.new(cli.work)
    assert client.prompt(session, "read") == "end_turn"
    assert ends(client, session)[0] == ("completed", "saved line\n")
    assert ends(client, session)[1][0] == "completed"
    assert client.close() == 0


def test_a_client_that_does_not_answer_holds_nothing_up(cli: Command, connect: Connect) -> None:
    (cli.work / "open.txt").write_text("saved line\n")
    cli.script(call("read_file", path="open.txt"), {"content": "Done."})
    client = connect("--approve", "all", capabilities=READS)
    session = client.new(cli.work)
    assert client.prompt(session, "read") == "end_turn"
    assert ends(client, session) == [("completed", "saved line\n")]
    assert len(client.heard("$/cancel_request")) == 1
    assert client.close() == 0


MCP_SERVER = '''
import os, sys
from mcp.server.mcpserver import MCPServer
server = MCPServer("greeter")

@server.tool()
def greet(name: str) -> str:
    """Greet."""
    return f"{os.environ['GREETING']}, {name}, {sys.argv[1]}"

server.run()
'''


def test_mcp_servers_of_the_client_are_tools_of_its_session(cli: Command, connect: Connect) -> None:
    program = cli.root / "greeter.py"
    program.write_text(MCP_SERVER)
    server = {
        "name": "My greeter",
        "command": sys.executable,
        "args": [str(program), "${NOT_A_VARIABLE}"],
        "env": [{"name": "GREETING", "value": "secret ${HELLO}"}],
    }
    greet = {"function": {"name": "My-greeter__greet", "arguments": {"name": "Ada"}}}
    cli.script({"tool_calls": [greet]}, {"content": "Greeted."})
    client = connect("--approve", "all")
    session = client.new(cli.work, [server])
    plain = client.new(cli.work)
    assert client.prompt(session, "greet") == "end_turn"
    assert ends(client, session) == [("completed", "secret ${HELLO}, Ada, ${NOT_A_VARIABLE}")]
    assert client.prompt(plain, "greet") == "end_turn"
    assert ends(client, plain)[0][0] == "failed", "a session of its own"
    starts = [event for event in cli.events(session) if event["type"].startswith("mcp/")]
    assert starts
    assert "secret" not in str(starts)
    assert client.close() == 0
    client = connect("--approve", "all")
    loaded = client.call("session/load", sessionId=session, cwd=str(cli.work), mcpServers=[])
    assert loaded["_meta"]["fencepost"]["state"] == "clean", "what was recorded of servers is known here"


def test_a_server_that_cannot_be_started_is_told_and_the_session_goes_on(cli: Command, connect: Connect) -> None:
    cli.script({"content": "Without it."})
    client = connect()
    nothing = {"name": "nothing", "command": "/does/not/exist", "args": [], "env": []}
    session = client.new(cli.work, [nothing])
    assert client.prompt(session, "go") == "end_turn"
    assert "Without it." in client.said(session)
    client.until(lambda: "goes on without its tools" in client.said(session))
    assert client.close() == 0
    sse = {"type": "sse", "name": "old", "url": "http://127.0.0.1:9/sse", "headers": []}
    client = connect()
    refused = client.refused("session/new", cwd=str(cli.work), mcpServers=[sse])
    assert (refused["code"], refused["data"]["code"]) == (-32602, "USAGE")
    assert client.close() == 0
