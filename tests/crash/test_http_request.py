"""`http_request` and SIGKILL: a real agent dies while a real server has its request; the key outlives it."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fencepost.journal.inspect import CallView, inspect
from fencepost.stores.urls import open_store
from tests.crash.http_agent import SESSION
from tests.plugins.http_peer import Peer, saying

ROOT = Path(__file__).parents[2]


def calls_of(store: str) -> list[CallView]:
    async def look() -> list[CallView]:
        opened = open_store(store)
        found = await inspect(opened, SESSION)
        await opened.close()
        return list(found.calls)

    return asyncio.run(look())


@pytest.mark.parametrize(("method", "again"), [("PUT", True), ("POST", False)])
def test_killed_while_the_server_has_the_request(tmp_path: Path, method: str, again: bool) -> None:
    gone = threading.Event()

    def answer(connection: socket.socket) -> None:
        if peer.connections == 1:
            gone.wait(60)
        else:
            saying("200 OK", b"stored")(connection)

    with Peer(answer) as peer:
        script, store = tmp_path / "script", f"jsonl:{tmp_path / 'sessions'}"
        arguments = {"url": f"{peer.url}/thing", "method": method, "body": "x"}
        script.write_text(json.dumps({"tool_calls": [{"function": {"name": "http_request", "arguments": arguments}}]}))
        command = [sys.executable, "-m", "tests.crash.http_agent", store, str(script)]
        agent = subprocess.Popen(command, cwd=ROOT)
        assert peer.arrived.wait(60)
        agent.kill()
        agent.wait()
        gone.set()
        subprocess.run([*command, "--resume", "idempotent"], cwd=ROOT, check=True)
    (call,) = calls_of(store)
    keys = {peer.header("Idempotency-Key", at)[0] for at in range(len(peer.heard))}
    assert keys == {call.call_id}
    if again:
        assert len(peer.heard) == 2
        assert call.verdict == "completed"
    else:
        assert len(peer.heard) == 1
        assert call.verdict == "outcome_unknown"
        assert call.evidence == (
            f"if the request left, {peer.url} got it with Idempotency-Key: {call.call_id}, "
            "and may be asked what became of it"
        )
