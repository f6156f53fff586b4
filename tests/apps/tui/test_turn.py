"""A turn on the screen: what streams, what calls show, what is said of saving."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Markdown

from fencepost.apps.tui.cards import CallCard
from fencepost.core import events as ev
from fencepost.testing import ModelServer
from tests.apps.command import call
from tests.apps.tui.stage import played, run, screen


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    return monkeypatch


def test_an_answer_stands_on_the_screen_while_it_streams(place: Path, endpoint: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        held = {"content": "# Title\n\none two three four", "fault": {"kind": "hold", "after": 3}}
        with ModelServer([held]) as server:
            endpoint.setenv("OPENAI_BASE_URL", server.url)
            async with screen(place, model="openai:any") as stage:
                await stage.type("count")
                await stage.until(server.holds[0].reached.is_set, "the hold")
                await stage.shows("Title", "turn 1 works")
                assert stage.of(ev.AssistantMessage) == []
                assert not stage.session.idle
                server.holds[0].release.set()
                await stage.over(1)
                await stage.shows("one two three four", "idle")
                assert len(stage.app.query(Markdown)) == 1

    run(body)


def test_a_prompt_stays_in_the_input_until_it_is_durable(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, "Done.")) as stage:
            await stage.type("say it")
            await stage.until(lambda: stage.app.prompt.text == "", "an empty input")
            (queued,) = stage.of(ev.InputQueued)
            assert stage.session.journal.watermark >= queued.seq
            await stage.shows("say it", "Done.")

    run(body)


def test_a_call_prints_while_it_runs_and_is_folded_with_its_result_when_that_is_durable(place: Path) -> None:
    async def body() -> None:
        model = played(
            place, call("shell", "I look.", command="echo live; until [ -e go ]; do sleep 0.02; done"), "So."
        )
        async with screen(place, model=model, approve="all") as stage:
            await stage.type("look")
            await stage.shows("▾ shell", "runs …", "│  live")
            (place / "work" / "go").touch()
            await stage.over(1)
            await stage.shows("▸ shell", "✓ done", "So.")
            (result,) = stage.of(ev.ToolResult)
            assert stage.session.journal.watermark >= result.seq

    run(body)


def test_cards_unfold_with_the_keyboard_alone(place: Path) -> None:
    async def body() -> None:
        model = played(place, call("shell", command="seq 41 43"), "So.")
        async with screen(place, model=model, approve="all") as stage:
            await stage.type("count")
            await stage.over(1)
            await stage.shows("✓ done", "So.")
            (card,) = stage.app.query(CallCard)
            await stage.pilot.press("shift+tab")
            await stage.until(lambda: stage.app.focused is card, "the card's focus")
            await stage.pilot.press("enter")
            await stage.shows("▾ shell", "│  42")
            await stage.pilot.press("ctrl+o")
            await stage.shows("▸ shell")
            await stage.pilot.press("escape")
            assert stage.app.focused is stage.app.prompt

    run(body)


def test_a_change_of_a_file_is_shown_against_what_was_there(place: Path) -> None:
    async def body() -> None:
        (place / "work" / "a.txt").write_text("one\ntwo\nthree\n")
        new = "one\n2\nthree\n"
        model = played(
            place,
            {"tool_calls": [{"function": {"name": "write_file", "arguments": {"path": "a.txt", "content": new}}}]},
            call("edit_file", path="a.txt", old="three", new="drei"),
            "So.",
        )
        async with screen(place, model=model, approve="all") as stage:
            await stage.type("change")
            await stage.over(1)
            await stage.shows("write_file", "-two", "+2", "edit_file", "-three", "+drei", "+1 -1")

    run(body)


def test_nothing_that_a_terminal_obeys_comes_from_a_model_or_a_tool(place: Path) -> None:
    async def body() -> None:
        evil = "red \x1b[2J \u202e end &#x202e; [b]bold[/b] [/nope]"
        model = played(place, call("shell", evil, command="printf '\\033[2Jgone\\n'; echo '[/x]'"), evil)
        async with screen(place, model=model, approve="all") as stage:
            await stage.type("do \x9b it [/oops]")
            await stage.over(1)
            await stage.shows("\\x1b[2J", "\\u202e", "[/nope]", "[/oops]")
            await stage.pilot.press("ctrl+o")
            await stage.shows("[/x]")
            assert not {"\x1b", "\u202e", "\x9b"} & set(stage.screen)

    run(body)


def test_what_was_thought_stands_apart(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, {"content": "Yes.", "reasoning_content": "let me see"})) as stage:
            await stage.type("well?")
            await stage.over(1)
            await stage.shows("▸ thought  let me see", "Yes.")

    run(body)


def test_a_prompt_while_a_turn_works_waits_and_one_that_steers_joins_it(place: Path) -> None:
    async def body() -> None:
        model = played(place, call("shell", command="until [ -e go ]; do sleep 0.02; done"), "First.", "Second.")
        async with screen(place, model=model, approve="all") as stage:
            await stage.type("begin")
            await stage.shows("runs …")
            await stage.type("then this")
            await stage.shows("waits: then this")
            await stage.type("and mind that", "ctrl+s")
            await stage.shows("steers: and mind that")
            (place / "work" / "go").touch()
            await stage.over(2)
            await stage.shows("First.", "Second.")
            said = [(event.source, ev.text_of(event.content)) for event in stage.of(ev.UserMessage)]
            assert [text for _, text in said] == ["begin", "and mind that", "then this"]

    run(body)


def test_a_waiting_prompt_comes_back_to_be_written_anew(place: Path) -> None:
    async def body() -> None:
        model = played(place, call("shell", command="until [ -e go ]; do sleep 0.02; done"), "First.", "never")
        async with screen(place, model=model, approve="all") as stage:
            await stage.type("begin")
            await stage.shows("runs …")
            await stage.type("then this")
            await stage.shows("waits: then this")
            await stage.type("/drop")
            await stage.until(lambda: stage.app.prompt.text == "then this", "the text")
            assert len(stage.of(ev.InputDropped)) == 1
            (place / "work" / "go").touch()
            await stage.over(1)
            assert stage.session.journal.log.fold.pending == {}

    run(body)


def test_escape_cancels_the_turn_and_the_next_prompt_works(place: Path) -> None:
    async def body() -> None:
        model = played(place, call("shell", command="sleep 600"), "After that.")
        async with screen(place, model=model, approve="all") as stage:
            await stage.type("begin")
            await stage.shows("runs …")
            await stage.pilot.press("escape")
            assert (await stage.over(1)).reason == "aborted"
            await stage.shows("OUTCOME UNKNOWN", "cancelled")
            await stage.type("go on")
            await stage.over(2)
            await stage.shows("After that.")

    run(body)


def test_without_a_model_it_says_how_to_get_one_and_keeps_the_prompt(place: Path) -> None:
    async def body() -> None:
        async with screen(place, size=(100, 30)) as stage:
            await stage.shows("no model is chosen", "/model openai:NAME", "no model")
            await stage.type("hello")
            await stage.shows("not sent")
            assert stage.app.prompt.text == "hello"
            await stage.type(f"/model {played(place, 'Hello.')}")
            await stage.shows("the next request goes to")
            await stage.type("hello")
            await stage.over(1)
            await stage.shows("Hello.")

    run(body)


def test_an_error_of_the_model_is_said_with_what_to_do(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place)) as stage:
            await stage.type("hello")
            await stage.over(1)
            await stage.shows("the turn ended, error", "SCRIPT_EXHAUSTED")

    run(body)
