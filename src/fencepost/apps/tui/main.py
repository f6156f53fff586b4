"""`fencepost` and `fencepost chat [ID]`: the terminal. Composed here, in a screenful.

signals and terminal -> the screen -> the agent is closed in order -> the screen goes -> how to find the session again
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from fencepost.apps.cli import chosen, exits
from fencepost.apps.cli.main import complain
from fencepost.apps.cli.stop import NO_READER, Stop
from fencepost.errors import FencepostError, UsageError

if TYPE_CHECKING:
    from fencepost.apps.tui.agent import Agent
    from fencepost.apps.tui.app import Chat

DEBUG = "Set FENCEPOST_DEBUG=1 for the traceback"
INSTALL = "pip install 'fencepost[tui]'"


def main(arguments: argparse.Namespace) -> int:
    """Run the command.

    Raises:
        UsageError: there is no terminal, or Textual is not installed.
    """
    if not attended():
        raise UsageError(
            "fencepost chat needs a terminal, for input and output", next_act="Elsewhere use fencepost run TASK"
        )
    if not installed():
        raise UsageError("fencepost chat needs Textual, which is not installed", next_act=f"Install it: {INSTALL}")
    return asyncio.run(_chat(arguments))


def attended() -> bool:
    """Whether a person sits at this terminal, and it can draw."""
    streams = (sys.stdin, sys.stdout, sys.stderr)
    return os.environ.get("TERM") != "dumb" and all(stream is not None and stream.isatty() for stream in streams)


def installed() -> bool:
    """Whether the screen can be drawn."""
    return find_spec("textual") is not None


async def _chat(arguments: argparse.Namespace) -> int:
    from fencepost.apps.tui.agent import Agent, Wanted
    from fencepost.apps.tui.app import Chat
    from fencepost.apps.tui.terminal import Terminal, driver_for

    terminal = Terminal(lambda: stop.request(NO_READER))
    stop = Stop(terminal.restore)
    wanted = Wanted(arguments.store, arguments.model, arguments.approve)
    app = _without_colour(lambda: Chat(stop, arguments.id, driver_for(terminal)))
    agent = Agent(wanted, chosen.directory(None), app.ask)
    app.serve(agent)
    with stop.listening():
        try:
            await app.run_async()
        finally:
            failures = app.failures + await agent.close()
            await terminal.drained()
    if app.fault is not None:
        failures.insert(0, app.fault)
    return _last_words(stop, agent, failures)


def _without_colour(make: Callable[[], Chat]) -> Chat:
    """The screen, without colour where that is so. The variable is left as it was: the agent's tools see it."""
    from fencepost.apps.tui.look import without_colour

    before = os.environ.get("NO_COLOR")
    if without_colour():
        os.environ["NO_COLOR"] = "1"
    app = make()
    os.environ.pop("NO_COLOR", None)
    if before is not None:
        os.environ["NO_COLOR"] = before
    return app


def _last_words(stop: Stop, agent: Agent, failures: list[Exception]) -> int:
    """Say what is left to be said, below the screen that is gone; returns the exit status."""
    from fencepost.apps.cli.live import sentence

    for error in dict.fromkeys(failures):
        known = isinstance(error, FencepostError)
        complain(sentence(error) if known else f"an internal fault, {sentence(error)}. {DEBUG}")
        if not known and os.environ.get("FENCEPOST_DEBUG"):
            import traceback

            traceback.print_exception(error)
    status = stop.cause.status if stop.cause is not None else exits.INTERNAL
    if not agent.opened:
        return status
    journal, durable = agent.session.journal, agent.session.guarantees.durable
    last = journal.log.fold.next_seq - 1
    if durable and journal.watermark < last:
        complain(
            f"NOT SAVED: of session {agent.session.id} only {journal.watermark + 1} of {last + 1} events are on disk"
        )
        status = exits.NOT_SAVED
    if durable and journal.watermark >= 0 and stop.cause is not NO_READER:
        print(f"session {agent.session.id}\nto go on with it:   fencepost chat {agent.session.id}")
    return status
