"""`fencepost resume`: repair, tell, and go on only where the user says so."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fencepost.apps.cli.finding import match
from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.errors import SessionNotFoundError
from fencepost.journal.session import Journal
from fencepost.runtime.runtime import system_identity
from fencepost.stores.urls import open_store
from tests.apps.command import SECONDS, Command, call, finish, read_until, tree


def queue(cli: Command, session: str, *prompts: str, cwd: Path | None = None) -> None:
    """A session whose prompts were acknowledged, and whose process died before their turn; without any, one event."""

    async def accept() -> None:
        store = open_store(f"jsonl:{cli.store}")
        journal = await Journal.create(store, session, str(cwd or cli.work), system_identity(), CORE)
        for number, text in enumerate(prompts):
            journal.append(ev.InputQueued, input_id=f"i_{number}", target="turn", content=(ev.Text(text),))
        if not prompts:
            journal.append(ev.InputQueued, input_id="i", target="turn", content=(ev.Text("x"),))
            journal.append(ev.InputDropped, input_id="i", reason="enough")
        await journal.close()
        await store.close()

    asyncio.run(accept())


@contextlib.contextmanager
def living(cli: Command, session: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that owns a session and is in a call."""
    cli.script(call("shell", command="exec sleep 600"), {"content": "never"})
    child = cli.start("run", "--json", "--session", session, "--approve", "all", "do it")
    read_until(child, "tool/call")
    try:
        yield child
    finally:
        child.kill()
        child.communicate(timeout=SECONDS)


def user_texts(cli: Command, session: str) -> list[str]:
    messages = [event for event in cli.events(session) if event["type"] == "user/message"]
    return [message["content"][0]["text"] for message in messages]


def test_resuming_repairs_tells_and_runs_nothing(cli: Command) -> None:
    cli.killed({"content": "never"})
    durable = cli.events("s1")
    done = cli.run("resume", "s1")
    assert done.status == 0
    assert "interrupted in turn 1" in done.out
    assert "outcome unknown" in done.out
    assert "--continue" in done.out
    after = cli.events("s1")
    assert after[: len(durable)] == durable
    new = after[len(durable) :]
    assert [event["type"] for event in new] == ["session/owner", "tool/result", "step/end", "turn/end"]
    assert new[1]["code"] == "TOOL_OUTCOME_UNKNOWN"


def test_resuming_twice_is_resuming_once(cli: Command) -> None:
    cli.killed()
    cli.run("resume", "s1")
    log = cli.log("s1").read_bytes()
    done = cli.run("resume", "s1")
    assert (done.status, cli.log("s1").read_bytes()) == (0, log)
    assert "clean" in done.out


def test_repair_needs_no_model(cli: Command) -> None:
    cli.killed()
    del cli.environ["FENCEPOST_MODEL"]
    assert cli.run("resume", "s1").status == 0
    assert cli.run("resume", "s1", "go on").status == 2


def test_programs_get_the_recovery_and_the_closers(cli: Command) -> None:
    cli.killed()
    durable = len(cli.events("s1"))
    records = cli.run("resume", "s1", "--json").records()
    first, new, last = records[0], records[1:-1], records[-1]
    (found,) = first["recovery"]["calls"]
    assert first["type"] == "session"
    assert first["recovery"]["interrupted"] == 1
    assert (found["name"], found["verdict"]) == ("shell", "outcome_unknown")
    assert [event["seq"] for event in new] == list(range(durable, durable + 4))
    assert new == cli.events("s1")[durable:]
    assert (last["type"], last["reason"], last["saved"]) == ("outcome", "resumed", True)


@pytest.mark.parametrize("words", [["more"], ["--continue"]])
def test_events_of_a_resumed_run_begin_with_the_closers(cli: Command, words: list[str]) -> None:
    cli.killed({"content": "Going on."})
    durable = len(cli.events("s1"))
    done = cli.run("resume", "s1", "--json", *words)
    assert done.status == 0
    assert done.records()[0]["recovery"]["closed"] == 3
    assert done.records()[1:-1] == cli.events("s1")[durable:]
    assert done.records()[-1]["text"] == "Going on."


def test_a_task_runs_only_its_own_turn(cli: Command) -> None:
    queue(cli, "s1", "left behind")
    cli.script({"content": "Done."}, {"content": "never"})
    done = cli.run("resume", "s1", "something new")
    assert (done.status, done.out) == (0, "Done.\n")
    assert "left behind" in done.err
    assert user_texts(cli, "s1") == ["something new"]
    (pending,) = cli.run("inspect", "s1", "--json").record()["pending_inputs"]
    assert pending == {"input_id": "i_0", "text": "left behind"}


def test_continue_runs_what_was_left_and_then_the_task(cli: Command) -> None:
    queue(cli, "s1", "first", "second")
    cli.script({"content": "one"}, {"content": "two"}, {"content": "three"})
    done = cli.run("resume", "s1", "third", "--continue")
    assert (done.status, done.out) == (0, "three\n")
    assert user_texts(cli, "s1") == ["first", "second", "third"]


def test_continue_goes_on_with_the_interrupted_turn(cli: Command) -> None:
    cli.killed({"content": "I see that I was interrupted."})
    done = cli.run("resume", "s1", "--continue")
    assert (done.status, done.out) == (0, "I see that I was interrupted.\n")
    starts = [event for event in cli.events("s1") if event["type"] == "turn/start"]
    assert [start.get("continues") for start in starts] == [None, 1]


def test_nothing_to_go_on_with_is_said(cli: Command) -> None:
    cli.finished()
    before = tree(cli.store)
    done = cli.run("resume", "s1", "--continue")
    assert (done.status, done.out) == (0, "")
    assert "nothing to go on with" in done.err
    assert done.status == 0
    assert cli.log("s1").read_bytes() == before["s1/log.jsonl"]


def test_a_task_does_not_step_over_work_that_failed(cli: Command) -> None:
    queue(cli, "s1", "first")
    cli.script()
    done = cli.run("resume", "s1", "second", "--continue")
    assert done.status == 1
    assert "not started" in done.err
    assert user_texts(cli, "s1") == ["first"]


def test_without_an_id_it_is_the_last_session_of_this_directory(cli: Command) -> None:
    elsewhere = cli.root / "elsewhere"
    elsewhere.mkdir()
    for session, cwd in (("old", cli.work), ("new", cli.work), ("other", elsewhere)):
        queue(cli, session, cwd=cwd)
    assert "session new is clean" in cli.run("resume").out
    assert cli.run("inspect", "--json", cwd=elsewhere).record()["session"] == "other"


def test_an_ambiguous_beginning_names_candidates(cli: Command) -> None:
    for session in ("alpha-1", "alpha-2"):
        queue(cli, session)
    assert "session alpha-2 is clean" in cli.run("resume", "alpha-2").out
    done = cli.run("resume", "alp")
    assert (done.status, done.out) == (2, "")
    assert "alpha-1, alpha-2" in done.err


@pytest.mark.parametrize(("text", "meant"), [("be", "be"), ("bet", "beta"), ("g", "gamma"), ("beta", "beta")])
def test_an_id_or_a_unique_beginning_is_enough(text: str, meant: str) -> None:
    assert match(text, ["beta", "be", "gamma"], "memory:") == meant


@pytest.mark.parametrize("text", ["", "x", "betamax"])
def test_what_begins_nothing_is_not_found(text: str) -> None:
    with pytest.raises(SessionNotFoundError):
        match(text, ["beta", "be"], "memory:")


def test_a_session_that_is_held_is_four_and_not_touched(cli: Command) -> None:
    with living(cli, "s1") as child:
        log = cli.log("s1").read_bytes()
        done = cli.run("resume", "s1", "--json", "more")
        assert done.status == 4
        assert str(child.pid) in done.err
        assert done.records()[-1]["code"] == "HELD"
        assert cli.run("resume", "s1").status == 4
        assert cli.log("s1").read_bytes() == log


def test_a_directory_that_is_gone_is_said_before_anything_runs(cli: Command) -> None:
    gone = cli.root / "gone"
    gone.mkdir()
    cli.script({"content": "one"}, {"content": "two"})
    cli.run("run", "--session", "s1", "--cwd", str(gone), "x")
    shutil.rmtree(gone)
    log = cli.log("s1").read_bytes()
    done = cli.run("resume", "s1", "more")
    assert done.status == 2
    assert str(gone) in done.err
    assert cli.log("s1").read_bytes() == log
    assert cli.run("resume", "s1").status == 0


def test_the_agent_is_composed_from_the_sessions_directory(cli: Command) -> None:
    (cli.work / "fencepost.toml").write_text("system = 'You are terse.'\n")
    cli.script({"content": "one"}, {"content": "two"})
    cli.run("run", "--session", "s1", "x")
    assert cli.run("resume", "s1", "y", cwd=cli.root).status == 0
    headers = [event for event in cli.events("s1") if event["type"] == "request/header"]
    assert [header["system"] for header in headers] == ["You are terse.", "You are terse."]


def test_torn_bytes_are_set_aside_and_told(cli: Command) -> None:
    cli.finished()
    with cli.log("s1").open("ab") as log:
        log.write(b'{"type":"input/que')
    done = cli.run("resume", "s1")
    assert done.status == 0
    assert "18 torn bytes" in done.out


def test_a_damaged_session_is_five_and_not_touched(cli: Command) -> None:
    cli.finished()
    damage(cli.log("s1"))
    before = tree(cli.store)
    for words in (["resume", "s1"], ["resume", "s1", "more"], ["resume", "s1", "--continue", "--json"]):
        assert cli.run(*words).status == 5
    assert {name: data for name, data in tree(cli.store).items() if name.endswith(".jsonl")} == {
        name: data for name, data in before.items() if name.endswith(".jsonl")
    }


def damage(log: Path) -> None:
    """A run of NUL bytes in the middle of a log."""
    data = log.read_bytes()
    at = data.index(b'"user/message"')
    log.write_bytes(data[:at] + bytes(14) + data[at + 14 :])


def test_interrupting_a_continued_turn_leaves_later_prompts_pending(cli: Command) -> None:
    queue(cli, "s1", "first", "second")
    cli.script(call("shell", command="exec sleep 600"), {"content": "never"})
    child = cli.start("resume", "s1", "--continue", "--json", "--approve", "all")
    read_until(child, "tool/call")
    child.send_signal(signal.SIGINT)
    done: Any = finish(child)
    assert done.status == 130
    assert user_texts(cli, "s1") == ["first"]
    pending = cli.run("inspect", "s1", "--json").record()["pending_inputs"]
    assert [item["text"] for item in pending] == ["second"]
