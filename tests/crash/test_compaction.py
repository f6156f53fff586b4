"""A SIGKILL around a summary: before it is durable the old history is in force, and behind it the summary is."""

import asyncio
import subprocess
import sys

import msgspec
import pytest

from fencepost.core import events as ev
from fencepost.core.projection import ToolAnswer, UserTurn, messages
from fencepost.plugins.compaction_text import HEAD, SYSTEM
from fencepost.stores.jsonl import JsonlStore
from fencepost.testing import ModelServer, pairing_problem
from tests.crash.judging import events_of, log_of
from tests.crash.processes import ROOT, ended, kill
from tests.crash.scenario import SESSION, asks, call

SHORT = "0 and 1 were read; they say the same word."
READS = asks(call("read", n=0), call("read", n=1))
HELD = {"kind": "hold"}

# Each request has no answer in it but what a summary left, so all are attempts at the first one, in their order; only
# the request behind the calls, where no summary took their place, would ask for the second.
IN_FLIGHT = [[READS, {"content": SHORT, "fault": HELD}, SHORT, "Done."], ["The history was not summed up."]]
BEHIND_IT = [[READS, SHORT, {"content": "Done.", "fault": HELD}, "Done."], ["The history was not summed up."]]


def start(place, server, *arguments):
    command = [sys.executable, "-m", "tests.crash.summing_child", f"jsonl:{place}", server.url, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, process_group=0)


def killed_at_the_hold(place, server):
    with ended(start(place, server, "Read it.")) as child:
        assert server.holds[0].reached.wait(60)
        kill(child)
        child.stdout.close()


def gone_on(place, server):
    with ended(start(place, server, "--continue")) as child:
        out, _ = child.communicate(timeout=60)
        assert child.returncode == 0
    return out.strip()


def found(place):
    async def read():
        store = JsonlStore(place)
        try:
            return await store.read(SESSION)
        finally:
            await store.close()

    stored = asyncio.run(read())
    return log_of(stored, events_of(stored))


def sent(server):
    return [msgspec.json.decode(body)["messages"] for body in server.requests]


def is_asking(request):
    return request[0] == {"role": "system", "content": SYSTEM}


def test_killed_while_the_request_for_a_summary_is_in_flight(tmp_path):
    with ModelServer(IN_FLIGHT) as server:
        killed_at_the_hold(tmp_path, server)
        log = found(tmp_path)
        assert is_asking(sent(server)[-1])
        assert not any(isinstance(event, ev.ContextSummary) for event in log.events())
        assert [type(message) for message in messages(log)][2:] == [ToolAnswer, ToolAnswer]
        assert gone_on(tmp_path, server) == "Done."
        log = found(tmp_path)
        assert sum(isinstance(event, ev.ContextSummary) for event in log.events()) == 1
        assert [is_asking(request) for request in sent(server)] == [False, True, True, False]
        assert [pairing_problem(request) for request in sent(server)] == [None] * 4


def test_killed_behind_a_durable_summary(tmp_path):
    with ModelServer(BEHIND_IT) as server:
        killed_at_the_hold(tmp_path, server)
        log = found(tmp_path)
        assert not is_asking(sent(server)[-1])
        (head,) = messages(log)
        assert isinstance(head, UserTurn)
        assert ev.text_of(head.content).startswith(HEAD)
        assert all(record.result.code == "" for record in log.fold.calls.values()), "no call is taken away"
        assert gone_on(tmp_path, server) == "Done."
        assert sent(server)[-1][1]["content"] == sent(server)[-2][1]["content"]
        assert [is_asking(request) for request in sent(server)] == [False, True, False, False]
        assert [pairing_problem(request) for request in sent(server)] == [None] * 4
        texts = [ev.text_of(event.content) for event in found(tmp_path).events() if isinstance(event, ev.ToolResult)]
        assert [text[:2] for text in texts] == ["0:", "1:"], "the log keeps all of it"


@pytest.mark.parametrize("script", [IN_FLIGHT, BEHIND_IT], ids=["in flight", "behind it"])
def test_the_prompt_is_answered_and_no_call_runs_twice(tmp_path, script):
    with ModelServer(script) as server:
        killed_at_the_hold(tmp_path, server)
        gone_on(tmp_path, server)
    log = found(tmp_path)
    assert sum(isinstance(event, ev.ToolCall) for event in log.events()) == 2
    assert sum(isinstance(event, ev.UserMessage) for event in log.events()) == 1
    ends = [event.reason for event in log.events() if isinstance(event, ev.TurnEnd)]
    assert ends == ["interrupted", "completed"]
