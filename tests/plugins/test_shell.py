"""The shell tool with real commands: what the model reads, what ends when, and what outlives the agent."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.plugins.shell_desk import Desk, until

from fencepost.errors import UsageError
from fencepost.plugins import shell, shell_launch
from fencepost.plugins.shell import EXIT, NOT_RUN, ShellRules, shell_tool
from fencepost.plugins.shell_command import parents
from fencepost.plugins.shell_output import Printed
from fencepost.plugins.shell_printed import Kept
from fencepost.plugins.shell_record import HEAD, TAIL
from fencepost.runtime.replies import NotStarted
from fencepost.runtime.schema import validate
from fencepost.runtime.tools import ToolReply

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    for pid in made.survivors():
        os.kill(pid, signal.SIGKILL)


# --- what the model reads ---------------------------------------------------------------------------------------


def test_output_of_both_streams_in_order_in_the_working_directory(desk: Desk) -> None:
    reply = desk.run("echo one; echo two >&2; pwd; echo $FENCEPOST_CALL_ID $FENCEPOST_SESSION_ID")
    assert reply == ToolReply(f"one\ntwo\n{desk.cwd}\n{desk.call_id} s1\n")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("echo oh; exit 3", "oh\n[exit code 3]"),
        ("exit 3", "(no output)\n[exit code 3]"),
        ("kill -SEGV $$", "(no output)\n[ended by SIGSEGV, signal 11]"),
        ("exit 137", "(no output)\n[exit code 137, which stands for SIGKILL]"),
        ("exit 255", "(no output)\n[exit code 255]"),
    ],
)
def test_a_bad_end_is_an_error_that_names_code_or_signal(desk: Desk, command: str, text: str) -> None:
    reply = desk.run(command)
    assert reply.is_error
    assert reply.code == EXIT
    assert not reply.unknown
    assert reply.text == text


def test_a_command_without_output_says_so(desk: Desk) -> None:
    assert desk.run("true") == ToolReply("(no output)")
    assert not desk.log.exists()


def test_nothing_can_be_read_from_stdin(desk: Desk) -> None:
    assert desk.run("cat; echo end") == ToolReply("end\n")


def test_a_broken_pipe_ends_the_writer_as_in_any_shell(desk: Desk) -> None:
    assert desk.run("(yes; echo $? >&2) | head -n 1").text.split() == ["y", "141"]


def test_the_command_inherits_no_descriptor_of_ours(desk: Desk, tmp_path: Path) -> None:
    with (tmp_path / "secret").open("wb"):
        said = desk.run("ls /proc/self/fd").text.split()
    assert len(said) == 4, said  # 0, 1, 2, and the directory that ls itself has open


def test_bytes_that_are_not_utf8_are_replaced_and_cut_characters_are_not_streamed(desk: Desk) -> None:
    reply = desk.run(r"printf 'a\377b'; printf '\342\202'; sleep 0.05; printf '\254'")
    assert reply.text == "a\ufffdb€"
    assert "".join(desk.heard) == "a\ufffdb€"
    assert desk.log.read_bytes() == b"a\xffb\xe2\x82\xac"


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo \0", "holds a character"),
        ("echo \ud800", "holds a character"),
        ("echo " + "x" * 3_000_000, "3000005 characters are too long"),
    ],
    ids=["nul", "surrogate", "too long"],
)
def test_what_no_command_line_can_hold_is_one_clear_sentence(desk: Desk, command: str, why: str) -> None:
    reply = desk.run(command)
    assert (reply.is_error, reply.code) == (True, NOT_RUN)
    assert why in reply.text


def test_a_missing_working_directory_is_named(desk: Desk) -> None:
    desk.cwd.rmdir()
    reply = desk.run("true")
    assert (reply.is_error, reply.code) == (True, NOT_RUN)
    assert f"the working directory {desk.cwd} does not exist" in reply.text


def test_a_missing_shell_is_an_error_that_names_it(desk: Desk) -> None:
    reply = desk.run("true", tool=shell_tool(rules=ShellRules(shell="/nowhere/sh")))
    assert reply.text == "/nowhere/sh: No such file or directory\n[exit code 127]"


def test_the_timeout_that_the_model_may_ask_for_is_bounded_before_admission() -> None:
    made = shell_tool(timeout_default=5, timeout_limit=10)
    assert validate(made, {"command": "true", "timeout": 10}) is None
    said = validate(made, {"command": "true", "timeout": 11})
    assert said == "timeout is 11; expected number, at most 10, more than 0 or null"
    with pytest.raises(UsageError, match="default timeout is 20 s"):
        shell_tool(timeout_default=20, timeout_limit=10)


# --- streaming and bounds ---------------------------------------------------------------------------------------


def test_output_is_streamed_while_the_command_runs(desk: Desk) -> None:
    def hear(text: str) -> None:
        desk.heard.append(text)
        if "ready" in text:
            (desk.cwd / "go").touch()

    desk.progress = hear
    reply = desk.run("echo ready; until [ -e go ]; do sleep 0.01; done; echo went on")
    assert reply == ToolReply("ready\nwent on\n")


def test_long_output_is_cut_in_the_middle_and_kept_whole_in_a_private_file(desk: Desk) -> None:
    reply = desk.run("seq 100000")
    whole = "".join(f"{n}\n" for n in range(1, 100_001))
    assert desk.log.read_text() == whole
    assert desk.log.stat().st_mode & 0o777 == 0o600
    assert desk.files.stat().st_mode & 0o777 == 0o700
    head, note, tail = re.fullmatch(r"(.*)\[… (.*) …\]\n(.*)", reply.text, re.DOTALL).groups()  # type: ignore[union-attr]
    assert whole.startswith(head.removesuffix("\n"))
    assert whole.endswith(tail)
    assert len(tail) == TAIL
    assert note == (f"{len(whole) - HEAD - TAIL} bytes are left out here; all {len(whole)} bytes are in {desk.log}")
    assert not reply.is_error


@linux
def test_200_megabytes_of_output_do_not_stay_in_memory(desk: Desk) -> None:
    script = AGENT + textwrap.dedent(
        """
        from pathlib import Path
        reply = asyncio.run(main(lambda text: None))
        # Not ru_maxrss: that remembers the peak of the process which this one was forked from.
        (peak,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
        print(peak.split()[1], len(reply.text))
        """
    )
    command = "head -c 200000000 /dev/zero"
    done = subprocess.run(
        [sys.executable, "-c", script, desk.call_id, str(desk.cwd), str(desk.files), command, "finish"],
        capture_output=True,
        check=True,
    )
    kib, characters = map(int, done.stdout.split())
    assert desk.log.stat().st_size == 200_000_000
    assert kib < 150 * 1024
    assert characters < HEAD + TAIL + 500


def test_a_cut_never_splits_a_character_and_the_count_is_right(tmp_path: Path) -> None:
    whole, path = "€" * 20_000, tmp_path / "out.log"
    kept = Kept(str(path))
    for start in range(0, 60_000, 100):
        kept.add(whole.encode()[start : start + 100])
    kept.settle()
    text = Printed.in_file(path, 0).text
    assert "\ufffd" not in text
    head, count, tail = re.fullmatch(r"(€+)\n\[… (\d+) bytes .*\]\n(€+)", text).groups()  # type: ignore[union-attr]
    assert len(head.encode()) + int(count) + len(tail.encode()) == 60_000


@pytest.mark.parametrize("size", [0, 5, HEAD, HEAD + 7, HEAD + TAIL, HEAD + TAIL + 1, 100_000])
def test_the_file_and_the_receipt_tell_the_same(desk: Desk, size: int) -> None:
    reply = desk.run(f"head -c {size} /dev/urandom")
    done = desk.attempt.done
    assert done is not None
    assert Printed.in_file(desk.log, 0) == done.printed(desk.log)
    assert reply.text == (done.printed(desk.log).text or "(no output)")


def test_a_file_that_cannot_be_written_is_told_and_fails_nothing(desk: Desk) -> None:
    desk.log.mkdir(parents=True)
    reply = desk.run("seq 100000")
    assert not reply.is_error
    assert f"they could not be kept in {desk.log}: " in reply.text


def test_without_a_place_for_its_receipt_nothing_is_run(desk: Desk) -> None:
    desk.files.write_text("a file where the directory should be")
    reply = desk.run("touch effect")
    assert (reply.is_error, reply.code) == (True, NOT_RUN)
    assert reply.text == (
        "The command could not be started: "
        f"its receipt could not be written to {desk.files / 'receipts'}: Not a directory."
    )
    assert not (desk.cwd / "effect").exists()


def test_receipts_are_private(desk: Desk) -> None:
    desk.run("echo x")
    place = desk.files / "receipts"
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}


def test_a_slow_listener_holds_nothing_up_and_is_told_what_it_missed(desk: Desk) -> None:
    """The agent's loop stands still while the command prints more than can wait for it."""

    def hear(text: str) -> None:
        if not desk.heard:
            until(lambda: desk.log.exists() and desk.log.stat().st_size == 3_000_000, "all is in the file")
        desk.heard.append(text)

    desk.progress = hear
    reply = desk.run("head -c 3000000 /dev/zero")
    assert "all 3000000 bytes are in" in reply.text
    assert re.search(r"\n\[… \d+ bytes are not shown here …\]\n", "".join(desk.heard))


def test_what_a_listener_raises_ends_the_command_and_is_raised(desk: Desk) -> None:
    def hear(text: str) -> None:
        raise RuntimeError("deaf")

    desk.progress = hear
    with pytest.raises(RuntimeError, match="deaf"):
        desk.run("echo x; sleep 1000")
    until(lambda: not desk.survivors(), "the command is gone")


# --- the end of a call is the end of the command ----------------------------------------------------------------

BACKGROUND = {
    "in the group": "sleep 1000 & echo on",
    "in another session": "setsid sleep 1000 & echo on",
    "below another parent": "(setsid sh -c 'sleep 1000 & sleep 1000' &) ; echo on",
    "deaf to SIGTERM": "(trap '' TERM; sleep 1000; true) & echo on",
    "holding no output": "nohup sleep 1000 >/dev/null 2>&1 & echo on",
}


@linux
@pytest.mark.parametrize("command", BACKGROUND.values(), ids=BACKGROUND)
def test_what_a_command_leaves_behind_neither_blocks_its_call_nor_outlives_it(desk: Desk, command: str) -> None:
    reply = desk.run(command)
    assert reply == ToolReply("on\n[what it had left running in the background was ended]")
    assert desk.survivors() == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="process substitution needs bash")
def test_what_ends_by_itself_soon_after_the_shell_is_let_finish(desk: Desk) -> None:
    reply = desk.run("exec > >(sleep 0.02; cat); echo through a process substitution")
    assert reply.text.startswith("through a process substitution\n")


@linux
def test_a_command_that_closed_its_output_is_still_waited_for(desk: Desk) -> None:
    reply = desk.run("exec >/dev/null 2>&1; sleep 0.1; touch done; exit 4")
    assert reply.text == "(no output)\n[exit code 4]"
    assert (desk.cwd / "done").exists()


@linux
@pytest.mark.parametrize("deaf", ["", "trap '' TERM; "], ids=["obedient", "deaf to SIGTERM"])
def test_a_timeout_ends_everything_and_the_outcome_is_unknown(desk: Desk, deaf: str) -> None:
    reply = desk.run(f"{deaf}echo begun; setsid sleep 1000 & sleep 1000; touch effect", timeout=0.2)
    assert reply.unknown
    assert reply.text == "the command was ended after 0.2 s"
    assert reply.detail == "It had printed:\nbegun\n"
    assert desk.survivors() == []
    assert not (desk.cwd / "effect").exists()


@linux
def test_on_timeout_a_command_may_clean_up(desk: Desk) -> None:
    reply = desk.run("trap 'rm lock; echo cleaned; exit' TERM; touch lock; echo begun; sleep 1000 & wait", timeout=0.5)
    assert reply.unknown
    assert reply.detail == "It had printed:\nbegun\ncleaned\n"
    assert not (desk.cwd / "lock").exists()


@linux
def test_a_cancel_ends_everything_and_the_outcome_is_unknown(desk: Desk) -> None:
    desk.progress = lambda text: desk.cancel.set("user")
    reply = desk.run("echo begun; setsid sleep 1000 & sleep 1000; touch effect")
    assert reply.unknown
    assert reply.text == "the command was ended because the turn was cancelled"
    assert desk.survivors() == []


def test_what_is_cancelled_before_it_is_let_go_has_not_started(desk: Desk) -> None:
    desk.cancel.set("user")
    with pytest.raises(NotStarted):
        desk.run("touch effect")
    until(lambda: list(desk.files.glob("receipts/*.done")), "it is withdrawn")
    assert desk.attempt.done.outcome == "withdrawn"  # type: ignore[union-attr]
    assert not (desk.cwd / "effect").exists()


@linux
def test_a_call_whose_task_is_stopped_leaves_nothing(desk: Desk) -> None:
    async def go() -> None:
        begun = asyncio.Event()
        desk.progress = lambda text: begun.set()
        call = asyncio.create_task(desk.call("echo begun; trap '' TERM; setsid sleep 1000 & sleep 1000"))
        await begun.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert desk.survivors() == []

    asyncio.run(go())


@linux
def test_a_loop_that_is_closed_over_a_running_command_leaves_nothing(desk: Desk) -> None:
    async def go() -> None:
        begun = asyncio.Event()
        desk.progress = lambda text: begun.set()
        call = asyncio.create_task(desk.call("echo begun; sleep 1000"))
        await begun.wait()
        assert not call.done()

    asyncio.run(go())
    assert desk.survivors() == []


def zombies() -> list[int]:
    """Children of this process that ended and were not collected."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state == "Z" and int(parent) == os.getpid():
                    found.append(int(entry.name))
    return found


@linux
def test_calls_leak_no_descriptor_task_or_zombie(desk: Desk) -> None:
    def held() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def go() -> None:
        await desk.call("echo warm")
        before = held()
        tasks = asyncio.all_tasks()
        for command in ("true", "echo x; exit 3", "seq 20000", "sleep 1000 & echo x", "echo \0"):
            await desk.call(command)
        await desk.call("echo x; sleep 1000", timeout=0.1)
        stopped = asyncio.create_task(desk.call("echo x; sleep 1000"))
        desk.progress = lambda text: stopped.cancel() and None
        await asyncio.wait({stopped})
        unborn = asyncio.create_task(desk.call("sleep 1000"))
        await asyncio.sleep(0)
        unborn.cancel()
        await asyncio.wait({unborn})
        for _ in range(5):
            await asyncio.sleep(0)  # the callbacks of what is done
        assert asyncio.all_tasks() == tasks
        assert zombies() == []
        assert held() <= before

    asyncio.run(go())


# --- the end of the agent -----------------------------------------------------------------------------------------

AGENT = textwrap.dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from fencepost.plugins.shell import ShellRules, shell_tool
    from fencepost.runtime.cancel import CancelSignal
    from fencepost.runtime.tools import CallContext

    async def main(progress):
        call_id, cwd, files, command, on_crash = sys.argv[1:6]
        context = CallContext(call_id, "s1", Path(cwd), CancelSignal(), progress, Path(files))
        tool = shell_tool(rules=ShellRules(on_crash=on_crash))
        return await tool.body(context, {"command": command, "timeout": None})
    """
)

SAY = "\nasyncio.run(main(lambda text: print(text, end='', flush=True)))\n"
FORKS = (
    AGENT
    + """
def progress(text):
    if os.fork() == 0:
        os.close(1)
        import time
        time.sleep(60)
    print(text, end='', flush=True)
asyncio.run(main(progress))
"""
)
"""Here a sibling holds copies of all descriptors of the agent: they stay open when the agent dies."""


def agent(desk: Desk, command: str, script: str = AGENT + SAY, on_crash: str = "end") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", script, desk.call_id, str(desk.cwd), str(desk.files), command, on_crash],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def kill_at_first_output(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    process.kill()
    process.wait()
    process.stdout.close()


AT_WORK = {
    "a plain one": "echo begun; sleep 1; touch effect",
    "in the background": "(sleep 1; touch effect) & echo begun; sleep 1000",
    "in another session": "setsid sh -c 'sleep 1; touch effect' & echo begun; wait",
    "a daemon": "(setsid sh -c '(sleep 1; touch effect) &' &); echo begun; sleep 1000",
    "nested": "sh -c \"sh -c 'echo begun; sleep 1; touch effect'; touch effect\"; touch effect",
    "deaf to signals": "trap '' TERM HUP INT QUIT PIPE; echo begun; sleep 1; touch effect",
    "always forking": "again() { (sleep 0.01; again) & }; again; echo begun; sleep 1; touch effect",
    "with a child that is waited for": "echo begun; sleep 1000; touch effect",
}


@linux
@pytest.mark.parametrize("command", AT_WORK.values(), ids=AT_WORK)
def test_a_command_can_be_made_to_die_with_its_killed_agent(desk: Desk, command: str) -> None:
    kill_at_first_output(agent(desk, command))
    until(lambda: not desk.survivors(), "every process of the call is gone")
    assert not (desk.cwd / "effect").exists()


@linux
def test_its_death_is_noticed_where_a_forked_sibling_keeps_its_descriptors_open(desk: Desk) -> None:
    process = agent(desk, "setsid sleep 1000 & echo begun; sleep 1; touch effect", FORKS)
    kill_at_first_output(process)
    until(lambda: not desk.survivors(), "every process of the call is gone")
    assert not (desk.cwd / "effect").exists()
    os.killpg(process.pid, signal.SIGKILL)


@linux
def test_a_forked_child_of_an_agent_has_commands_of_its_own(desk: Desk) -> None:
    """The launcher is its parent's, and would not see the child's death."""
    warm = "\nsys.argv[4] = 'true'\nasyncio.run(main(lambda text: None))\nsys.argv[4] = command\n"
    fork = "\npid = os.fork()\nif pid:\n    print(pid, flush=True)\n    os.waitpid(pid, 0)\n    sys.exit()\n"
    script = AGENT + "\ncommand = sys.argv[4]\n" + warm + fork + SAY
    process = agent(desk, "echo begun; sleep 1000; touch effect", script)
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert process.stdout.readline() == b"begun\n"
    os.kill(child, signal.SIGKILL)
    until(lambda: not desk.survivors(), "every process of the call is gone")
    process.stdout.close()
    process.wait()


@linux
def test_a_command_runs_to_its_end_when_its_agent_is_killed(desk: Desk) -> None:
    command = "echo begun; until [ -e go ]; do sleep 0.01; done; echo went on; exit 3"
    kill_at_first_output(agent(desk, command, on_crash="finish"))
    (desk.cwd / "go").touch()
    until(lambda: desk.attempt.done, "its receipt is there")
    done = desk.attempt.done
    assert done is not None
    assert (done.outcome, done.code) == ("exited", 3)
    assert done.printed(desk.log).text == "begun\nwent on\n" == desk.log.read_text()
    until(lambda: not desk.survivors(), "every process of the call is gone")


@linux
def test_what_it_leaves_behind_is_ended_then_too(desk: Desk) -> None:
    command = "setsid sleep 1000 & echo begun; until [ -e go ]; do sleep 0.01; done"
    kill_at_first_output(agent(desk, command, on_crash="finish"))
    (desk.cwd / "go").touch()
    until(lambda: desk.attempt.done, "its receipt is there")
    assert desk.attempt.done.left  # type: ignore[union-attr]
    assert desk.survivors() == []


@linux
def test_its_time_runs_out_then_too(desk: Desk) -> None:
    script = AGENT.replace('"timeout": None', '"timeout": 0.5') + SAY
    kill_at_first_output(agent(desk, "echo begun; sleep 1000; touch effect", script, on_crash="finish"))
    until(lambda: desk.attempt.done, "its receipt is there")
    assert desk.attempt.done.why == "the command was ended after 0.5 s"  # type: ignore[union-attr]
    assert desk.survivors() == []


@linux
@pytest.mark.parametrize("on_crash", ["finish", "end"])
def test_a_loop_that_is_thrown_away_ends_its_commands(desk: Desk, on_crash: str) -> None:
    """The agent lives, but nobody in it will ever give an order again."""
    throw = (
        "\nloop = asyncio.new_event_loop()\n"
        "task = loop.create_task(main(lambda text: (print(text, end='', flush=True), loop.stop())))\n"
        "loop.run_forever()\nos.closerange(3, 100)\nimport time\ntime.sleep(1000)\n"
    )
    process = agent(desk, "echo begun; sleep 1000; touch effect", AGENT + throw, on_crash)
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    until(lambda: not desk.survivors(), "every process of the call is gone")
    process.kill()
    process.wait()
    process.stdout.close()


# --- the processes between ----------------------------------------------------------------------------------------


@linux
def test_when_the_supervisor_is_killed_the_command_dies_and_the_outcome_is_unknown(desk: Desk) -> None:
    desk.progress = lambda text: os.kill(desk.attempt.started.supervisor.pid, signal.SIGKILL)
    reply = desk.run("sleep 1000 & echo begun; sleep 1000; touch effect")
    assert reply.unknown
    assert reply.text == "the process that watched over the command was killed"
    assert reply.detail == "It had printed:\nbegun\n"
    until(lambda: not desk.survivors(), "the command and its group are gone")
    assert not (desk.cwd / "effect").exists()


@linux
def test_a_stopped_supervisor_is_not_waited_for_for_ever(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.plugins.shell_group.STUCK_AFTER", 0.1)
    monkeypatch.setattr("fencepost.plugins.shell.STUCK_AFTER", 0.1)
    desk.progress = lambda text: os.kill(desk.attempt.started.supervisor.pid, signal.SIGSTOP)
    reply = desk.run("echo begun; sleep 1000", timeout=0.1, tool=shell_tool(rules=ShellRules(grace=0.1)))
    assert reply.unknown
    until(lambda: not desk.survivors(), "the command is gone")


@linux
def test_signals_from_elsewhere_do_not_make_the_supervisor_end_the_command(desk: Desk) -> None:
    def disturb(text: str) -> None:
        if text == "begun\n":
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                os.kill(desk.attempt.started.supervisor.pid, number)
            (desk.cwd / "go").touch()

    desk.progress = disturb
    assert desk.run("echo begun; until [ -e go ]; do sleep 0.01; done; echo end") == ToolReply("begun\nend\n")


@pytest.fixture
def launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[shell_launch.Launcher]:
    """A launcher of the test's own."""
    made = shell_launch.Launcher()
    monkeypatch.setattr(shell, "LAUNCHER", made)
    yield made
    if made._socket is not None:
        made._bury()


@linux
def test_the_supervisors_of_a_killed_launcher_live_on_and_the_next_command_gets_another(
    desk: Desk, launcher: shell_launch.Launcher
) -> None:
    desk.progress = lambda text: os.kill(launcher._pid, signal.SIGKILL)
    assert desk.run("echo begun; sleep 0.1; echo end") == ToolReply("begun\nend\n")
    first, desk.progress = launcher._pid, desk.heard.append
    for _ in range(3):  # one of them is served by the supervisor that stood by
        assert desk.run("echo again") == ToolReply("again\n")
    assert launcher._pid != first


@linux
def test_a_killed_supervisor_that_stood_by_is_replaced(desk: Desk, launcher: shell_launch.Launcher) -> None:
    desk.run("true")
    for _ in range(2):
        until(lambda: len(below(launcher._pid)) == 2, "one stands by, with its command")
        for pid in below(launcher._pid):
            os.kill(pid, signal.SIGKILL)
        assert desk.run("echo x") == ToolReply("x\n")


def below(pid: int) -> list[int]:
    """Process ids below this one."""
    above = parents()
    found = [pid]
    for each in found:
        found += [child for child, parent in above.items() if parent == each]
    return found[1:]


@linux
def test_a_stopped_launcher_ends_in_a_clear_refusal_and_starts_nothing_later(
    desk: Desk, launcher: shell_launch.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.run("true")
    until(lambda: len(below(launcher._pid)) == 2, "one stands by, with its command")
    os.kill(launcher._pid, signal.SIGSTOP)
    desk.run("true")  # by the supervisor that stood by
    with monkeypatch.context() as patience:
        patience.setattr("fencepost.plugins.shell.START_WITHIN", 0.1)  # for the one that nobody will answer
        reply = desk.run("touch effect")
    assert reply.text == "The command could not be started: the process that starts commands does not answer."
    assert (reply.is_error, reply.code) == (True, NOT_RUN)
    os.kill(launcher._pid, signal.SIGCONT)
    for _ in range(2):
        assert desk.run("true") == ToolReply("(no output)")  # so it has served the one before
    assert not (desk.cwd / "effect").exists()


@linux
def test_the_launcher_ends_with_its_agent(desk: Desk) -> None:
    script = AGENT + "\nasyncio.run(main(lambda text: None))\nfrom fencepost.plugins.shell_launch import LAUNCHER\n"
    process = agent(desk, "true", script + "print(LAUNCHER._pid, flush=True)\nimport time\ntime.sleep(1000)\n")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert Path(f"/proc/{pid}/comm").read_text() == "fencepost-shell\n"
    process.kill()
    process.wait()
    process.stdout.close()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the launcher is gone")


@linux
def test_a_call_runs_without_help_from_the_kernel(
    desk: Desk, launcher: shell_launch.Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on systems that have neither a death signal nor adoption: the group, and what is in it, still ends."""
    other = shell_launch._START.replace("import sys; ", "import sys; sys.platform = 'other'; ", 1)
    monkeypatch.setattr(shell_launch, "_START", other)
    assert desk.run("echo x; exit 3").text == "x\n[exit code 3]"
    reply = desk.run("sleep 1000 & echo begun; sleep 1000; touch effect", timeout=0.2)
    assert reply.unknown
    until(lambda: not desk.survivors(), "the group is gone")
    assert desk.run("sleep 1000 & echo on").text == "on\n[what it had left running in the background was ended]"
    until(lambda: not desk.survivors(), "the group is gone")
    assert not (desk.cwd / "effect").exists()
