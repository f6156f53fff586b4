"""The process that gets killed: a real agent in one screen, stopped at one point.

Run as `python -m fencepost.apps.demo.child KEY STORE WORKDIR MODEL_URL SESSION run|repair`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from fencepost.apps.demo.pause import PausingStore, stop_here
from fencepost.apps.demo.points import MARKER, POINTS, TASK, KillPoint
from fencepost.apps.embed import model_of
from fencepost.plugins.approval import Approval, Question, Verdict
from fencepost.plugins.shipped import compose
from fencepost.runtime.plugin import Plugin
from fencepost.runtime.runtime import Runtime
from fencepost.stores.base import Store
from fencepost.stores.urls import open_store

TOOLS = ("files", "shell")
"""The plugins whose tools work, and know afterwards what they did."""


def ready_agent(store: Store, model_url: str, approval: Approval) -> Runtime:
    """The shipped agent: gates, retry, shell and file tools, with a model behind `model_url`."""
    plugins: list[Plugin] = [approval, *compose(("models", "checkpoint", "retry", *TOOLS), "all")]
    environ = {"OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "not-needed"}
    return Runtime(store, model_of("openai:scripted", {}, environ), plugins)


async def _main(point: KillPoint, store_url: str, work: Path, model_url: str, session_id: str, *, repair: bool) -> None:
    marker = work / MARKER

    async def never_answer(question: Question) -> Verdict:  # noqa: ARG001 - the person has gone for lunch
        await stop_here(marker)

    store = open_store(store_url)
    pause = point.pause(marker)
    if pause is not None and repair == point.repair:
        store = PausingStore(store, pause)
    approval = Approval("ask", never_answer) if point.ask else Approval("all")
    async with ready_agent(store, model_url, approval) as runtime:
        if repair:
            await runtime.resume(session_id)
        else:
            session = await runtime.create(session_id, work)
            await session.prompt(TASK)


if __name__ == "__main__":
    key, url, directory, model, session, mode = sys.argv[1:]
    chosen = next(point for point in POINTS if point.key == key)
    asyncio.run(_main(chosen, url, Path(directory), model, session, repair=mode == "repair"))
