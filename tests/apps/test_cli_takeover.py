"""`fencepost resume --takeover`: a session is taken from a process that lives, where the store can refuse that one."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.apps.command import Command, call, finish, read_until
from tests.apps.test_cli_resume import living


def test_a_database_takes_a_session_from_a_living_process(cli: Command, url: str) -> None:
    cli.environ["FENCEPOST_STORE"] = url
    pipe = cli.work / "pipe"
    os.mkfifo(pipe)
    cli.script(call("shell", command="cat pipe"), {"content": "never"})
    child = cli.start("run", "--json", "--session", "s1", "--approve", "all", "do it")
    try:
        read_until(child, "tool/call")
        held = cli.run("resume", "s1")
        assert held.status == 4
        assert str(child.pid) in held.err
        assert "--takeover" in held.err
        taken = cli.run("resume", "s1", "--takeover")
        assert taken.status == 0
        assert "outcome unknown" in taken.out
        log = events(cli)
        assert [event["type"] for event in log[-3:]] == ["tool/result", "step/end", "turn/end"]
        let_go(pipe)
        replaced = finish(child)
        assert replaced.status == 3
        assert "taken over" in replaced.err
        assert events(cli) == log, "a late append of the old owner landed"
        assert cli.run("resume", "s1").status == 0
    finally:
        child.kill()
        child.communicate()


def events(cli: Command) -> list[dict[str, object]]:
    return [json.loads(line) for line in cli.run("export", "s1").out.splitlines()]


def let_go(pipe: Path) -> None:
    """Let the command that reads the pipe end."""
    pipe.write_text("done\n")


def test_a_lock_is_its_holders(cli: Command) -> None:
    with living(cli, "s1") as child:
        log = cli.log("s1").read_bytes()
        done = cli.run("resume", "s1", "--takeover")
        assert done.status == 2
        assert f"End PID {child.pid} on " in done.err
        assert cli.log("s1").read_bytes() == log
