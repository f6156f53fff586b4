"""`fencepost resume` and `inspect --settle` where tools know what really happened, or may run again."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fencepost.apps.cli.resuming import effects_of
from fencepost.errors import UsageError
from tests.apps.command import SECONDS, Command, Finished, finish, read_until, tree

PLUGIN = '''
import asyncio, json
from pathlib import Path
import msgspec
from fencepost.core.events import ToolSpec
from fencepost.runtime.settlement import Completed, DidNotRun, StillRunning, Unknown
from fencepost.runtime.tools import Tool

SCHEMA = {"type": "object", "properties": {}}


class Survivor:
    def __init__(self, cwd):
        self.cwd = cwd

    async def wait(self):
        (self.cwd / "waiting").touch()
        while not (self.cwd / "over").exists():
            await asyncio.sleep(0.01)
        return Completed("it came to its end", "exit code 0")

    async def end(self):
        (self.cwd / "told to end").touch()
        return DidNotRun("it was ended in front of its effect")


def settle(call):
    """What stands in the file that is named after the call's tool."""
    kind, text = json.loads((call.cwd / f"{call.name}.json").read_text())
    if kind == "running":
        return StillRunning(Survivor(call.cwd), text)
    return {"completed": lambda: Completed(text, "receipt 17"), "not": lambda: DidNotRun(text),
            "unknown": lambda: Unknown(text)}[kind]()


async def body(context, arguments):
    with open(context.cwd / "ran", "a") as file:
        file.write(f"{context.call_id}\\\\n")
    if (context.cwd / "quick").exists():
        return "fresh"
    await asyncio.Event().wait()


class Plugin:
    name = "bank"
    requires = ()

    def apply(self, context):
        for name, effect in (("pay", "write"), ("look", "read"), ("put", "idempotent")):
            spec = ToolSpec(name, name, SCHEMA)
            context.tool(Tool(spec=spec, body=body, effect=effect, settle=settle, parallel=True))


plugin = Plugin()
'''


class Bank:
    """Sessions with a tool that a file answers for.

    Args:
        cli: the command line; its directory composes the tools.
    """

    def __init__(self, cli: Command) -> None:
        self.cli = cli
        cli.plugin("bank", PLUGIN.replace("\\\\n", "\\n"))

    def knows(self, tool: str, kind: str, text: str = "") -> None:
        """From now on the tool says this of its calls."""
        (self.cli.work / f"{tool}.json").write_text(json.dumps([kind, text]))

    def kill(self, *tools: str, after: object = None) -> None:
        """A session `s1` whose process was killed in calls to these tools."""
        asked = [{"function": {"name": name, "arguments": {}}} for name in tools]
        script = [{"content": "I begin.", "tool_calls": asked}, after or {"content": "I see."}]
        self.cli.script(*script)
        child = self.cli.start("run", "--json", "--session", "s1", "--approve", "all", "go")
        for _ in tools:
            read_until(child, "tool/call")
        while len(self.ran()) < len(tools):
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=SECONDS)
        (self.cli.work / "ran").unlink()
        (self.cli.work / "quick").touch()

    def ran(self) -> list[str]:
        """Call ids whose body ran, since the kill."""
        path = self.cli.work / "ran"
        return path.read_text().split() if path.exists() else []

    def calls(self) -> dict[str, dict[str, Any]]:
        """As `inspect --json` has them, by tool."""
        return {call["name"]: call for call in self.cli.run("inspect", "s1", "--json").record()["calls"]}


@pytest.fixture
def bank(cli: Command) -> Bank:
    """A bank whose tools know nothing yet."""
    made = Bank(cli)
    for name in ("pay", "look", "put"):
        made.knows(name, "unknown")
    return made


def recovered(done: Finished) -> dict[str, dict[str, Any]]:
    """The recovered calls in the opening record, by tool."""
    return {call["name"]: call for call in done.records()[0]["recovery"]["calls"]}


# --- the table ----------------------------------------------------------------------------------------------------


def test_the_table_tells_who_settled_what_and_what_it_means(bank: Bank) -> None:
    bank.kill("pay", "look", "put")
    bank.knows("pay", "completed", "paid 5")
    bank.knows("look", "not", "nobody came")
    bank.knows("put", "unknown", "half of it is there")
    done = bank.cli.run("resume", "s1", env={**bank.cli.environ, "COLUMNS": "200"})
    assert done.status == 0
    head, *rows = [line for line in done.out.splitlines() if line.strip()][1:]
    assert [word for word in ("call", "verdict", "settled by", "means") if word in head] == [
        "call",
        "verdict",
        "settled by",
        "means",
    ]
    table = "\n".join(rows)
    for row in (
        ("pay", "completed", "pay", "it finished; its result is in the log"),
        ("look", "not started", "look", "its body certainly did not run"),
        ("put", "outcome unknown", "-", "it may have run"),
    ):
        assert any(all(part in line for part in row) for line in rows), (row, table)
    for evidence in ("receipt 17", "nobody came", "half of it is there"):
        assert evidence in table
    assert "--continue" in done.out
    assert bank.ran() == []


def test_programs_get_who_settled_what(bank: Bank) -> None:
    bank.kill("pay", "put")
    bank.knows("pay", "completed", "paid 5")
    durable = len(bank.cli.events("s1"))
    done = bank.cli.run("resume", "s1", "--json")
    calls = recovered(done)
    assert (calls["pay"]["verdict"], calls["pay"]["settled_by"], calls["pay"]["evidence"]) == (
        "completed",
        "pay",
        "receipt 17",
    )
    assert (calls["put"]["verdict"], calls["put"]["settled_by"], calls["put"]["evidence"]) == (
        "outcome_unknown",
        "",
        "",
    )
    assert done.records()[1:-1] == bank.cli.events("s1")[durable:], "what settlement appended is printed, too"
    assert {name: (call["verdict"], call["settled_by"], call["evidence"]) for name, call in bank.calls().items()} == {
        "pay": ("completed", "pay", "receipt 17"),
        "put": ("outcome_unknown", "", ""),
    }


def test_looking_says_what_settlement_would_and_changes_nothing(bank: Bank) -> None:
    bank.kill("pay")
    bank.knows("pay", "completed", "paid 5")
    before = tree(bank.cli.root)
    (call,) = bank.cli.run("inspect", "s1", "--settle", "--json").record()["calls"]
    assert (call["verdict"], call["settled_by"], call["evidence"]) == ("completed", "pay", "receipt 17")
    page = bank.cli.run("inspect", "s1", "--settle", env={**bank.cli.environ, "COLUMNS": "200"})
    assert (page.status, "receipt 17" in page.out, "nothing was changed" in page.out) == (0, True, True)
    assert bank.calls()["pay"]["verdict"] == "outcome_unknown"
    assert {name: data for name, data in tree(bank.cli.root).items() if "pycache" not in name} == {
        name: data for name, data in before.items() if "pycache" not in name
    }


def test_the_timeline_and_the_markdown_mark_what_was_settled(bank: Bank) -> None:
    bank.kill("pay")
    bank.knows("pay", "completed", "paid 5")
    bank.cli.run("resume", "s1")
    shown = bank.cli.run("show", "s1", env={**bank.cli.environ, "COLUMNS": "200"}).out
    assert "settled by pay: receipt 17" in shown
    assert "settled by pay: receipt 17" in bank.cli.run("export", "s1", "--format", "markdown").out


# --- the tools are those of the session's directory -----------------------------------------------------------------


def test_a_session_is_settled_with_the_tools_of_its_own_directory(bank: Bank) -> None:
    bank.kill("pay")
    bank.knows("pay", "completed", "paid 5")
    calls = bank.cli.run("inspect", "s1", "--settle", "--json", cwd=bank.cli.root).record()["calls"]
    assert calls[0]["settled_by"] == "pay"
    done = bank.cli.run("resume", "s1", "--json", cwd=bank.cli.root)
    assert (done.status, recovered(done)["pay"]["settled_by"]) == (0, "pay")


def test_without_that_directory_it_is_repaired_with_what_there_is_and_that_is_said(bank: Bank) -> None:
    bank.kill("pay")
    shutil.rmtree(bank.cli.work)
    looked = bank.cli.run("inspect", "s1", "--settle", "--json", cwd=bank.cli.root)
    assert (looked.status, looked.record()["calls"][0]["verdict"]) == (0, "outcome_unknown")
    done = bank.cli.run("resume", "s1", cwd=bank.cli.root)
    assert done.status == 0
    for said in (looked.err, done.err):
        assert str(bank.cli.work) in said
        assert "not there any more" in said
    assert "outcome unknown" in done.out


def test_a_configuration_that_cannot_be_composed_any_more_keeps_nobody_from_repairing(bank: Bank) -> None:
    bank.kill("pay")
    (bank.cli.work / "fencepost.toml").write_text('plugins = ["checkpoint", "no-such-plugin"]\n')
    done = bank.cli.run("resume", "s1", cwd=bank.cli.root)
    assert done.status == 0
    assert "no-such-plugin" in done.err
    assert bank.cli.run("resume", "s1", "--continue").status == 2


# --- going on -------------------------------------------------------------------------------------------------------


def test_going_on_takes_settled_results_first_then_closers_then_the_model(bank: Bank) -> None:
    bank.kill("pay", "put")
    bank.knows("put", "completed", "stored")
    durable = len(bank.cli.events("s1"))
    done = bank.cli.run("resume", "s1", "--continue", "--json")
    assert done.status == 0
    assert done.records()[-1]["text"] == "I see."
    new = bank.cli.events("s1")[durable:]
    kinds = [event["type"] for event in new if event["type"] not in {"assistant/chunk", "step/start"}]
    assert kinds == [
        "session/owner",
        "tool/result",
        "tool/result",
        "step/end",
        "turn/end",
        "turn/start",
        "request/header",
        "assistant/message",
        "step/end",
        "turn/end",
    ]
    settled, closed = [event for event in new if event["type"] == "tool/result"]
    assert (settled.get("settled_by"), closed.get("synthetic")) == ("put", True)


# --- calls that still run -------------------------------------------------------------------------------------------


def test_a_call_that_still_runs_is_left_alone(bank: Bank) -> None:
    bank.kill("pay")
    bank.knows("pay", "running", "process 17 since noon")
    call = recovered(bank.cli.run("resume", "s1", "--json"))["pay"]
    assert (call["verdict"], call["evidence"]) == ("outcome_unknown", "still running: process 17 since noon")
    assert not (bank.cli.work / "waiting").exists()
    assert not (bank.cli.work / "told to end").exists()


def test_a_call_that_still_runs_can_be_ended(bank: Bank) -> None:
    bank.kill("pay")
    bank.knows("pay", "running", "process 17 since noon")
    done = bank.cli.run("resume", "s1", "--json", "--running", "end")
    assert (done.status, recovered(done)["pay"]["verdict"]) == (0, "not_started")
    assert "process 17 since noon" in done.err
    assert (bank.cli.work / "told to end").exists()


def waiting(bank: Bank, *words: str) -> subprocess.Popen[bytes]:
    """A command that waits for a call, and has said so."""
    child = bank.cli.start("resume", "s1", "--running", "wait", *words)
    assert child.stderr is not None
    for line in child.stderr:
        if b"waiting for pay" in line:
            assert b"process 17 since noon" in line
            break
    while not (bank.cli.work / "waiting").exists():
        assert child.poll() is None
    return child


def test_waiting_for_a_call_is_said_and_takes_its_result(bank: Bank) -> None:
    bank.kill("pay")
    bank.knows("pay", "running", "process 17 since noon")
    child = waiting(bank)
    (bank.cli.work / "over").touch()
    done = finish(child)
    assert done.status == 0
    assert "completed" in done.out
    assert bank.calls()["pay"]["settled_by"] == "pay"


@pytest.mark.parametrize("words", [[], ["--continue", "--json"]], ids=["repair", "continue"])
def test_who_interrupts_the_waiting_leaves_the_session_as_it_was(bank: Bank, words: list[str]) -> None:
    bank.kill("pay")
    bank.knows("pay", "running", "process 17 since noon")
    before = bank.cli.log("s1").read_bytes()
    child = waiting(bank, *words)
    child.send_signal(signal.SIGINT)
    done = finish(child)
    assert done.status == 130
    assert bank.cli.log("s1").read_bytes() == before
    if "--json" in words:
        assert (done.records()[-1]["reason"], done.records()[-1]["code"]) == ("aborted", "CANCELLED")
    bank.knows("pay", "completed", "paid 5")
    assert recovered(bank.cli.run("resume", "s1", "--json"))["pay"]["verdict"] == "completed"


# --- running again --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "ran"),
    [
        (["--rerun", "read"], {"look"}),
        (["--rerun", "idempotent"], {"put"}),
        (["--rerun", "read", "--rerun", "idempotent"], {"look", "put"}),
        (["--rerun", "read,idempotent"], {"look", "put"}),
    ],
    ids=["read", "idempotent", "both", "with a comma"],
)
def test_exactly_these_calls_run_again_and_then_it_waits(bank: Bank, words: list[str], ran: set[str]) -> None:
    bank.kill("pay", "look", "put")
    ids = {name: call["call_id"] for name, call in bank.calls().items()}
    done = bank.cli.run("resume", "s1", *words, env={**bank.cli.environ, "COLUMNS": "200"})
    assert done.status == 0
    assert sorted(bank.ran()) == sorted(ids[name] for name in ran)
    found = {name: call["verdict"] for name, call in bank.calls().items()}
    assert found == {name: "completed" if name in ran else "outcome_unknown" for name in ids}
    assert done.out.count("running it again") == len(ran)
    events = bank.cli.events("s1")
    again = [event for event in events if event["type"] == "tool/call" and event.get("retries") is not None]
    assert {event["call_id"] for event in again} == {ids[name] for name in ran}
    assert events[-1]["type"] == "turn/end"


def test_going_on_hands_the_model_what_ran_again(bank: Bank) -> None:
    bank.kill("look")
    done = bank.cli.run("resume", "s1", "--continue", "--rerun", "read")
    assert (done.status, done.out) == (0, "I see.\n")
    assert "running it again" in done.err
    (result,) = [event for event in bank.cli.events("s1") if event["type"] == "tool/result"]
    assert result["content"][0]["text"] == "fresh"


@pytest.mark.parametrize(("text", "part"), [("write", "never run again"), ("", "no effect"), ("reads", "no effect")])
def test_what_may_not_run_again_is_refused_before_anything_is_touched(bank: Bank, text: str, part: str) -> None:
    bank.kill("look")
    before = bank.cli.log("s1").read_bytes()
    done = bank.cli.run("resume", "s1", "--rerun", text)
    assert (done.status, done.out, part in done.err) == (2, "", True)
    assert bank.cli.log("s1").read_bytes() == before


def test_effects_are_named_one_by_one_or_with_commas() -> None:
    assert effects_of([]) == frozenset()
    assert effects_of(["read", "idempotent, read"]) == {"read", "idempotent"}
    with pytest.raises(UsageError):
        effects_of(["read,write"])


# --- half an answer -------------------------------------------------------------------------------------------------


def test_half_an_answer_is_shown_as_interrupted(cli: Command, tmp_path: Path) -> None:
    from fencepost.testing import ModelServer

    script = [{"content": "one two three four five six", "fault": {"kind": "hold", "after": 3}}]
    with ModelServer(script) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "none", "FENCEPOST_MODEL": "openai:scripted"}
        child = cli.start("run", "--json", "--session", "s1", "go")
        read_until(child, "assistant/chunk")
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=SECONDS)
    chunks = [event["delta"] for event in cli.events("s1") if event["type"] == "assistant/chunk"]
    half = "".join(chunks).strip()
    assert half
    assert half in cli.run("show", "s1").out
    copied = tmp_path / "copy"
    shutil.copytree(cli.store, copied)
    done = cli.run("resume", "s1")
    assert done.status == 0
    assert f"  {half}" in done.out
    assert "interrupted" in done.out
    first = cli.run("resume", "s1", "--json", "--store", f"jsonl:{copied}").records()[0]
    assert first["recovery"]["half_answer"] == half
    assert cli.run("resume", "s1", "--json").records()[0]["recovery"]["half_answer"] == "", (
        "told once, by who closed it"
    )
