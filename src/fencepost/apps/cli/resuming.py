"""`fencepost resume [ID] [TASK] [--continue]`: repair a session; go on only where the user says so.

    without both      repair, print what was found, run nothing
    --continue        go on with the interrupted turn and with prompts that were left pending
    TASK              run the task's turn, and only that; behind --continue if both are given
    --takeover        take it from an owner that still lives, or may; only a database can refuse that one's appends

The agent is composed from the configuration of the session's own directory.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fencepost.apps.cli import chosen
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.live import Stage, attend, live, on_call, waiting
from fencepost.apps.cli.plain import one_line
from fencepost.apps.cli.ready import ready_agent
from fencepost.apps.cli.recovered import next_page, recovery_page
from fencepost.apps.cli.running import given_task
from fencepost.errors import UsageError
from fencepost.runtime.config import load
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.session import Session
from fencepost.stores.base import Store
from fencepost.stores.urls import open_store


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    here = chosen.directory(None)
    url = chosen.store_url(arguments.store, load(here))
    runs = arguments.go_on or arguments.task is not None

    async def work(stage: Stage) -> int:
        store = open_store(url)
        try:
            name = stage.session = await find(store, arguments.id, here)
            return await (_go_on if runs else _repair)(stage, store, name, arguments)
        finally:
            await store.close()

    return live(work, json=arguments.json)


async def _repair(stage: Stage, store: Store, name: str, arguments: argparse.Namespace) -> int:
    """Close what was interrupted. Nothing runs, so neither a model nor the session's directory is needed."""
    async with on_call(ready_agent(store, None, load(chosen.directory(None)).config)) as agent:
        session = await agent.resume(name, takeover=arguments.takeover)
        if not arguments.json:
            pending = waiting(session.journal.log.fold.pending.values())
            stage.out.put(recovery_page(name, session.recovery, 1).encode(errors="replace"))
            stage.out.put(next_page(name, session.recovery, pending).encode(errors="replace"))
        return await attend(stage, agent, session, _nothing)


async def _nothing() -> None:
    return None


async def _go_on(stage: Stage, store: Store, name: str, arguments: argparse.Namespace) -> int:
    home = await _directory_of(store, name)
    loaded = load(home)
    approve = chosen.approve(arguments, loaded)
    model = chosen.required_model(arguments.model, loaded)
    task = None if arguments.task is None else given_task(arguments.task, approve)
    writes = approve.explicit and approve.mode == "all"
    async with on_call(ready_agent(store, model, loaded.config, approve.mode, stage.ask, writes=writes)) as agent:
        session = await agent.resume(name, takeover=arguments.takeover)
        found = session.recovery
        if not arguments.json and (found.interrupted is not None or found.set_aside):
            stage.err.put(recovery_page(name, found, 2).encode(errors="replace"))
        return await attend(stage, agent, session, lambda: _turns(stage, session, task, go_on=arguments.go_on))


async def _turns(stage: Stage, session: Session, task: str | None, *, go_on: bool) -> TurnResult | None:
    """The turns that were asked for. What `--continue` could not finish, TASK does not step over."""
    result: TurnResult | None = None
    if go_on:
        result = await session.go_on()
        if result is None:
            stage.view.say("there is nothing to go on with")
        elif result.reason != "completed":
            if task is not None:
                stage.view.say("the interrupted work did not complete, so the task was not started")
            return result
    elif session.journal.log.fold.pending:
        stage.view.say("still waiting, not run now (--continue runs them):")
        for item in waiting(session.journal.log.fold.pending.values()):
            stage.view.say(f"  {one_line(item.text, 70)}")
    return result if task is None else await session.prompt(task)


async def _directory_of(store: Store, name: str) -> Path:
    """The session's working directory.

    Raises:
        UsageError: it is gone.
    """
    header = (await store.read(name)).header
    if header is None:
        return chosen.directory(None)  # resuming will say what is wrong with the session
    home = Path(header.cwd)
    if not home.is_dir():
        raise UsageError(
            f"session {name} works in {home}, which is not there any more",
            next_act="Bring the directory back, or only repair the session: fencepost resume without TASK",
        )
    return home
