"""The processes of MCP servers: on record before they start, ended with their session and with their agent."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.plugins.mcp_desk import PEER, RAW, McpAgent, alive, carriers, kill, linux, run, until
from tests.runtime.rig import Agent, call, calls

import fencepost as fp
from fencepost.core import events as ev
from fencepost.plugins.mcp import Mcp, McpServer, mcp_source
from fencepost.plugins.mcp_record import TOKEN, ServerProcess, ServerStarting, end_survivors, start_time

pytestmark = linux


def test_opening_a_session_starts_nothing_and_its_end_ends_everything():
    async def scenario():
        async with McpAgent([calls(call("peer__spawn")), "done"], {"peer": PEER}) as agent:
            assert agent.shape() == []
            await agent.go()
            grandchild = int(agent.text("peer__spawn"))
            assert alive(grandchild)
            assert {grandchild, *agent.pids()} <= set(carriers(agent.tokens()))
        assert carriers(agent.tokens()) == []
        assert not alive(grandchild)

    run(scenario)


def test_a_server_is_on_record_durably_before_it_starts():
    async def scenario():
        async with McpAgent(["done"], {"raw": RAW}) as agent:
            hold = agent.store.hold(ServerStarting)
            turn = asyncio.create_task(agent.go())
            await hold.reached.wait()
            starting = agent.one(ServerStarting)
            assert (starting.server, starting.session, starting.ignorable) == ("raw", "s1", True)
            assert carriers([starting.token]) == []
            hold.off()
            await turn
            process = agent.one(ServerProcess)
            assert (process.token, process.started) == (starting.token, start_time(process.pid))
            assert process.pid in carriers([starting.token])

    run(scenario)


def test_a_session_that_is_closed_while_its_servers_start_leaves_none():
    async def scenario():
        async with McpAgent(["done"], {"raw": McpServer(command=RAW.command, args=(*RAW.args, "dumb"))}) as agent:
            turn = asyncio.create_task(agent.go())
            await until(agent.pids, "the server runs")
        await asyncio.wait({turn})
        assert carriers(agent.tokens()) == []

    run(scenario)


def test_what_a_server_started_goes_when_it_is_killed():
    async def scenario():
        async with McpAgent([calls(call("peer__spawn")), "done"], {"peer": PEER}) as agent:
            await agent.go()
            kill(agent.pids()[0])
            grandchild = int(agent.text("peer__spawn"))
            await until(lambda: not alive(grandchild), "its child is gone too")

    run(scenario)


def test_a_server_goes_when_its_parent_is_killed():
    async def scenario():
        async with McpAgent(["ready", calls(call("raw__do", {"how": "chatter"})), "done"], {"raw": RAW}) as agent:
            await agent.go()
            (pid,) = agent.pids()
            os.kill(_parent(pid), signal.SIGKILL)
            await until(agent.notes, "its end is noticed")
            why = "the process that watched over it was killed"
            assert agent.notes() == [f"the MCP server 'raw' is gone ({why}); its next call starts it again"]
            assert carriers(agent.tokens()) == []
            await agent.go()
            assert agent.results() == ["raw__do: ok"]

    run(scenario)


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


AGENT = """
import asyncio, sys
from tests.plugins.mcp_desk import PEER
from tests.runtime.rig import call, calls
import fencepost as fp
from fencepost.plugins.mcp import Mcp

async def main(store, path):
    model = fp.ScriptedModel([calls(call("peer__spawn")), calls(call("peer__hold", {"path": path}))])
    async with fp.open(store, model=model, plugins=[Mcp({"peer": PEER})]) as runtime:
        session = await runtime.create("s1")
        await session.prompt("go")

asyncio.run(main(*sys.argv[1:]))
"""


def test_a_killed_agent_takes_its_servers_with_it_and_the_session_goes_on(tmp_path):
    store, path = f"jsonl:{tmp_path / 'store'}", tmp_path / "world"
    agent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(AGENT), store, str(path)])

    async def before():
        await until(path.exists, "the call is held")
        assert agent.poll() is None

    run(before)
    agent.kill()
    agent.wait()

    async def after():
        model = fp.ScriptedModel(["", "", "done"])
        async with fp.open(store, model=model, plugins=[Mcp({"peer": PEER})]) as runtime:
            session = await runtime.resume("s1")
            tokens = [one.token for one in session.journal.log.events() if isinstance(one, ServerStarting)]
            await until(lambda: not carriers(tokens), "nothing of it is left")
            assert [one.verdict for one in session.recovery.calls] == ["completed", "outcome_unknown"]
        async with fp.open(store, model=model) as runtime:
            assert (await runtime.resume("s1")).id == "s1", "also without the plugin: its events can be stepped over"

    run(after)


def test_what_outlived_its_agent_is_ended_before_the_next_turn_and_told(tmp_path):
    """The parent and the lifeline failed, however: the token in the environment finds it."""
    lost = []

    def leave_behind(token):
        lost.append(subprocess.Popen(["sh", "-c", _ORPHAN], env={TOKEN: token, **os.environ}, stdout=subprocess.PIPE))
        return int(lost[0].stdout.readline())

    async def scenario():
        store = f"jsonl:{tmp_path / 'store'}"
        async with fp.open(store, model=fp.ScriptedModel(["one", "two"]), plugins=[Mcp({"raw": RAW})]) as runtime:
            session = await runtime.create("s1")
            await session.prompt("go")
            (token,) = [one.token for one in session.journal.log.events() if isinstance(one, ServerStarting)]
            await session.close()
            orphan = leave_behind(token)
            session, told = await runtime.resume("s1"), []
            session.on_notice(told.append)
            assert alive(orphan), "opening ends nothing"
            await session.prompt("go")
            assert not alive(orphan)
            assert [one.text for one in told if one.kind == "note"] == [
                f"processes of this session's MCP servers had outlived their agent and were ended: {orphan}"
            ]

    try:
        run(scenario)
    finally:
        for process in lost:
            process.stdout.close()
            process.wait()


# A process that no longer descends from the tests: its parent is gone.
_ORPHAN = "(sleep 1000 >/dev/null 2>&1 & echo $!)"


def test_a_fork_leaves_the_servers_of_its_parent_alone(tmp_path):
    async def scenario():
        store = f"jsonl:{tmp_path / 'store'}"
        model = fp.ScriptedModel(["one", "two", "three"])
        async with fp.open(store, model=model, plugins=[Mcp({"raw": RAW})]) as runtime:
            session = await runtime.create("s1")
            await session.prompt("go")
            before = _pids(session)
            await runtime.fork("s1", "s2")
            fork = await runtime.resume("s2")
            await fork.prompt("go")
            assert all(alive(pid) for pid in before)
            assert len(_pids(fork)) == 2

    run(scenario)


def _pids(session):
    return [one.pid for one in session.journal.log.events() if isinstance(one, ServerProcess)]


def test_our_own_living_servers_are_no_survivors():
    async def scenario():
        async with McpAgent(["done"], {"raw": RAW}) as agent:
            await agent.go()
            assert end_survivors(frozenset(agent.tokens())) == []
            assert alive(agent.pids()[0])

    run(scenario)


def test_variables_can_come_from_elsewhere_and_the_server_has_our_path_all_the_same():
    async def scenario():
        server = McpServer(command="env", args=(PEER.command, *PEER.args), env={"WHO": "${CLIENT}"})
        source = mcp_source({"peer": server}, {"CLIENT": "${literally}"})
        async with McpAgent([calls(call("peer__look")), "done"], {}) as agent:
            session = await agent.runtime.create("s2", sources=[source])
            await session.prompt("go")
            (record,) = session.journal.log.fold.calls.values()
            seen = json.loads(ev.text_of(record.result.content))["environment"]
            assert (seen["WHO"], seen["PATH"]) == ("${literally}", os.environ["PATH"])

    run(scenario)


def test_servers_can_be_given_to_one_session_and_need_the_plugin():
    async def scenario():
        source = mcp_source({"raw": RAW})
        async with McpAgent(["done", "done"], {}) as agent:
            session = await agent.runtime.create("s2", sources=[source])
            await session.prompt("go")
            told = [one for one in session.journal.log.events() if isinstance(one, ev.RequestHeader)]
            assert [tool.name for tool in told[0].tools] == ["raw__do", "raw__a_b_c"]
            await agent.go()
            assert agent.offered() == {}
        async with Agent(["done"]) as agent:
            session, notes = await agent.runtime.create("s2", sources=[source]), []
            session.on_notice(notes.append)
            await session.prompt("go")
            (note,) = [one.text for one in notes if one.kind == "note"]
            assert note.startswith("tools are missing: MCP servers need the plugin `mcp`, which is not composed. Add")

    run(scenario)
