"""The screen as its user meets it: 80 by 24, a keyboard, a real agent over real files, and no terminal."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from fencepost.apps.cli.stop import Stop
from fencepost.apps.tui.agent import Agent, Wanted
from fencepost.apps.tui.app import QUIT, Chat
from fencepost.core import events as ev
from fencepost.plugins.approval import Mode
from fencepost.runtime.session import Session

SECONDS = 30
"""How long anything may take at most; a bound on a failing test, never a measurement."""


class Stage:
    """A running screen."""

    def __init__(self, app: Chat, pilot: Pilot[None], agent: Agent, stop: Stop) -> None:
        self.app = app
        self.pilot = pilot
        self.agent = agent
        self.stop = stop

    @property
    def session(self) -> Session:
        """The session that is looked at."""
        return self.agent.session

    @property
    def screen(self) -> str:
        """What stands on the screen."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)

    async def until(self, condition: Callable[[], object], what: str = "") -> None:
        """Wait for a condition."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"{what} did not come; the screen:\n{self.screen}"
            await self.pilot.pause(0.01)

    async def shows(self, *texts: str) -> None:
        """Wait until all of these stand on the screen."""
        await self.until(lambda: all(text in self.screen for text in texts), repr(texts))

    async def type(self, text: str, key: str = "enter") -> None:
        """Write something and send it."""
        self.app.prompt.put(text)
        await self.pilot.press(key)

    async def dialog(self, kind: type[Any]) -> Any:
        """Wait for a dialog that can be answered."""
        await self.until(
            lambda: isinstance(self.app.screen, kind) and getattr(self.app.screen, "armed", True), kind.__name__
        )
        return self.app.screen

    async def over(self, turn: int) -> ev.TurnEnd:
        """Wait for the end of a turn."""
        await self.until(lambda: any(event.turn == turn for event in self.of(ev.TurnEnd)), f"the end of turn {turn}")
        return next(event for event in self.of(ev.TurnEnd) if event.turn == turn)

    def of(self, kind: type[Any]) -> list[Any]:
        """The events of a kind."""
        return [event for event in self.session.journal.log.events() if isinstance(event, kind)]


@contextlib.asynccontextmanager
async def screen(
    place: Path,
    first: str | None = None,
    *,
    model: str | None = None,
    approve: Mode | None = None,
    size: tuple[int, int] = (80, 24),
) -> AsyncIterator[Stage]:
    """The screen of a session, closed in order at the end."""
    stop = Stop()
    app = Chat(stop, first)
    agent = Agent(Wanted(f"jsonl:{place / 'store'}", model, approve), place / "work", app.ask)
    app.serve(agent)
    try:
        async with app.run_test(size=size) as pilot:
            stage = Stage(app, pilot, agent, stop)
            await stage.until(lambda: agent.opened and app.opening.shown is not None, "a session")
            yield stage
            stop.request(QUIT)
            await stage.until(lambda: not app.is_running or app._exit, "the end")
    finally:
        await agent.close()


def played(place: Path, *answers: object) -> str:
    """A model that plays these answers."""
    path = place / "script.jsonl"
    path.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    return f"script:{path}"


def run(body: Callable[[], Any]) -> None:
    """Run a test."""
    asyncio.run(body())
