"""Asking about calls: through a pipe, on a terminal, and with nobody there any more."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.apps.command import SECONDS, Command, call, finish

TOUCH = call("shell", "I make it.", command="touch made")
AGAIN = call("shell", "Once more.", command="touch again")

ANSWER = " or n? "
"""How the last line of a question ends."""

HELD = """
import asyncio
from pathlib import Path

from fencepost.plugins.script import ScriptModel
from fencepost.runtime.models import TextDelta

class Held(ScriptModel):
    def __init__(self, root):
        super().__init__(Path(root) / "script.jsonl")
        self._release = Path(root) / "release"

    async def stream(self, request):
        yield TextDelta("standing by")
        while not self._release.exists():
            await asyncio.sleep(0.01)
        async for delta in super().stream(request):
            yield delta

class Plugin:
    name = "held"
    requires = ()

    def apply(self, context):
        context.model("held", lambda spec, environ, settings: Held(spec.partition(":")[2]))

plugin = Plugin()
"""
"""A model that says that it stands by, and answers from the script when a file is there."""


def results(cli: Command) -> list[str]:
    return [event.get("code", "") for event in cli.events("s1") if event["type"] == "tool/result"]


@pytest.mark.parametrize(
    ("answers", "codes", "made"),
    [
        ("y\nn\n", ["", "DENIED"], ["made"]),
        ("a\n", ["", ""], ["again", "made"]),
        ("perhaps\nno\nYES\n", ["DENIED", ""], ["again"]),
    ],
)
def test_answers_come_through_a_pipe(cli: Command, answers: str, codes: list[str], made: list[str]) -> None:
    cli.script(TOUCH, AGAIN, {"content": "Done."})
    done = cli.run("run", "--session", "s1", "--approve", "ask", "make it", stdin=answers)
    assert (done.status, done.out) == (0, "Done.\n")
    assert results(cli) == codes
    assert sorted(os.listdir(cli.work)) == made
    assert "touch made" in done.err
    assert "approve shell?" in done.err


def test_questions_and_answers_are_in_the_log(cli: Command) -> None:
    cli.script(TOUCH, {"content": "Done."})
    cli.run("run", "--session", "s1", "--approve", "ask", "make it", stdin="a\n")
    asked, decided = [event for event in cli.events("s1") if event["type"].startswith("approval/")]
    assert asked["call_id"] == decided["call_id"]
    assert (decided["allowed"], decided["remember"], decided["by"]) == (True, True, "user")


@pytest.mark.parametrize(
    ("key", "scope", "pattern", "asked"),
    [
        ("c", "call", "", ["touch made2", "touch made; touch worse"]),
        ("p", "prefix", "touch", ["touch made; touch worse"]),
        ("a", "tool", "shell", []),
    ],
)
def test_always_is_chosen_with_a_key(cli: Command, key: str, scope: str, pattern: str, asked: list[str]) -> None:
    worse = call("shell", command="touch made; touch worse")
    cli.script(TOUCH, TOUCH, call("shell", command="touch made2"), worse, {"content": "Done."})
    done = cli.run("run", "--session", "s1", "--approve", "ask", "make it", stdin=f"{key}\n" + "n\n" * len(asked))
    assert done.status == 0
    events = cli.events("s1")
    first = next(event for event in events if event["type"] == "approval/decided")
    assert (first["remember"], first.get("scope", "tool"), first.get("pattern", "")) == (True, scope, pattern)
    assert [text for text in asked if f'"command": "{text}"' in done.err] == asked
    assert results(cli) == ["", "", *([""] * (2 - len(asked))), *(["DENIED"] * len(asked))]
    assert "yes, and always shell commands that begin with: touch" in done.err


def test_a_directory_outside_is_allowed_for_good(cli: Command) -> None:
    out = cli.root / "out"
    out.mkdir()
    files = [call("write_file", path=str(path)) for path in (out / "a", out / "b", cli.root / "c")]
    for file in files:
        file["tool_calls"][0]["function"]["arguments"]["content"] = "x"
    cli.script(*files, {"content": "Done."})
    done = cli.run("run", "--session", "s1", "--approve", "ask", "make it", stdin="a\nd\nn\n")
    assert "please answer y, c, d or n" in done.err, "a tool is not allowed wherever it goes"
    assert results(cli) == ["", "", "DENIED"], done
    assert sorted(os.listdir(out)) == ["a", "b"]


def test_the_model_is_told_why_not(cli: Command) -> None:
    cli.script(TOUCH, {"content": "Done."})
    cli.run("run", "--session", "s1", "--approve", "ask", "make it", stdin="no, use mktemp\n")
    (result,) = [event for event in cli.events("s1") if event["type"] == "tool/result"]
    assert result["code"] == "DENIED"
    assert "user said no to shell: use mktemp" in result["content"][0]["text"]


def test_the_end_of_input_denies_and_closes_in_order(cli: Command) -> None:
    cli.script(TOUCH, {"content": "never asked for"})
    done = cli.run("run", "--session", "s1", "--approve", "ask", "--json", "make it")
    assert done.status == 1
    last = done.records()[-1]
    assert (last["reason"], last["message"], last["saved"]) == ("aborted", "end of input", True)
    assert results(cli) == ["ABORTED_BEFORE_DISPATCH"]
    assert cli.events("s1")[-1]["type"] == "turn/end"
    assert not (cli.work / "made").exists()


def test_answers_can_come_from_a_file(cli: Command) -> None:
    (cli.root / "answers").write_text("y\n")
    cli.script(TOUCH, {"content": "Done."})
    with (cli.root / "answers").open("rb") as answers:
        assert finish(cli.start("run", "--approve", "ask", "make it", stdin=answers)).status == 0
    assert (cli.work / "made").exists()


def test_task_and_answers_cannot_both_come_from_standard_input(cli: Command) -> None:
    cli.script(TOUCH)
    done = cli.run("run", "--approve", "ask", "-", stdin="make it\n")
    assert done.status == 2
    assert "standard input" in done.err


def test_a_question_shows_control_characters_instead_of_obeying_them(cli: Command) -> None:
    cli.script(call("shell", command="rm -rf x \x1b[2K\u202eecho harmless"), {"content": "Done."})
    done = cli.run("run", "--approve", "ask", "x", stdin="n\n")
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err
    assert "\\u202e" in done.err


# --- on a terminal -------------------------------------------------------------------------------------------------


class Terminal:
    """A command on a terminal of its own.

    Args:
        cli: whose command line.
        words: the command.
    """

    def __init__(self, cli: Command, *words: str) -> None:
        self.fd, self._far = pty.openpty()
        self.child = cli.start(
            *words,
            stdin=self._far,
            stdout=self._far,
            stderr=self._far,
            start_new_session=True,
            preexec_fn=self._take_over,
            env={**cli.environ, "TERM": "xterm"},
        )
        os.close(self._far)
        self.seen = ""

    def _take_over(self) -> None:
        import fcntl
        import termios

        fcntl.ioctl(self._far, termios.TIOCSCTTY, 0)

    def until(self, text: str) -> None:
        """Read until `text` was printed."""
        while text not in self.seen:
            more = os.read(self.fd, 4096)
            assert more, self.seen
            self.seen += more.decode(errors="replace")

    def type(self, text: str) -> None:
        """Type."""
        os.write(self.fd, text.encode())

    def end(self) -> int:
        """Read to the end; returns the exit status."""
        with contextlib.suppress(OSError):  # how a terminal says that its other side is closed
            while more := os.read(self.fd, 4096):
                self.seen += more.decode(errors="replace")
        return self.child.wait(SECONDS)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        if terminal.child.poll() is None:
            terminal.child.kill()
            terminal.child.wait()
        os.close(terminal.fd)


def on_terminal(cli: Command, terminals: list[Terminal], *words: str) -> Terminal:
    terminals.append(Terminal(cli, *words))
    return terminals[-1]


def test_a_terminal_is_asked_and_shows_text_calls_and_results(cli: Command, terminals: list[Any]) -> None:
    cli.script(call("shell", "I make it.", command="echo one > made; cat made"), {"content": "All done."})
    screen = on_terminal(cli, terminals, "run", "--session", "s1", "make it")
    screen.until(ANSWER)
    assert "I make it." in screen.seen
    assert not (cli.work / "made").exists()
    screen.type("y\n")
    assert screen.end() == 0
    shown = screen.seen[screen.seen.index(ANSWER) :]
    positions = [shown.index(text) for text in ("→ shell", "✓ one", "All done.")]
    assert positions == sorted(positions)
    assert results(cli) == [""]


def test_what_was_typed_before_the_question_does_not_answer_it(cli: Command, terminals: list[Any]) -> None:
    cli.plugin("held", HELD)
    cli.script(TOUCH, {"content": "Not made."})
    cli.environ["FENCEPOST_MODEL"] = f"held:{cli.root}"
    screen = on_terminal(cli, terminals, "run", "--session", "s1", "make it")
    screen.until("standing by")
    screen.type("y\n")
    (cli.root / "release").touch()
    screen.until(ANSWER)
    screen.type("n\n")
    assert screen.end() == 0
    assert results(cli) == ["DENIED"]


def test_ctrl_c_at_a_question_interrupts(cli: Command, terminals: list[Any]) -> None:
    cli.script(TOUCH, {"content": "never"})
    screen = on_terminal(cli, terminals, "run", "--session", "s1", "make it")
    screen.until(ANSWER)
    screen.type("\x03")
    assert screen.end() == 130
    assert results(cli) == ["ABORTED_BEFORE_DISPATCH"]
    (inspected,) = cli.run("inspect", "s1", "--json").record()["calls"]
    assert inspected["verdict"] == "not_started"


def test_a_terminal_that_hangs_up_closes_in_order(cli: Command, terminals: list[Any]) -> None:
    cli.script(TOUCH, {"content": "never"})
    screen = on_terminal(cli, terminals, "run", "--session", "s1", "make it")
    screen.until(ANSWER)
    screen.child.send_signal(signal.SIGHUP)
    assert screen.child.wait(SECONDS) == 129
    assert cli.events("s1")[-1]["type"] == "turn/end"


def test_a_question_is_void_after_a_kill(cli: Command, terminals: list[Any]) -> None:
    """Killed at the dialog: not started, and it is another question, about another call, that is answered then."""
    cli.script(TOUCH, TOUCH, {"content": "Done."})
    screen = on_terminal(cli, terminals, "run", "--session", "s1", "make it")
    screen.until(ANSWER)
    old = cli.events("s1")[-1]
    assert old["type"] == "approval/asked", "it is durable before a person sees it"
    screen.child.kill()
    screen.child.wait(SECONDS)
    (inspected,) = cli.run("inspect", "s1", "--json").record()["calls"]
    assert (inspected["call_id"], inspected["verdict"]) == (old["call_id"], "not_started")
    done = cli.run("resume", "s1", "--continue", "--approve", "ask", stdin="y\n")
    assert (done.status, done.err.count("approve shell?")) == (0, 1)
    assert results(cli) == ["TOOL_NOT_STARTED", ""]
    asked = [event["call_id"] for event in cli.events("s1") if event["type"] == "approval/asked"]
    assert len(set(asked)) == 2
    assert [event["call_id"] for event in cli.events("s1") if event["type"] == "approval/decided"] == asked[1:]


def test_a_piped_command_is_the_childs_not_the_terminals(cli: Command) -> None:
    """A tool never reads the answers: its standard input is not ours."""
    cli.script(call("shell", command="cat"), TOUCH, {"content": "Done."})
    done = cli.run("run", "--session", "s1", "--approve", "ask", "make it", stdin="y\ny\n")
    assert done.status == 0
    assert results(cli) == ["", ""]
