"""Opening sessions: the recovery table first, the picker, forks; and that opening runs nothing."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from fencepost.apps.tui.dialogs import Options
from fencepost.apps.tui.picker import Picker, SessionList
from fencepost.core import events as ev
from fencepost.journal.inspect import SessionRow
from tests.apps.command import Command, call
from tests.apps.tui.stage import played, run, screen


def test_after_a_crash_the_table_comes_first_and_nothing_runs(cli: Command, place: Path) -> None:
    cli.killed("I looked, it is half done.")

    async def body() -> None:
        async with screen(place, "s1", model=cli.environ["FENCEPOST_MODEL"]) as stage:
            await stage.dialog(Options)
            await stage.shows("s1: recovered", "interrupted in turn 1", "verdict", "settled by", "means", "shell")
            before = stage.session.journal.log.fold.next_seq
            await stage.pilot.press("p")
            await stage.until(lambda: not isinstance(stage.app.screen, Options), "the conversation")
            await stage.shows("this turn was interrupted", "idle")
            assert stage.session.journal.log.fold.next_seq == before

    run(body)


def test_going_on_from_the_table_continues_the_turn_and_runs_the_prompts_that_wait(cli: Command, place: Path) -> None:
    cli.killed("I looked, it is half done.", "And that too.")
    assert cli.run("resume", "s1").status == 0

    async def body() -> None:
        async with screen(place, "s1", model=cli.environ["FENCEPOST_MODEL"]) as stage:
            # Prompts that were acknowledged and have not run: what a process leaves that is closed at once.
            await stage.session.journal.flush()
            stage.session.journal.append(
                ev.InputQueued, input_id="i_left", target="turn", content=(ev.Text("what was left"),)
            )
        async with screen(place, "s1", model=cli.environ["FENCEPOST_MODEL"]) as stage:
            await stage.dialog(Options)
            await stage.shows("waiting to run: what was left", "run the 1 waiting prompt", "take the 1 waiting prompt")
            await stage.pilot.press("c")
            await stage.until(lambda: any(one.input_id == "i_left" for one in stage.of(ev.UserMessage)), "its turn")

    run(body)


def test_leaving_at_the_table_leaves_the_log_as_repair_closed_it(cli: Command, place: Path) -> None:
    cli.killed("never")

    async def body() -> None:
        async with screen(place, "s1", model=cli.environ["FENCEPOST_MODEL"]) as stage:
            await stage.dialog(Options)
            await stage.pilot.press("l")
            await stage.until(lambda: stage.session.journal.closed, "the close")

    run(body)
    assert [one["reason"] for one in cli.events("s1") if one["type"] == "turn/end"] == ["interrupted"]


def test_a_session_that_another_process_holds_is_refused_and_a_new_one_begins(cli: Command, place: Path) -> None:
    cli.script(call("shell", command="sleep 600"))
    child = cli.start("run", "--session", "s1", "--approve", "all", "wait")
    try:
        deadline = time.monotonic() + 30
        while b"tool/call" not in (cli.log("s1").read_bytes() if cli.log("s1").exists() else b""):
            assert time.monotonic() < deadline
            time.sleep(0.01)

        async def body() -> None:
            async with screen(place, "s1", model=cli.environ["FENCEPOST_MODEL"]) as stage:
                await stage.shows("session s1 is held by")
                assert stage.session.id != "s1"

        run(body)
    finally:
        child.kill()
        child.communicate()


def test_a_history_is_shown_and_looking_at_it_changes_no_byte(cli: Command, place: Path) -> None:
    cli.finished()
    before = cli.log("s1").read_bytes()

    async def body() -> None:
        async with screen(place, "s1", model=cli.environ["FENCEPOST_MODEL"]) as stage:
            await stage.shows("look around", "I look.", "✓ done", "It is one.", "idle")

    run(body)
    assert cli.log("s1").read_bytes() == before


def test_ten_thousand_sessions_are_one_list_that_filters(place: Path) -> None:
    rows = [
        SessionRow(f"s{number:05}", "clean", number, number, f"task {number}", 1, 0, "/w")
        for number in range(10_000, 0, -1)
    ]
    asked = []

    async def some(limit: int | None) -> list[SessionRow]:
        asked.append(limit)
        return rows[:limit]

    async def body() -> None:
        async with screen(place) as stage:
            picked: list[str | None] = []
            stage.app.push_screen(Picker(some), picked.append)
            await stage.shows("10000 of 10000 sessions", "> ", "task 10000")
            assert asked == [100, None]
            await stage.pilot.press("ctrl+end")
            await stage.shows("task 1 ", "s00001")
            await stage.pilot.press("ctrl+home", *"777")
            found = sum("777" in row.session for row in rows)
            await stage.shows(f"{found} of 10000 sessions")
            await stage.pilot.press("down", "enter")
            await stage.until(lambda: picked, "the choice")
            assert picked == [[row.session for row in rows if "777" in row.session][1]]
            assert SessionList.__mro__[1].__name__ == "ScrollView"

    run(body)


def test_another_session_is_chosen_and_the_one_before_it_is_closed(cli: Command, place: Path) -> None:
    cli.finished()

    async def body() -> None:
        async with screen(place, model=played(place, "Hello.", "x", "y")) as stage:
            await stage.type("hello")
            await stage.over(1)
            first = stage.session
            await stage.type("/sessions")
            await stage.dialog(Picker)
            await stage.shows("2 of 2 sessions")
            await stage.pilot.press(*"look", "enter")
            await stage.until(lambda: stage.session.id == "s1", "the other one")
            await stage.shows("It is one.")
            assert first.journal.closed
            await stage.type(f"/resume {first.id}")
            await stage.shows("Hello.", "idle")
            assert stage.session.id == first.id

    run(body)


def test_a_fork_goes_on_where_the_other_one_stays(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, "One.", "Two.", "Three.")) as stage:
            await stage.type("first")
            await stage.over(1)
            await stage.type("second")
            await stage.over(2)
            parent = stage.session.id
            await stage.type("/fork 1")
            await stage.until(lambda: stage.session.id != parent, "the fork")
            await stage.shows("One.", "goes on from here")
            assert "Two." not in stage.screen
            assert stage.session.journal.log.header.parent == parent
            await stage.type("other")
            await stage.over(2)

    run(body)


def test_sessions_cannot_be_left_while_a_turn_works(place: Path) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, call("shell", command="sleep 600")), approve="all") as stage:
            await stage.type("wait")
            await stage.shows("runs …")
            await stage.type("/new")
            await stage.shows("/new: a turn works; Esc cancels it")
            await asyncio.sleep(0)

    run(body)
