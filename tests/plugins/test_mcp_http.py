"""The tools of MCP servers over streamable HTTP: real sockets, a server of the SDK, and one that answers oddly."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import socket
import subprocess
import threading

import pytest
from tests.plugins.mcp_desk import PEER, McpAgent, run, until
from tests.runtime.rig import call, calls

from fencepost.core.verdict import verdicts
from fencepost.plugins.mcp import McpServer
from fencepost.plugins.mcp_link import KEY
from fencepost.plugins.mcp_record import ServerStarting


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers_at(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


class Elsewhere:
    """The peer as a server that is not ours."""

    def __init__(self):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process = None

    def start(self):
        """Return when it listens."""
        self.process = subprocess.Popen([PEER.command, *PEER.args, "--http", str(self.port)])

        async def listening():
            await until(lambda: answers_at(self.port), "the server listens")

        run(listening)

    def begin(self):
        """Start it again, without waiting."""
        self.process = subprocess.Popen([PEER.command, *PEER.args, "--http", str(self.port)])

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def elsewhere():
    made = Elsewhere()
    made.start()
    yield made
    made.kill()


def test_a_call_with_headers_and_key_and_no_process_of_ours(elsewhere, monkeypatch):
    monkeypatch.setenv("WIKI_TOKEN", "hush")

    async def scenario():
        server = McpServer(url=elsewhere.url, headers={"Authorization": "Bearer ${WIKI_TOKEN}"})
        async with McpAgent([calls(call("wiki__look")), "done"], {"wiki": server}) as agent:
            await agent.go()
            seen = json.loads(agent.text("wiki__look"))
            (record,) = agent.log.fold.calls.values()
            assert (seen["meta"][KEY], seen["headers"]["authorization"]) == (record.call_id, "Bearer hush")
            assert seen["pid"] == elsewhere.process.pid
            assert agent.events(ServerStarting) == []

    run(scenario)


def test_progress_and_cancel_pass(elsewhere, tmp_path):
    async def scenario():
        path = tmp_path / "world"
        answers = [calls(call("wiki__hold", {"path": str(path)}))]
        async with McpAgent(answers, {"wiki": McpServer(url=elsewhere.url)}) as agent:
            turn = asyncio.create_task(agent.go())
            await until(lambda: path.exists() and agent.progress(), "the tool holds")
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert agent.results() == ["wiki__hold: TOOL_OUTCOME_UNKNOWN"]
            await until(lambda: path.read_text().split() == ["holding", "cancelled"], "the server heard it")

    run(scenario)


@pytest.mark.parametrize(("die", "world"), [("before", ""), ("after", "acted\n")])
def test_a_server_that_dies_in_a_call_is_unknown_then_not_there_then_back(elsewhere, tmp_path, die, world):
    """Three calls: the request left; nobody took it in; it works again."""

    async def scenario():
        path = tmp_path / "world"
        answers = [
            calls(call("wiki__act", {"path": str(path), "die": die})),
            calls(call("wiki__look")),
            "gone",
            calls(call("wiki__act", {"path": str(path)})),
            "back",
        ]
        async with McpAgent(answers, {"wiki": McpServer(url=elsewhere.url)}) as agent:
            await agent.go()
            assert agent.results() == ["wiki__act: TOOL_OUTCOME_UNKNOWN", "wiki__look: TOOL_NOT_STARTED"]
            assert [one.verdict for one in verdicts(agent.log.fold)] == ["outcome_unknown", "not_started"]
            assert (path.read_text() if path.exists() else "") == world
            elsewhere.process.wait()
            elsewhere.begin()
            await until(lambda: answers_at(elsewhere.port), "the server listens again")
            await agent.go()
            assert agent.results()[2:] == ["wiki__act: ok"]
            assert path.read_text() == world + "acted\n"

    run(scenario)


def test_nobody_at_the_address():
    async def scenario():
        url = f"http://user:secret@127.0.0.1:{free_port()}/mcp?key=secret"
        async with McpAgent(["done"], {"wiki": McpServer(url=url)}) as agent:
            await agent.go()
            (note,) = agent.notes()
            assert "(http://127.0.0.1:" in note
            assert "ConnectError" in note
            assert "secret" not in note

    run(scenario)


# --- a server that answers oddly --------------------------------------------------------------------------------


class Odd(http.server.BaseHTTPRequestHandler):
    """Speaks the 2025 protocol with a session, by hand. `server.script` says how calls are answered, one after another:
    a status, or `cut` to close the connection, or `ok`."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number = request.get("id")
        if self.server.closed_to_all:
            return self.answer(401, b"who are you", "text/plain")
        match request["method"]:
            case "initialize":
                self.server.sessions += 1
                about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
                return self.result(number, {**about, "serverInfo": {"name": "odd", "version": "0"}})
            case "tools/list":
                return self.result(number, {"tools": [{"name": "do", "inputSchema": {"type": "object"}}]})
            case "tools/call":
                return self.call(number, self.server.script.pop(0))
            case _ if number is None:
                return self.answer(202, b"")
            case _:
                return self.error(200, number, -32601, "no such method")

    def call(self, number, how):
        self.server.seen.append(how)
        if how == "ok":
            return self.result(number, {"content": [{"type": "text", "text": "did it"}]})
        if how == "cut":
            return self.close_rudely()
        if how == "no session":
            return self.error(400, None, -32000, "Bad Request: No valid session ID provided")
        if how == "closed":
            return self.error(200, number, -32000, "closed on Sundays")
        return self.answer(int(how), b"<h1>sorry</h1>", "text/html")

    def close_rudely(self):
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def result(self, number, result):
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode())

    def error(self, status, number, code, message):
        body = {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
        self.answer(status, json.dumps(body).encode())

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("mcp-session-id", f"session-{self.server.sessions}")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.answer(405, b"")

    def do_DELETE(self):
        self.answer(200, b"")

    def log_message(self, *_):
        pass


@pytest.fixture
def odd():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    server.daemon_threads = True
    server.sessions, server.script, server.seen, server.closed_to_all = 0, [], [], False
    server.url = f"http://127.0.0.1:{server.server_port}/mcp"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("script", "results", "sessions", "said"),
    [
        (["ok"], ["ok"], 1, "did it"),
        (["404", "ok"], ["ok"], 2, "did it"),
        (["404", "404"], ["TOOL_NOT_STARTED"], 2, "took no request"),
        (["no session", "ok"], ["MCP_ERROR", "ok"], 2, "(it answered with HTTP 400 Bad Request)"),
        (["403", "ok"], ["MCP_ERROR", "ok"], 1, "(it answered with HTTP 403 Forbidden)"),
        (["502", "ok"], ["TOOL_OUTCOME_UNKNOWN", "ok"], 1, "(it answered with HTTP 502 Bad Gateway)"),
        (["cut", "ok"], ["TOOL_OUTCOME_UNKNOWN", "ok"], 1, "was lost after the request had left"),
        (["closed", "ok"], ["TOOL_OUTCOME_UNKNOWN", "ok"], 1, "closed on Sundays"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, list) else None,
)
def test_what_a_status_lets_us_claim(odd, script, results, sessions, said):
    """A 404 in a session is the word for "I do not know you": nobody looked, so a new session may ask again."""

    async def scenario():
        odd.script = list(script)
        answers = [*[calls(call("odd__do"))] * len(results), "done"]
        async with McpAgent(answers, {"odd": McpServer(url=odd.url)}) as agent:
            await agent.go()
            assert agent.results() == [f"odd__do: {code}" for code in results]
            assert said in str(next(iter(agent.log.fold.calls.values())).result.content)
            assert (odd.seen, odd.sessions) == (script, sessions)

    run(scenario)


def test_a_server_that_wants_to_know_who_we_are(odd):
    async def scenario():
        odd.closed_to_all = True
        async with McpAgent(["done"], {"odd": McpServer(url=odd.url)}) as agent:
            await agent.go()
            assert "it answered with HTTP 401 Unauthorized" in agent.notes()[0]

    run(scenario)
