"""What is said of saving: what is on disk, what is not, and loudly when nothing gets there any more."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from fencepost.apps.tui import agent
from fencepost.apps.tui.figures import short
from fencepost.core import events as ev
from fencepost.stores.jsonl import JsonlStore
from tests.apps.command import call
from tests.apps.tui.stage import played, run, screen
from tests.stores.faults import FaultyDisk


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    """A disk that fails on demand, below every store that is opened."""
    made = FaultyDisk()
    monkeypatch.setattr(agent, "open_store", lambda url: JsonlStore(Path(url.partition(":")[2]), disk=made))
    return made


def test_a_full_disk_is_said_loudly_until_it_is_over_and_the_prompt_is_kept(place: Path, disk: FaultyDisk) -> None:
    async def body() -> None:
        async with screen(place, model=played(place, "Done.", "Again.")) as stage:
            await stage.type("first")
            await stage.over(1)
            await stage.shows("Done.", "idle")
            disk.fail("write", errno.ENOSPC, 100)
            await stage.type("second")
            await stage.shows("NOT SAVED:", "not sent")
            assert stage.app.prompt.text == "second"
            assert "of" in stage.screen.splitlines()[-1]
            disk._due.clear()
            await stage.pilot.press("enter")
            await stage.over(2)
            await stage.shows("Again.", "being saved again")
            await stage.until(
                lambda: "NOT SAVED: " not in stage.app.query_one("#unsaved").render().plain, "the all-clear"
            )

    run(body)


def test_a_result_is_not_shown_before_it_is_durable(place: Path, disk: FaultyDisk) -> None:
    async def body() -> None:
        model = played(place, call("shell", command="until [ -e go ]; do sleep 0.02; done; echo result"), "So.")
        async with screen(place, model=model, approve="all") as stage:
            await stage.type("begin")
            await stage.shows("runs …")
            come, go = disk.hold("sync_data")
            (place / "work" / "go").touch()
            await asyncio.to_thread(come.wait, 30)
            await stage.until(lambda: stage.of(ev.ToolResult), "the result")
            await stage.shows("runs …", "saved", " of ")
            assert "✓ done" not in stage.screen
            go.set()
            await stage.over(1)
            await stage.shows("✓ done", "So.")

    run(body)


def test_a_store_that_keeps_nothing_is_marked_all_the_time(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.apps.tui.stage.Wanted", lambda _store, *rest: agent.Wanted("memory:", *rest))

    async def body() -> None:
        async with screen(place, model=played(place, "Done.")) as stage:
            await stage.shows("NOT SAVED: memory: store", "NOT SAVED: memory only")
            await stage.type("begin")
            await stage.over(1)
            await stage.shows("Done.", "NOT SAVED: memory only")
            await stage.type("/show")
            await stage.shows("nothing of this session is on disk")
            await stage.type("/model openai:any")
            await stage.shows("this session would be lost")

    run(body)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (1234, "1.2k"), (123_456, "123k"), (2_500_000, "2.5M")]
)
def test_counts_are_short(number: int, text: str) -> None:
    assert short(number) == text
