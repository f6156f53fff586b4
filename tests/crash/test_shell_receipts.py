"""Every point of a receipt's life, with real processes: the agent, the supervisor or both are killed there.

strace watches the launcher and what it forks, and stops the supervisor behind the system call that makes the point.
While it stands there, others are killed, what settlement would say is asked, and it goes on. The world is a file to
which the command appends a line.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.core import verdict as v
from fencepost.journal.inspect import CallView
from fencepost.plugins.shell_command import parents
from fencepost.plugins.shell_receipts import Attempt, attempts
from fencepost.plugins.shipped import compose
from fencepost.runtime.runtime import Runtime
from fencepost.stores.urls import open_store
from tests.crash.processes import PATIENCE, ROOT, await_that, ended, need
from tests.crash.shell_agent import SESSION

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs strace")

POINTS = {
    "forked, held": "mkdir:when=1",
    "written, not in place": "fsync:when=1",
    "in place, not synced": "link:when=1",
    "durable, nobody told": "fsync:when=2",
    "ended, receipt written": "fsync:when=3",
    "receipt renamed, not synced": "rename:when=1",
    "agent told, receipt durable": "fsync:when=4",
}
"""Behind which system call of the supervisor each point lies. The directory is there: `mkdir` only says so."""
BEFORE = tuple(POINTS)[:4]
"""Those at which the command has not been let go."""
UNPLACED = tuple(POINTS)[:2]
"""Those at which there is no started record yet."""
RENAMED = tuple(POINTS)[5:]
TOLD = tuple(POINTS)[6]


class Scene:
    """One agent, its working directory and its store."""

    def __init__(self, home: Path, command: str = "echo x >> effect; echo hello", on_crash: str = "finish") -> None:
        self.cwd = home / "work"
        self.cwd.mkdir()
        self.url = f"jsonl:{home / 'sessions'}"
        self.files = home / "sessions" / SESSION / "files"
        self.trace = home / "trace"
        self.errors = home / "stderr"
        arguments = [sys.executable, "-m", "tests.crash.shell_agent", self.url, command, on_crash]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.errors.open("wb") as errors:
            self.agent = subprocess.Popen(
                arguments,
                cwd=self.cwd,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,
            )
        assert self.agent.stdout is not None
        self.launcher = int(self.agent.stdout.readline() or b"0")
        assert self.launcher, self.errors.read_text()

    def begin(self) -> None:
        """Let the agent run its turn."""
        assert self.agent.stdin is not None
        self.agent.stdin.write(b"\n")
        self.agent.stdin.flush()

    def kill_agent(self) -> None:
        self.agent.kill()
        self.agent.wait()

    @property
    def attempt(self) -> Attempt:
        (only,) = attempts(self.files, self.call_id)
        return only

    @property
    def call_id(self) -> str:
        return self.view(settle=False).call_id

    def view(self, *, settle: bool = True) -> CallView:
        """The call, as it is looked at."""

        async def look() -> CallView:
            async with Runtime(open_store(self.url), None, compose(("shell",), "all")) as runtime:
                (call,) = (await runtime.inspect(SESSION, settle=settle)).calls
                return call

        return asyncio.run(look())

    def resume(self, running: str = "leave") -> CallView:
        """The call, once the session was resumed."""

        async def go() -> None:
            async with Runtime(open_store(self.url), None, compose(("shell",), "all")) as runtime:
                await runtime.resume(SESSION, running=running)

        asyncio.run(go())
        return self.view(settle=False)

    @property
    def effects(self) -> int:
        place = self.cwd / "effect"
        return len(place.read_text().splitlines()) if place.exists() else 0

    def processes(self) -> list[int]:
        """What lives in the working directory, the agent left out: supervisors, and commands."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != self.agent.pid:
                with contextlib.suppress(OSError):
                    if (entry / "cwd").readlink() == self.cwd:
                        found.append(int(entry.name))
        return found


@contextlib.contextmanager
def scene(home: Path, **how: str) -> Iterator[Scene]:
    """A scene; nothing of it is left behind the block."""
    made = Scene(home, **how)
    try:
        with ended(made.agent):
            yield made
    finally:
        for pid in made.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pipe in (made.agent.stdin, made.agent.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


@contextlib.contextmanager
def watched(made: Scene, injection: str) -> Iterator[subprocess.Popen[bytes]]:
    """strace at the launcher, at what it has forked and at what it will fork."""
    call, _, when = injection.partition(":")
    inject = f"inject={call}:signal=SIGSTOP:{when}" if "signal" not in when else f"inject={injection}"
    command = [need("strace"), "-f", "-qq", "-o", str(made.trace), "-e", f"trace={call}", "-e", inject]
    await_that(lambda: len(_below(made.launcher)) == 2, made.agent)  # a supervisor stands by, with its command
    chosen = [made.launcher, *_below(made.launcher)]
    attach = [argument for pid in chosen for argument in ("-p", str(pid))]
    tracer = subprocess.Popen([*command, *attach], stderr=subprocess.DEVNULL, process_group=0)
    with ended(tracer):
        await_that(lambda: all(_tracer_of(pid) == tracer.pid for pid in chosen), tracer)
        yield tracer


def _below(pid: int) -> list[int]:
    """Process ids below this one."""
    above = parents()
    found = [pid]
    for each in found:
        found += [child for child, parent in above.items() if parent == each]
    return found[1:]


def _tracer_of(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("TracerPid:")[2].split()[0])


def stopped(made: Scene, tracer: subprocess.Popen[bytes], number: int = 1) -> int:
    """The supervisor, or the one after it, once it stands at its point."""

    def pids() -> list[int]:
        lines = made.trace.read_text().splitlines()
        return [int(line.split()[0]) for line in lines if "stopped by SIGSTOP" in line]

    await_that(lambda: len(pids()) == number, tracer)
    return pids()[-1]


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.005)


def true_to_the_world(call: CallView, made: Scene) -> None:
    """Law 2, and its counterpart."""
    if call.verdict == "not_started" or call.code in v.NOT_ENTERED:
        assert made.effects == 0
    if call.code == "NOT_RUN":
        assert made.effects == 0
    if (call.verdict, call.code) == ("completed", ""):
        assert made.effects == 1


# --- one is killed ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_crash", ["finish", "end"])
@pytest.mark.parametrize("point", POINTS)
def test_the_agent_is_killed(tmp_path: Path, point: str, on_crash: str) -> None:
    with scene(tmp_path, on_crash=on_crash) as made, watched(made, POINTS[point]) as tracer:
        made.begin()
        supervisor = stopped(made, tracer)
        made.kill_agent()
        if point in UNPLACED:
            assert made.view().verdict == "not_started"
        elif point in BEFORE:
            assert made.view().evidence.startswith("still running: ")
        elif point in RENAMED:
            assert made.view().verdict == "completed"
        os.kill(supervisor, signal.SIGCONT)
        until(lambda: not made.processes(), "the supervisor has gone")
        call = made.resume()
        assert call.verdict == ("not_started" if point in BEFORE else "completed")
        if point != TOLD:  # whose log may have the result already
            assert call.settled_by == "shell"
        true_to_the_world(call, made)


@pytest.mark.parametrize("point", POINTS)
def test_the_supervisor_is_killed(tmp_path: Path, point: str) -> None:
    with scene(tmp_path) as made, watched(made, POINTS[point]) as tracer:
        made.begin()
        os.kill(stopped(made, tracer), signal.SIGKILL)
        if point in BEFORE:
            # Nothing was let go, so the agent tries once more. Of that one's calls the directories are there already.
            os.kill(stopped(made, tracer, 2), signal.SIGCONT)
        made.agent.wait(PATIENCE)
        assert made.agent.returncode == 0, made.errors.read_text()
        call = made.view()
        if point in (*BEFORE, *RENAMED):
            assert (call.verdict, call.code) == ("completed", "")
        else:
            assert call.verdict == "outcome_unknown"
            assert call.evidence.endswith(
                "It had printed 6 bytes (" + str(next(made.files.glob("*.log"))) + "), the last of them:\nhello"
            )
        true_to_the_world(call, made)


def test_two_supervisors_are_killed_before_they_let_go(tmp_path: Path) -> None:
    with scene(tmp_path) as made, watched(made, POINTS["in place, not synced"]) as tracer:
        made.begin()
        for number in (1, 2):
            os.kill(stopped(made, tracer, number), signal.SIGKILL)
        made.agent.wait(PATIENCE)
        assert made.agent.returncode == 0, made.errors.read_text()
        call = made.view(settle=False)
        assert (call.verdict, call.code) == ("completed", "NOT_RUN")
        assert made.effects == 0


@pytest.mark.parametrize("point", POINTS)
def test_both_are_killed(tmp_path: Path, point: str) -> None:
    with scene(tmp_path) as made, watched(made, POINTS[point]) as tracer:
        made.begin()
        supervisor = stopped(made, tracer)
        made.kill_agent()
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: not made.processes(), "all have gone")
        seen = made.view()
        call = made.resume()
        assert (seen.verdict, seen.evidence) == (call.verdict, call.evidence)
        if point in UNPLACED:
            assert call.verdict == "not_started"
        else:
            assert call.verdict == ("completed" if point in RENAMED else "outcome_unknown")
        true_to_the_world(call, made)
        assert not list((made.files / "receipts").glob(".*"))


@pytest.mark.parametrize("call", ["sendto", "recvfrom", "execve"])
def test_the_supervisor_or_the_command_is_killed_at_the_entry_of_a_call(tmp_path: Path, call: str) -> None:
    """Counting up until a run comes through."""
    for number in range(1, 20):
        home = tmp_path / str(number)
        home.mkdir()
        with scene(home) as made, watched(made, f"{call}:signal=SIGKILL:when={number}"):
            made.begin()
            made.agent.wait(PATIENCE)
            assert made.agent.returncode == 0, made.errors.read_text()
            true_to_the_world(made.view(), made)
            if "killed by SIGKILL" not in made.trace.read_text():
                break
    assert number > 1, "no point was met"
    assert made.view(settle=False).code == ""


# --- the command is at it -----------------------------------------------------------------------------------------

AT_IT = "echo begun; until [ -e go ]; do sleep 0.01; done; echo x >> effect; echo hello"


def at_it(made: Scene) -> None:
    made.begin()
    await_that(lambda: any(path.read_text() == "begun\n" for path in made.files.glob("*.log")), made.agent)


def test_the_agent_is_killed_and_the_command_can_be_waited_for(tmp_path: Path) -> None:
    with scene(tmp_path, command=AT_IT) as made:
        at_it(made)
        made.kill_agent()
        assert made.view().evidence.startswith("still running: process ")
        (made.cwd / "go").touch()
        call = made.resume("wait")
        assert (call.verdict, call.code, call.settled_by) == ("completed", "", "shell")
        assert made.effects == 1


def test_the_agent_is_killed_and_the_command_can_be_ended(tmp_path: Path) -> None:
    with scene(tmp_path, command=AT_IT) as made:
        at_it(made)
        made.kill_agent()
        call = made.resume("end")
        assert call.verdict == "outcome_unknown"
        assert "a receipt says that the command was ended when the session was resumed." in call.evidence
        until(lambda: not made.processes(), "the supervisor has gone")
        assert made.effects == 0


def test_the_agent_is_killed_and_the_command_can_be_left(tmp_path: Path) -> None:
    with scene(tmp_path, command=AT_IT) as made:
        at_it(made)
        made.kill_agent()
        call = made.resume("leave")
        assert call.verdict == "outcome_unknown"
        assert call.evidence.startswith("still running: process ")
        (made.cwd / "go").touch()
        until(lambda: not made.processes(), "the command has come to its end")
        assert made.effects == 1


def test_the_agent_is_killed_and_the_command_ends_with_it(tmp_path: Path) -> None:
    with scene(tmp_path, command=AT_IT, on_crash="end") as made:
        at_it(made)
        made.kill_agent()
        until(lambda: not made.processes(), "the command has ended")
        call = made.resume()
        assert call.verdict == "outcome_unknown"
        assert call.evidence == (
            "a receipt says that the command was ended because the process of the agent had died. "
            f"It had printed 6 bytes ({next(made.files.glob('*.log'))}), the last of them:\nbegun"
        )
        assert made.effects == 0


@pytest.mark.parametrize("both", [False, True], ids=["the supervisor", "both"])
def test_a_command_does_not_outlive_its_supervisor(tmp_path: Path, both: bool) -> None:
    with scene(tmp_path, command=AT_IT) as made:
        at_it(made)
        supervisor = made.attempt.started.supervisor.pid
        if both:
            made.kill_agent()
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: not made.processes(), "the command has ended")
        if both:
            call = made.resume()
        else:
            made.agent.wait(PATIENCE)
            call = made.view()
        assert call.verdict == "outcome_unknown"
        assert "its command was started and is gone, and nothing says how it ended" in call.evidence
        assert made.effects == 0


def test_what_a_killed_supervisor_left_in_the_background_still_runs_and_can_be_ended(tmp_path: Path) -> None:
    """The command dies with its supervisor. What it had started does not, and is found by its environment."""
    with scene(tmp_path, command="setsid sleep 1000 & echo begun; sleep 1000") as made:
        at_it(made)
        started = made.attempt.started
        made.kill_agent()
        os.kill(started.supervisor.pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{started.command.pid}").exists(), "the command has ended")
        assert made.view().evidence.startswith("still running: process ")
        call = made.resume("end")
        assert call.verdict == "outcome_unknown"
        assert "its command was started and is gone, and nothing says how it ended" in call.evidence
        assert made.processes() == []
