"""The tools of MCP servers over stdin and stdout: what a call may claim, whatever becomes of the server."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import pytest
from tests.plugins.mcp_desk import PEER, RAW, McpAgent, carriers, kill, linux, run, until
from tests.runtime.rig import call, calls

from fencepost.core import events as ev
from fencepost.core.verdict import verdicts
from fencepost.plugins.mcp import McpServer
from fencepost.plugins.mcp_link import KEY
from fencepost.plugins.mcp_record import ServerProcess, ServerStarting


def lines(path):
    return path.read_text().split() if path.exists() else []


def with_(server, **fields):
    return msgspec.structs.replace(server, **fields)


# --- a call that works ------------------------------------------------------------------------------------------


def test_the_call_id_travels_as_the_idempotency_key():
    async def scenario():
        async with McpAgent([calls(call("peer__look")), "done"], {"peer": PEER}) as agent:
            assert (await agent.go()).reason == "completed"
            (record,) = agent.log.fold.calls.values()
            assert json.loads(agent.text("peer__look"))["meta"][KEY] == record.call_id
            assert agent.results() == ["peer__look: ok"]

    run(scenario)


def test_hints_become_effects_and_names_are_of_letters_that_providers_take():
    async def scenario():
        async with McpAgent(["done"], {"peer": PEER, "r.w": RAW}) as agent:
            await agent.go()
            offered = agent.offered()
            assert {name: one.effect for name, one in offered.items()} == {
                "peer__look": "read",
                "peer__act": "write",
                "peer__hold": "idempotent",
                "peer__fail": "write",
                "peer__show": "write",
                "peer__spawn": "write",
                "r_w__do": "write",  # it says that it reads, and that it destroys
                "r_w__a_b_c": "write",
            }
            assert offered["peer__act"].parameters["required"] == ["path"]
            assert offered["peer__act"].description.startswith("Writes a line")
            tools = agent.runtime.tools
            assert tools == {}, "they belong to the session"

    run(scenario)


def test_only_the_tools_that_are_allowed_and_the_effects_that_the_user_says():
    async def scenario():
        server = with_(RAW, tools=("do", "undo"), effects={"do": "read"})
        async with McpAgent(["done"], {"raw": server}) as agent:
            await agent.go()
            assert {name: one.effect for name, one in agent.offered().items()} == {"raw__do": "read"}
            assert agent.notes() == ["the MCP server 'raw' has no tool 'undo'; it has: a.b/c, do"]

    run(scenario)


def test_every_kind_of_content_is_text_for_the_model_and_bytes_are_kept(tmp_path):
    async def scenario():
        answers = [calls(call("peer__show"), call("peer__show", {"long": 100_000})), "done"]
        async with McpAgent(answers, {"peer": PEER}) as agent:
            await agent.go()
            first, second = agent.log.fold.calls.values()
            files = agent.store.files("s1")
            image, blob = files / f"{first.call_id}-1.png", files / f"{first.call_id}-2.bin"
            assert ev.text_of(first.result.content).split("\n") == [
                "caf\u00e9 \u2028 line",
                f"[image, image/png, 6 bytes, in {image}]",
                "[audio, audio/wav: its bytes cannot be read (Only base64 data is allowed)]",
                "[resource file:///a: a, the first]",
                "[resource file:///b]",
                "inside b",
                f"[resource file:///c, application/octet-stream, 3 bytes, in {blob}]",
                '{"n":1}',
            ]
            assert (image.read_bytes(), blob.read_bytes()) == (b"\x89PNG\r\n", b"\0\1\2")
            assert image.stat().st_mode & 0o777 == 0o600
            long = ev.text_of(second.result.content)
            assert len(long) < 40_000
            assert long.startswith("axx")
            assert long.endswith("xxz")
            assert (files / f"{second.call_id}-1.txt").read_text() == "a" + "x" * 100_000 + "z"

    run(scenario)


def test_an_error_of_the_tool_and_one_of_the_protocol_are_answers():
    """Also one with the code and the very words that the SDK has for a lost connection."""

    async def scenario():
        answers = [calls(call("peer__fail", {"how": "tool"}), call("peer__fail", {"how": "error"})), "done"]
        async with McpAgent(answers, {"peer": PEER}) as agent:
            await agent.go()
            assert agent.results() == ["peer__fail: ok", "peer__fail: MCP_ERROR"]
            one, other = [record.result for record in agent.log.fold.calls.values()]
            assert (one.is_error, ev.text_of(one.content)) == (True, "it went wrong")
            assert (other.is_error, ev.text_of(other.content)) == (
                True,
                "The server answered with an error: Connection closed (code -32000)",
            )
            assert [one.verdict for one in verdicts(agent.log.fold)] == ["completed", "completed"]
            assert agent.notes() == [], "the connection lives"

    run(scenario)


def test_lines_may_be_long_and_chatter_between_them_does_no_harm():
    async def scenario():
        size = 20 << 20
        answers = [calls(call("raw__do", {"how": "long", "size": size}), call("raw__do", {"how": "chatter"})), "done"]
        async with McpAgent(answers, {"raw": RAW}) as agent:
            await agent.go()
            first, second = agent.log.fold.calls.values()
            kept = agent.store.files("s1") / f"{first.call_id}-1.txt"
            assert kept.stat().st_size == size
            assert ev.text_of(second.result.content) == "heard \u2028 well"

    run(scenario)


def test_nothing_of_our_environment_reaches_a_server_but_what_is_named(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("PEER_TOKEN", "hush")

    async def scenario():
        server = with_(
            PEER, env={"TOKEN": "${PEER_TOKEN}", "OTHER": "${NO_SUCH:-none}"}, args=(*PEER.args, "${PEER_TOKEN}")
        )
        async with McpAgent([calls(call("peer__look")), "done"], {"peer": server}) as agent:
            await agent.go()
            seen = json.loads(agent.text("peer__look"))["environment"]
            assert (seen["TOKEN"], seen["OTHER"]) == ("hush", "none")
            assert "OPENAI_API_KEY" not in seen
            starting = agent.one(ServerStarting)
            assert starting.command.endswith("mcp_peer.py ${PEER_TOKEN}"), "as configured: no secret is written down"

    run(scenario)


# --- a call that is cut off -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("die", "world"), [("before", []), ("after", ["acted"])])
def test_a_server_that_dies_in_a_call_leaves_its_outcome_unknown_and_starts_again(tmp_path, die, world):
    async def scenario():
        path = tmp_path / "world"
        answers = [
            calls(call("peer__act", {"path": str(path), "die": die})),
            calls(call("peer__act", {"path": str(path)})),
            "done",
        ]
        async with McpAgent(answers, {"peer": PEER}) as agent:
            assert (await agent.go()).reason == "completed"
            assert agent.results() == ["peer__act: TOOL_OUTCOME_UNKNOWN", "peer__act: ok"]
            assert [one.verdict for one in verdicts(agent.log.fold)] == ["outcome_unknown", "completed"]
            assert lines(path) == [*world, "acted"]
            assert agent.notes() == [
                "the MCP server 'peer' is gone (it was killed by SIGKILL); its next call starts it again"
            ]
            first = next(iter(agent.log.fold.calls.values()))
            assert "(it was killed by SIGKILL)" in ev.text_of(first.result.content)
            assert len(agent.events(ServerStarting)) == len(agent.events(ServerProcess)) == 2

    run(scenario)


@linux
def test_a_server_that_died_between_two_calls_is_started_again_and_asked_once(tmp_path):
    """Nobody has heard of its end: the request meets a pipe that takes no byte, so it is safe to send it again."""

    async def scenario():
        path = tmp_path / "world"
        answers = ["ready", calls(call("peer__act", {"path": str(path)})), "done"]
        async with McpAgent(answers, {"peer": PEER}) as agent:
            await agent.go()
            kill(agent.pids()[0])
            await agent.go()
            assert agent.results() == ["peer__act: ok"], agent.text("peer__act")
            assert lines(path) == ["acted"]
            assert len(agent.pids()) == 2

    run(scenario)


@linux
def test_a_server_that_does_not_come_back_leaves_its_calls_not_started(tmp_path):
    """Nothing left, and the log says so."""

    async def scenario():
        server = tmp_path / "server.py"
        server.write_text(Path(RAW.args[-1]).read_text())
        answers = ["ready", calls(call("raw__do", {"how": "chatter"})), "done"]
        async with McpAgent(answers, {"raw": with_(RAW, args=("-S", str(server)))}) as agent:
            await agent.go()
            server.write_text("import sys; sys.exit('no more')")
            kill(agent.pids()[0])
            await agent.go()
            assert agent.results() == ["raw__do: TOOL_NOT_STARTED"]
            assert [one.verdict for one in verdicts(agent.log.fold)] == ["not_started"]
            assert agent.text("raw__do") == (
                "Not started: the MCP server 'raw' could not be started again: it exited with code 1; it said: no "
                "more. The call had no effect. Retry it if it is still needed."
            )

    run(scenario)


@linux
def test_a_start_that_cannot_be_recorded_does_not_happen(tmp_path):
    """Law 4 for servers: its process would be nobody's."""

    async def scenario():
        async with McpAgent(["ready", calls(call("raw__do", {"how": "chatter"})), "done"], {"raw": RAW}) as agent:
            await agent.go()
            before = agent.pids()
            rule = agent.store.fail(ServerStarting)
            kill(before[0])
            await agent.go()
            rule.off()
            assert agent.pids() == before
            assert agent.results() == ["raw__do: TOOL_NOT_STARTED"]

    run(scenario)


@pytest.mark.parametrize("how", ["mute", "garbled"])
def test_an_answer_that_does_not_come_or_cannot_be_read_is_unknown(how):
    async def scenario():
        async with McpAgent([calls(call("raw__do", {"how": how})), "done"], {"raw": RAW}) as agent:
            await agent.go()
            assert agent.results() == ["raw__do: TOOL_OUTCOME_UNKNOWN"]

    run(scenario)


@pytest.mark.parametrize("way", ["cancel", "timeout"])
def test_cancel_and_time_limit_reach_the_server_and_the_outcome_is_unknown(tmp_path, way):
    async def scenario():
        path = tmp_path / "world"
        server = with_(PEER, timeout=3.0) if way == "timeout" else PEER
        async with McpAgent([calls(call("peer__hold", {"path": str(path)})), "done"], {"peer": server}) as agent:
            turn = asyncio.create_task(agent.go())
            await until(lambda: "holding" in lines(path) and agent.progress(), "the tool holds")
            assert agent.progress() == ["holding (1/3)\n"]
            if way == "cancel":
                await agent.session.cancel()
            await turn
            assert agent.results() == ["peer__hold: TOOL_OUTCOME_UNKNOWN"]
            said = agent.text("peer__hold")
            assert "and the server was told to stop" in said
            assert ("the turn was cancelled" if way == "cancel" else "time limit of 3 s ran out") in said
            await until(lambda: "cancelled" in lines(path), "the server heard it")
            assert agent.notes() == [], "the connection lives"

    run(scenario)


# --- servers that do not start ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (McpServer(command="no-such-program"), "No such file or directory"),
        (with_(RAW, cwd="no/such/place"), "there is no directory"),
        (with_(RAW, args=(*RAW.args, "rude")), "it exited with code 3; it said: I need a licence"),
        (with_(RAW, args=(*RAW.args, "dumb"), start_timeout=0.5), "it did not answer within 0.5 s"),
        (with_(RAW, env={"KEY": "${NO_SUCH_KEY}"}), "mcp.servers.raw.env.KEY: the environment has no NO_SUCH_KEY. Set"),
        (McpServer(command=sys.executable, args=("-c", "print('hello')")), "it exited with code 0"),
    ],
    ids=["program", "directory", "exit", "silence", "variable", "no server"],
)
def test_a_server_that_fails_is_told_once_and_the_session_goes_on(server, why):
    async def scenario():
        async with McpAgent(
            [calls(call("good__do", {"how": "chatter"})), "done"], {"raw": server, "good": RAW}
        ) as agent:
            assert (await agent.go()).reason == "completed"
            assert agent.results() == ["good__do: ok"]
            (note,) = agent.notes()
            assert note.startswith("the MCP server 'raw' (")
            assert "is missing, and the session goes on without its tools: " in note
            assert why in note

    run(scenario)


@linux
def test_a_server_that_fails_leaves_no_process():
    async def scenario():
        server = with_(RAW, args=(*RAW.args, "dumb"), start_timeout=0.5)
        async with McpAgent(["done"], {"raw": server}) as agent:
            await agent.go()
            assert carriers(agent.tokens()) == []

    run(scenario)
