"""The tools of one session: those of the composition, and those that have to be fetched first (MCP servers).

Rules:
    1. Sources are opened once, in front of the session's first turn: opening a session runs nothing.
    2. A source that cannot be opened is told to the user, and the session goes on without its tools.
    3. What a source opened is closed with the session, last opened first. One that is still opening is told to stop,
       and is not waited for longer than `PATIENCE`.
"""

from __future__ import annotations

import asyncio
from collections import ChainMap
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeAlias

import msgspec

from fencepost.errors import FencepostError
from fencepost.journal.session import Journal
from fencepost.runtime.replies import sentence
from fencepost.runtime.subjects import Notice
from fencepost.runtime.tools import Tool

PATIENCE = 3.0
"""Seconds that a source which is told to stop gets."""


class SessionSite(msgspec.Struct, frozen=True):
    """Where a source's tools will work.

    Attributes:
        journal: of the session: events of the source's plugin may be appended, and flushed.
        cwd: the session's working directory.
        files: its directory for what is too large for the log.
        notify: tells people something.
        closing: what is entered here is left when the session is closed, in the task that closes it.
    """

    journal: Journal
    cwd: Path
    files: Path
    notify: Callable[[Notice], None]
    closing: AsyncExitStack


ToolSource: TypeAlias = Callable[[SessionSite], Awaitable[Sequence[Tool]]]
"""Gives the tools of one session. What it raises is told to the user in a sentence."""


class Toolbox:
    """See the module.

    Args:
        tools: of the composition.
        sources: opened in this order.
        patience: see `PATIENCE`.

    Attributes:
        tools: what there is, by name; grows when the sources are opened.
    """

    def __init__(self, tools: Mapping[str, Tool], sources: Sequence[ToolSource], patience: float = PATIENCE) -> None:
        self._patience = patience
        self._fetched: dict[str, Tool] = {}
        self.tools: Mapping[str, Tool] = ChainMap(self._fetched, tools)  # type: ignore[arg-type]  # only read there
        self._sources = tuple(sources)
        self._closing = AsyncExitStack()
        self._opening: asyncio.Task[None] | None = None

    async def open(self, journal: Journal, files: Path, notify: Callable[[Notice], None]) -> None:
        """Open what is not open yet. Cancelling this ends the wait only: the next turn waits on."""
        if not self._sources:
            return
        if self._opening is None:
            site = SessionSite(journal, Path(journal.log.header.cwd), files, notify, self._closing)
            self._opening = asyncio.create_task(self._open(site), name=f"tools of {journal.session}")
        await asyncio.shield(self._opening)

    async def _open(self, site: SessionSite) -> None:
        for source in self._sources:
            try:
                found = tuple(await source(site))
                wrong = next((tool for tool in found if not isinstance(tool, Tool)), None)
                if wrong is not None:
                    raise TypeError(f"a source of tools gave {type(wrong).__name__}")
            except (Exception, SystemExit) as error:  # noqa: BLE001 - rule 2: whatever it is, the session goes on
                why = error.explain() if isinstance(error, FencepostError) else sentence(error)
                site.notify(Notice("note", f"tools are missing: {why}"))
            else:
                self._take(found, site)

    def _take(self, found: Sequence[Tool], site: SessionSite) -> None:
        for tool in found:
            if tool.name not in self.tools:
                self._fetched[tool.name] = tool
            else:
                site.notify(Notice("note", f"a second tool {tool.name!r} is left out: the name is taken"))

    async def close(self) -> None:
        """Close what the sources opened.

        Raises:
            Exception: what the last of those raised that could not be closed; the others are closed all the same.
        """
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait({self._opening}, timeout=self._patience)
        await self._closing.aclose()
