"""The command in a real terminal: killed in the middle of a call and reopened; told to end; its terminal taken away.

tmux is the terminal. Without it these tests are skipped, except where CI is set.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencepost.apps.cli.main import main
from tests.apps.command import HANGS, Command, call, commands_in

SECONDS = 60
"""How long anything may take at most; a bound on a failing test, never a measurement."""

WITHOUT_TMUX = shutil.which("tmux") is None and "CI" not in os.environ


class Tmux:
    """A terminal of 80 by 24 of its own, with a shell in it.

    Args:
        cli: whose directories and environment.
    """

    def __init__(self, cli: Command) -> None:
        self._cli = cli
        self._socket = str(cli.root / "tmux")
        environ = {**cli.environ, "TERM": "xterm", "PS1": "$ ", "LC_ALL": "C.UTF-8"}
        subprocess.run(
            [*self._words(), "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", "sh"],
            check=True, cwd=cli.work, env=environ,
        )  # fmt: skip

    def _words(self) -> list[str]:
        return ["tmux", "-u", "-S", self._socket]

    def keys(self, *keys: str) -> None:
        """Press keys."""
        subprocess.run([*self._words(), "send-keys", *keys], check=True)

    def chat(self, *words: str) -> None:
        """Start the command, and say its exit status behind it."""
        self.keys(f"{sys.executable} -m fencepost {' '.join(words)}; echo status=$?", "Enter")

    @property
    def screen(self) -> str:
        """What stands on the screen."""
        return subprocess.run([*self._words(), "capture-pane", "-p"], capture_output=True, text=True).stdout

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.screen
            time.sleep(0.02)

    def shows(self, *texts: str) -> None:
        """Wait until all of these stand on the screen."""
        self.until(lambda: all(text in self.screen for text in texts))

    def pid(self) -> int:
        """The command's process."""
        shell = subprocess.run(
            [*self._words(), "display-message", "-p", "#{pane_pid}"], capture_output=True, text=True, check=True
        )
        children = Path(f"/proc/{shell.stdout.strip()}/task/{shell.stdout.strip()}/children").read_text().split()
        return int(children[0])

    def renew(self) -> None:
        """A fresh shell on a fresh screen: what was killed could not give the old one back."""
        subprocess.run([*self._words(), "respawn-pane", "-k", "sh"], check=True)

    def end(self) -> None:
        """Take the terminal away."""
        subprocess.run([*self._words(), "kill-server"], capture_output=True)


@pytest.fixture
def tmux(cli: Command) -> Iterator[Tmux]:
    cli.script(call("shell", "I begin.", command=HANGS), {"content": "It was killed, I see."})
    (cli.work / "fencepost.toml").write_text("[plugin.shell]\non_crash = 'end'\n")
    terminal = Tmux(cli)
    yield terminal
    terminal.end()


def in_a_call(cli: Command, tmux: Tmux) -> str:
    """Have the command work on a call; the session's id."""
    tmux.chat("chat", "--approve", "all")
    tmux.shows("nothing to save yet")
    tmux.keys("do it", "Enter")
    tmux.shows("runs …", "turn 1 works")
    tmux.until((cli.work / "begun").exists)
    (session,) = [path.name for path in cli.store.iterdir() if (path / "log.jsonl").exists()]
    return session


def endings(cli: Command, session: str) -> list[tuple[str, bool]]:
    return [
        (event["type"], event.get("synthetic", False))
        for event in cli.events(session)
        if event["type"] in {"step/end", "turn/end"}
    ]


@pytest.mark.skipif(WITHOUT_TMUX, reason="needs tmux")
def test_killed_in_a_call_and_reopened_the_table_comes_first(cli: Command, tmux: Tmux) -> None:
    session = in_a_call(cli, tmux)
    os.kill(tmux.pid(), signal.SIGKILL)
    tmux.until(lambda: not commands_in(cli.work) or all(_is_shell(pid) for pid in commands_in(cli.work)))
    tmux.renew()
    tmux.chat("chat", session[:-2], "--approve", "all")
    tmux.shows("recovered", "it was interrupted in turn 1", "call ", "verdict", "settled by", "means", "shell")
    tmux.shows("c  go on with that turn", "p  write a new prompt", "l  leave it like that")
    assert [kind for kind, synthetic in endings(cli, session) if synthetic] == ["step/end", "turn/end"]
    tmux.keys("c")
    tmux.shows("It was killed, I see.", "this turn was interrupted", "idle")
    tmux.keys("C-q")
    tmux.shows("status=0", f"fencepost chat {session}")


@pytest.mark.skipif(WITHOUT_TMUX, reason="needs tmux")
def test_told_to_end_in_a_call_it_closes_for_real_and_gives_the_terminal_back(cli: Command, tmux: Tmux) -> None:
    session = in_a_call(cli, tmux)
    os.kill(tmux.pid(), signal.SIGTERM)
    tmux.shows("status=143")
    assert endings(cli, session) == [("step/end", False), ("turn/end", False)]
    tmux.keys("echo us''able", "Enter")
    tmux.shows("usable")


@pytest.mark.skipif(WITHOUT_TMUX, reason="needs tmux")
def test_a_terminal_that_is_gone_ends_it_in_order(cli: Command, tmux: Tmux) -> None:
    session = in_a_call(cli, tmux)
    pid = tmux.pid()
    tmux.end()
    tmux.until(lambda: not Path(f"/proc/{pid}").exists())
    assert endings(cli, session) == [("step/end", False), ("turn/end", False)]


def test_a_terminal_that_stands_still_does_not_hold_the_agent_up(cli: Command) -> None:
    cli.script(call("shell", "word " * 4000, command=HANGS))
    ours, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environ = {**cli.environ, "TERM": "xterm"}
    child = cli.start(
        "chat", "--approve", "all", stdin=its, stdout=its, stderr=its, env=environ, start_new_session=True
    )
    os.close(its)
    drawn = b""
    while b"nothing to save yet" not in drawn:
        drawn += os.read(ours, 4096)
    os.write(ours, b"do it\r")  # and from here on nobody reads
    deadline = time.monotonic() + SECONDS
    while not (cli.work / "begun").exists():
        assert time.monotonic() < deadline, "the agent stands still, too"
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    assert child.wait(SECONDS) == 143
    os.close(ours)
    (session,) = [path.name for path in cli.store.iterdir() if (path / "log.jsonl").exists()]
    assert endings(cli, session) == [("step/end", False), ("turn/end", False)]


def _is_shell(pid: int) -> bool:
    """Whether a process is the terminal's own shell, or tmux."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() in {"sh", "dash", "bash", "tmux: server"}
    except OSError:
        return True


def test_without_a_terminal_it_says_what_to_use(cli: Command) -> None:
    done = cli.run("chat")
    assert (done.status, done.out) == (2, "")
    assert "needs a terminal" in done.err
    assert "fencepost run TASK" in done.err


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "textual", None)
    monkeypatch.setattr("fencepost.apps.tui.main.attended", lambda: True)
    assert main(["chat"]) == 2
    assert "pip install 'fencepost[tui]'" in capsys.readouterr().err
