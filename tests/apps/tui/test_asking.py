"""Being asked about a call: once, always, no; and what was typed before the question is no answer."""

from __future__ import annotations

from pathlib import Path

from fencepost.apps.tui.dialogs import Asking
from fencepost.core import events as ev
from fencepost.core.verdict import DENIED
from tests.apps.command import call
from tests.apps.tui.stage import Stage, played, run, screen


def written(name: str, text: str) -> dict[str, object]:
    """An answer that writes a file."""
    arguments = {"path": name, "content": text}
    return {"tool_calls": [{"function": {"name": "write_file", "arguments": arguments}}]}


async def asked(stage: Stage, *texts: str) -> Asking:
    await stage.shows("approve", *texts)
    dialog = await stage.dialog(Asking)
    assert isinstance(dialog, Asking)
    return dialog


def test_yes_this_once_is_asked_again_and_always_in_a_directory_is_not(place: Path) -> None:
    async def body() -> None:
        (place / "work" / "a.txt").write_text("old\n")
        model = played(place, written("a.txt", "new\n"), written("b.txt", "b\n"), written("c.txt", "c\n"), "So.")
        async with screen(place, model=model) as stage:
            await stage.type("write")
            await asked(stage, "approve write_file?", "-old", "+new")
            await stage.pilot.press("y")
            await asked(stage, "b.txt", "d  yes, and always write_file in")
            await stage.pilot.press("d")
            await stage.over(1)
            decided = [(one.allowed, one.remember, one.scope, one.pattern) for one in stage.of(ev.ApprovalDecided)]
            assert decided == [(True, False, "tool", ""), (True, True, "directory", str(place / "work"))]
            assert (place / "work" / "c.txt").read_text() == "c\n"

    run(body)


def test_no_tells_the_model_why(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, call("shell", command="rm -rf x"), "I won't.")) as stage:
            await stage.type("clean up")
            await asked(stage, "rm -rf x")
            await stage.pilot.press("n", *"keep it", "enter")
            await stage.over(1)
            (result,) = stage.of(ev.ToolResult)
            assert (result.code, "keep it" in ev.text_of(result.content)) == (DENIED, True)
            await stage.shows("did not run, DENIED", "I won't.")

    run(body)


def test_what_is_being_typed_when_a_question_comes_up_does_not_answer_it(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, call("shell", command="touch ran"), "So.")) as stage:
            await stage.type("go")
            await stage.until(lambda: isinstance(stage.app.screen, Asking), "the question")
            dialog = stage.app.screen
            assert isinstance(dialog, Asking)
            dialog.armed = False
            dialog._rest()
            await stage.pilot.press("y", "enter", "a", "y")
            assert stage.app.screen is dialog
            assert stage.of(ev.ApprovalDecided) == []
            await stage.dialog(Asking)
            await stage.pilot.press("down", "down", "up", "enter")
            await stage.over(1)
            (decided,) = stage.of(ev.ApprovalDecided)
            assert (decided.allowed, decided.scope, decided.remember) == (True, "call", True)

    run(body)


def test_escape_at_a_question_cancels_the_turn_and_the_call_did_not_run(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, call("shell", command="touch ran"), "So.")) as stage:
            await stage.type("go")
            await asked(stage, "touch ran")
            await stage.pilot.press("escape")
            assert (await stage.over(1)).reason == "aborted"
            await stage.shows("did not run", "cancelled")
            assert not (place / "work" / "ran").exists()
            await stage.type("and now")
            await stage.over(2)

    run(body)


def test_approve_changes_which_calls_are_asked_about(place: Path) -> None:
    async def body() -> None:
        model = played(place, call("shell", command="touch ran"), "One.", call("shell", command="touch more"), "Two.")
        async with screen(place, model=model) as stage:
            await stage.type("/approve read")
            await stage.shows("approve read: from the next call on")
            await stage.type("go")
            await stage.over(1)
            await stage.shows("did not run, DENIED")
            await stage.type("/approve all")
            await stage.shows("approve all: from the next call on")
            await stage.type("go")
            await stage.over(2)
            assert not (place / "work" / "ran").exists()
            assert (place / "work" / "more").exists()

    run(body)


def test_leaving_at_a_question_ends_in_order(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, call("shell", command="touch ran"), "So.")) as stage:
            await stage.type("go")
            await asked(stage, "touch ran")
            await stage.pilot.press("ctrl+q")
            await stage.until(lambda: stage.session.journal.closed, "the close")
            assert [(type(one), getattr(one, "synthetic", None)) for one in stage.of(ev.StepEnd)] == [
                (ev.StepEnd, False)
            ]
            (end,) = stage.of(ev.TurnEnd)
            assert (end.reason, end.synthetic) == ("aborted", False)

    run(body)
