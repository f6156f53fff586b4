"""`fencepost resume [ID] [TASK] [--continue]`: settle and repair a session; go on only where the user says so.

    without both      settle and repair, print what was found, run nothing
    --continue        go on with the interrupted turn and with prompts that were left pending
    TASK              run the task's turn, and only that; behind --continue if both are given
    --running         what is done about calls that still run: left alone, waited for, ended
    --rerun EFFECT    run calls with that effect again whose outcome is unknown; then as above
    --takeover        take it from an owner that still lives, or may; only a database can refuse that one's appends

The agent is composed from the configuration of the session's own directory. Who interrupts it while it waits for a call
that still runs leaves the session as it was.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterable

from fencepost.apps.cli import chosen
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.home import composed_for, required_home
from fencepost.apps.cli.live import Stage, attend, given_up, live, on_call
from fencepost.apps.cli.plain import one_line
from fencepost.apps.cli.ready import ready_agent
from fencepost.apps.cli.recovered import half_answer, next_page, recovery_page
from fencepost.apps.cli.running import given_task
from fencepost.core.events import EFFECTS, Effect
from fencepost.errors import UsageError
from fencepost.journal.inspect import pending_inputs
from fencepost.runtime.config import load
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.session import Session
from fencepost.runtime.subjects import Notice
from fencepost.stores.base import Store
from fencepost.stores.urls import open_store


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    here = chosen.directory(None)
    url = chosen.store_url(arguments.store, load(here))
    runs = arguments.go_on or arguments.task is not None
    again = effects_of(arguments.rerun)

    async def work(stage: Stage) -> int:
        store = open_store(url)
        try:
            name = stage.session = await find(store, arguments.id, here)
            return await (_go_on if runs else _repair)(stage, store, name, arguments, again)
        finally:
            await store.close()

    return live(work, json=arguments.json)


def effects_of(words: Iterable[str]) -> frozenset[Effect]:
    """The effects that `--rerun` names: one, or several with commas between.

    Raises:
        UsageError: one is none, or may not be run again.
    """
    found: set[Effect] = set()
    for word in (part.strip() for text in words for part in text.split(",")):
        if word == "write":
            raise UsageError(
                "--rerun write: a call that may have changed something is never run again by itself",
                next_act="Verify what happened; the model is told to, with --continue",
            )
        if word not in EFFECTS:
            raise UsageError(f"--rerun {word!r} is no effect", next_act="Say read, idempotent, or read,idempotent")
        found.add(word)
    return frozenset(found)


async def _repair(
    stage: Stage, store: Store, name: str, arguments: argparse.Namespace, again: frozenset[Effect]
) -> int:
    """Close what was interrupted. No turn runs, so neither a model nor the session's directory is needed."""
    header = (await store.read(name)).header
    made = composed_for(header, lambda config: ready_agent(store, None, config), stage.view.say)
    async with on_call(made) as agent:
        session = await _resumed(stage, agent, name, arguments, again)
        if session is None:
            return await given_up(stage, agent, name)
        if not arguments.json:
            fold = session.journal.log.fold
            stage.out.put(_found(session, 1))
            stage.out.put(next_page(name, session.recovery, pending_inputs(fold)).encode(errors="replace"))
        return await attend(stage, agent, session, _nothing)


async def _nothing() -> None:
    return None


async def _go_on(stage: Stage, store: Store, name: str, arguments: argparse.Namespace, again: frozenset[Effect]) -> int:
    home = required_home((await store.read(name)).header)
    loaded = load(home)
    approve = chosen.approve(arguments, loaded)
    model = chosen.required_model(arguments.model, loaded)
    task = None if arguments.task is None else given_task(arguments.task, approve)
    writes = approve.explicit and approve.mode == "all"
    async with on_call(ready_agent(store, model, loaded.config, approve.mode, stage.ask, writes=writes)) as agent:
        session = await _resumed(stage, agent, name, arguments, again)
        if session is None:
            return await given_up(stage, agent, name)
        found = session.recovery
        if not arguments.json and (found.interrupted is not None or found.set_aside):
            stage.err.put(_found(session, 2))
        return await attend(stage, agent, session, lambda: _turns(stage, session, task, go_on=arguments.go_on))


async def _resumed(
    stage: Stage, agent: Runtime, name: str, arguments: argparse.Namespace, again: frozenset[Effect]
) -> Session | None:
    """The session, settled and repaired; None where somebody asked to end before that."""

    def tell(notice: Notice) -> None:
        (stage.view.notice(notice) if notice.kind == "progress" else stage.view.say(notice.text))

    resuming = asyncio.create_task(
        agent.resume(name, takeover=arguments.takeover, running=arguments.running, rerun=again, notify=tell)
    )
    asked = asyncio.create_task(stage.stop.asked.wait())
    try:
        await asyncio.wait({resuming, asked}, return_when=asyncio.FIRST_COMPLETED)
        if not resuming.done():
            resuming.cancel()
            await asyncio.wait({resuming})
    finally:
        asked.cancel()
    return None if resuming.cancelled() else resuming.result()


def _found(session: Session, fd: int) -> bytes:
    """What was found and done, as a page for a descriptor."""
    half = half_answer(session.journal.log.entries, session.recovery)
    return recovery_page(session.id, session.recovery, fd, half).encode(errors="replace")


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
        for item in pending_inputs(session.journal.log.fold):
            stage.view.say(f"  {one_line(item.text, 70)}")
    return result if task is None else await session.prompt(task)
