"""How a live command ends early: one signal closes in order, a second one leaves at once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from fencepost.apps.cli import exits
from fencepost.apps.cli.ready import RULES
from fencepost.apps.cli.stop import BOUND
from fencepost.testing import ModelServer
from tests.apps.command import Command, call, finish, read_until

STUCK = """
import asyncio

class Plugin:
    name = "stuck"
    requires = ()

    def apply(self, context):
        context.on_close(asyncio.Event().wait)

plugin = Plugin()
"""


HELD = """
import asyncio
from pathlib import Path

from fencepost.runtime.models import Finished, TextDelta

class Held:
    provider, model, settings = "held", "any", {}

    def __init__(self, path):
        self._release = Path(path)

    def body(self, request):
        return {}

    async def stream(self, request):
        yield TextDelta("one ")
        yield TextDelta("two ")
        while not self._release.exists():
            await asyncio.sleep(0.01)
        yield TextDelta("three")
        yield Finished("stop")

    async def close(self):
        pass

class Plugin:
    name = "held"
    requires = ()

    def apply(self, context):
        context.model("held", lambda spec, environ, settings: Held(spec.partition(":")[2]))

plugin = Plugin()
"""


def hold(cli: Command) -> Path:
    """A model whose answers stand still halfway; returns the file that releases them when it is made."""
    cli.plugin("held", HELD)
    release = cli.root / "release"
    cli.environ["FENCEPOST_MODEL"] = f"held:{release}"
    return release


def endings(events: list[dict[str, Any]]) -> list[tuple[str, Any, bool]]:
    """The closing records: type, reason, and whether repair wrote them."""
    return [
        (event["type"], event.get("reason"), event.get("synthetic", False))
        for event in events
        if event["type"] in {"step/end", "turn/end"}
    ]


@pytest.mark.parametrize(
    ("number", "status", "message"),
    [(signal.SIGINT, 130, "user"), (signal.SIGTERM, 143, "closing"), (signal.SIGHUP, 129, "closing")],
)
def test_a_signal_while_the_answer_streams_closes_the_turn_for_real(
    cli: Command, number: signal.Signals, status: int, message: str
) -> None:
    hold(cli)
    child = cli.start("run", "--json", "--session", "s1", "count")
    read_until(child, "assistant/chunk")
    child.send_signal(number)
    done = finish(child)
    assert done.status == status
    last = done.records()[-1]
    assert (last["reason"], last["code"], last["message"], last["saved"]) == ("aborted", "CANCELLED", message, True)
    events = cli.events("s1")
    assert endings(events) == [("step/end", None, False), ("turn/end", "aborted", False)]
    assert [event["interrupted"] for event in events if event["type"] == "assistant/message"] == [True]
    assert cli.run("inspect", "s1", "--json").record()["state"] == "clean"


def test_a_signal_while_a_tool_runs_leaves_one_real_result(cli: Command) -> None:
    cli.script(call("shell", command="echo begun > begun; exec sleep 600"), {"content": "never"})
    child = cli.start("run", "--json", "--session", "s1", "--approve", "all", "sleep")
    read_until(child, "tool/call")
    child.send_signal(signal.SIGINT)
    done = finish(child)
    assert done.status == 130
    results = [event for event in cli.events("s1") if event["type"] == "tool/result"]
    (code,) = [result["code"] for result in results]
    assert code in {"TOOL_OUTCOME_UNKNOWN", "ABORTED_BEFORE_DISPATCH", "TOOL_NOT_STARTED"}
    assert "synthetic" not in results[0]


def test_an_interrupted_request_is_not_sent_again_by_itself(cli: Command) -> None:
    with ModelServer([{"content": "one two three", "fault": {"kind": "hold", "after": 1}}, "never"]) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k", "FENCEPOST_MODEL": "openai:any"}
        child = cli.start("run", "--json", "--session", "s1", "count")
        assert server.holds[0].reached.wait(30)
        child.send_signal(signal.SIGINT)
        assert finish(child).status == 130
        assert cli.run("resume", "s1").status == 0
        assert cli.run("resume", "s1", "--continue").status == 0
        assert len(server.requests) == 1
    assert cli.run("inspect", "s1", "--json").record()["pending_inputs"] == []


@pytest.mark.parametrize(("first", "second"), [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT)])
def test_a_second_signal_leaves_at_once(cli: Command, first: signal.Signals, second: signal.Signals) -> None:
    cli.plugin("stuck", STUCK)
    cli.script(call("shell", command="sleep 600"), {"content": "never"})
    child = cli.start("run", "--json", "--session", "s1", "--approve", "all", "sleep")
    read_until(child, "tool/call")
    child.send_signal(first)
    read_until(child, "turn/end")
    child.send_signal(second)
    done = finish(child)
    assert done.status == 128 + second
    assert "took too long" not in done.err
    assert endings(cli.events("s1")) == [("step/end", None, False), ("turn/end", "aborted", False)]


def test_closing_that_never_ends_is_given_up_within_the_bound(cli: Command) -> None:
    cli.plugin("stuck", STUCK)
    cli.script(call("shell", command="sleep 600"), {"content": "never"})
    child = cli.start("run", "--json", "--session", "s1", "--approve", "all", "sleep")
    read_until(child, "tool/call")
    child.send_signal(signal.SIGTERM)
    done = finish(child)
    assert done.status == 143
    assert "took too long" in done.err
    assert endings(cli.events("s1")) == [("step/end", None, False), ("turn/end", "aborted", False)]


def test_a_cancelled_turn_is_over_before_its_close_is_given_up() -> None:
    assert RULES.bound + 0.5 < BOUND < 5


def test_a_reader_that_leaves_closes_in_order(cli: Command) -> None:
    release = hold(cli)
    child = cli.start("run", "--json", "--session", "s1", "count")
    read_until(child, "assistant/chunk")
    assert child.stdout is not None
    child.stdout.close()
    release.touch()
    assert finish(child).status == exits.NO_READER
    assert endings(cli.events("s1"))[-1][0] == "turn/end"
    assert cli.run("inspect", "s1", "--json").record()["state"] == "clean"


def test_a_reader_that_stands_still_does_not_keep_a_signal_from_closing(cli: Command) -> None:
    cli.script({"content": "word " * 1_000_000}, {"content": "never"})
    child = cli.start("run", "--json", "--session", "s1", "talk")
    read_until(child, "turn/start")
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 143
    assert child.stdout is not None
    child.stdout.close()
    finish(child)
    assert cli.run("inspect", "s1", "--json").record()["state"] == "clean"


def test_what_fails_at_the_close_is_said_and_costs_the_exit_status(cli: Command) -> None:
    broken = STUCK.replace("asyncio.Event().wait", "self.fail").replace(
        "plugin = Plugin()", "    async def fail(self):\n        raise OSError('no more ink')\n\nplugin = Plugin()"
    )
    cli.plugin("stuck", broken)
    cli.script({"content": "Done."})
    done = cli.run("run", "--json", "x")
    assert done.status == exits.INTERNAL
    assert "OSError: no more ink" in done.err
    last = done.records()[-1]
    assert (last["reason"], last["saved"]) == ("completed", True)


def test_what_was_ignored_at_the_start_stays_ignored(cli: Command) -> None:
    def like_nohup() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    release = hold(cli)
    child = cli.start("run", "--json", "--session", "s1", "count", preexec_fn=like_nohup)
    read_until(child, "assistant/chunk")
    child.send_signal(signal.SIGHUP)
    release.touch()
    done = finish(child)
    assert done.status == 0
    assert done.records()[-1]["reason"] == "completed"
