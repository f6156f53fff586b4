"""What can be typed behind a slash, and that all of it is reached from the keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest

from fencepost.apps.tui.acts import Acts
from fencepost.apps.tui.commands import COMMANDS, KEYS, help_text, matching, read
from fencepost.apps.tui.pager import Pager
from fencepost.core import events as ev
from fencepost.errors import UsageError
from tests.apps.command import call
from tests.apps.tui.stage import Stage, played, run, screen


def test_every_command_is_there_and_help_fits_a_small_screen() -> None:
    assert [one.name for one in COMMANDS if not hasattr(Acts, f"do_{one.name}")] == []
    assert {key for key, _ in KEYS} >= {"Enter", "Ctrl+S", "Esc"}
    assert [line for line in help_text().splitlines() if len(line) > 73] == []


@pytest.mark.parametrize(
    ("line", "name", "words"),
    [("/fork 3", "fork", ["3"]), ("/q", "quit", []), ("/export jsonl 'a b'", "export", ["jsonl", "a b"])],
)
def test_a_unique_beginning_is_enough(line: str, name: str, words: list[str]) -> None:
    found, rest = read(line)
    assert (found.name, rest) == (name, words)


@pytest.mark.parametrize("line", ["/", "/dance", "/s", "/export 'a"])
def test_what_is_no_command_is_refused_and_not_sent(line: str) -> None:
    with pytest.raises(UsageError):
        read(line)


def test_a_path_in_a_prompt_is_no_command() -> None:
    assert matching("/etc/passwd says what?") == []
    assert matching("see /show") == []
    assert [one.name for one in matching("/s")] == ["sessions", "show"]


async def one_turn(stage: Stage) -> None:
    await stage.type("begin")
    await stage.over(1)
    await stage.until(lambda: stage.session.journal.watermark == stage.session.journal.log.fold.next_seq - 1, "saved")


def test_tab_completes_and_the_line_below_says_what_it_does(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, "Done.")) as stage:
            await stage.pilot.press("slash", "s")
            await stage.shows("/sessions /show")
            await stage.pilot.press("h", "tab")
            await stage.until(lambda: stage.app.prompt.text == "/show ", "the command")
            await stage.type("/approve", "tab")
            await stage.shows("which calls run: ask, read, all, none")

    run(body)


def test_show_and_help_fill_the_screen_and_escape_goes_back(place: Path) -> None:
    async def body() -> None:
        async with screen(
            place, model=played(place, call("shell", command="echo one"), "Done."), approve="all"
        ) as stage:
            await stage.type("/show")
            await stage.shows("nothing of this session is on disk yet")
            await one_turn(stage)
            await stage.type("/show")
            await stage.dialog(Pager)
            await stage.shows("turn 1", "call shell", "tool gate")
            await stage.pilot.press("escape")
            await stage.type("/help")
            await stage.dialog(Pager)
            await stage.shows("Ctrl+S", "/compact")
            await stage.pilot.press("escape")
            await stage.until(lambda: stage.app.focused is stage.app.prompt, "the input")

    run(body)


def test_export_writes_a_new_file_and_never_over_one(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, "Done.")) as stage:
            await one_turn(stage)
            await stage.type("/export markdown out.md")
            await stage.shows("exported to")
            assert "Done." in (place / "work" / "out.md").read_text()
            await stage.type("/export jsonl out.md")
            await stage.shows("Name another file")
            assert "Done." in (place / "work" / "out.md").read_text()

    run(body)


def test_compact_says_what_it_did_or_why_not(place: Path) -> None:
    async def body() -> None:
        long = "word " * 3000
        model = played(place, long, "Two.", "A short summary.")
        async with screen(place, model=model) as stage:
            await stage.type("/compact")
            await stage.shows("nothing to sum up")
            await one_turn(stage)
            await stage.type("more")
            await stage.over(2)
            await stage.type("/compact")
            await stage.shows("1 steps summed up", "tokens before")
            assert len(stage.of(ev.ContextSummary)) == 1

    run(body)


def test_doctor_checks_this_session(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, "Done.")) as stage:
            await one_turn(stage)
            await stage.type("/doctor")
            await stage.dialog(Pager)
            await stage.shows("fencepost doctor", stage.session.id)

    run(body)
