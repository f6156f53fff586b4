"""`fencepost run TASK`: a new session, one task, one turn."""

from __future__ import annotations

import argparse
import sys

from fencepost.apps.cli import chosen
from fencepost.apps.cli.live import Stage, attend, live, on_call
from fencepost.apps.cli.ready import ready_agent
from fencepost.errors import SessionExistsError, UsageError
from fencepost.runtime.config import load
from fencepost.stores.urls import open_store


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    cwd = chosen.directory(arguments.cwd)
    loaded = load(cwd)
    model = chosen.required_model(arguments.model, loaded)
    url = chosen.store_url(arguments.store, loaded)
    approve = chosen.approve(arguments, loaded)
    task = given_task(arguments.task, approve)

    async def work(stage: Stage) -> int:
        writes = approve.explicit and approve.mode == "all"
        store = open_store(url)
        async with on_call(ready_agent(store, model, loaded.config, approve.mode, stage.ask, writes=writes)) as agent:
            try:
                session = await agent.create(arguments.session, cwd)
            except SessionExistsError as error:
                advice = f"Go on with it: fencepost resume {arguments.session} TASK; or choose another id"
                raise SessionExistsError(str(error), next_act=advice) from None
            return await attend(stage, agent, session, lambda: session.prompt(task))

    return live(work, json=arguments.json)


def given_task(words: str, approve: chosen.Approve) -> str:
    """The task; `-` reads it from standard input.

    Raises:
        UsageError: it is empty, not UTF-8, or standard input is wanted for answers too.
    """
    if words == "-":
        if approve.mode == "ask":
            raise UsageError(
                "--approve ask reads answers from standard input, and the task - would be read from there too",
                next_act="Give the task as an argument, or another --approve",
            )
        try:
            words = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"the task on standard input is not UTF-8 (byte {error.start})") from None
    if not words.strip():
        raise UsageError("the task is empty")
    return words
