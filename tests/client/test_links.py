"""A link that is lost, and who hears of it first."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import fencepost as fp
from fencepost.client.links import Link, LinkLost, ProcessLink
from fencepost.client.wire import ListSessions
from tests.client.servers import SECONDS, Place


def test_a_link_that_fails_before_its_end_is_met_is_made_anew_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script({"content": "Done."})

    async def main() -> None:
        made = fp.connect("stdio:", store=place.store, model=place.model, cwd=place.work, environ=place.environ)
        async with made as client, asyncio.timeout(SECONDS):
            session = await client.create(cwd=place.work)
            first: Link = await client.linked()
            assert isinstance(first, ProcessLink)
            os.kill(first._process.pid, signal.SIGKILL)
            first._answers.lose("nobody has met the end of the pipe yet")
            assert (await session.prompt("Go.")).text == "Done."  # it was made, and nothing of it was stored
            second = await client.linked()
            assert second is not first

    asyncio.run(main())


def test_a_lost_link_answers_nothing_any_more(tmp_path: Path) -> None:
    async def main() -> None:
        lost = asyncio.Event()
        link = await ProcessLink.start(["true"], {}, None, lambda _: None, lost.set)
        async with asyncio.timeout(SECONDS):
            await lost.wait()
            try:
                await link.ask(ListSessions())
            except LinkLost:
                pass
            else:
                raise AssertionError("it answered")
            await link.close()

    asyncio.run(main())
