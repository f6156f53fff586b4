"""One life of a connection to an MCP server, from its beginning to its end.

A connection lives in a task of its own: the SDK's contexts are entered and left there, and nowhere else. Others wait
for it, talk through its session, and ask it to end.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Protocol

from mcp import Client, types
from mcp.client.session import ClientSession

from fencepost.errors import FencepostError
from fencepost.plugins.mcp_config import McpError
from fencepost.plugins.mcp_trail import Trail
from fencepost.runtime.replies import sentence

CLOSING = 5.0
"""Seconds that a connection gets to be closed in good order."""
PAGES = 100
"""Pages of a list of tools that are read at most."""


class Wire(Protocol):
    """A transport of the SDK that says what left, and why it is over."""

    trail: Trail
    ended: asyncio.Event
    exact: bool

    @property
    def why(self) -> str:
        """Why it is over, or what was met last, as half a sentence."""
        ...

    async def __aenter__(self) -> Any: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None: ...


class Connection:
    """One life of a connection, in a task that owns it.

    Attributes:
        session: of the SDK; there once `open` returned.
        found: the tools that the server offers.
    """

    def __init__(self, name: str, wire: Wire) -> None:
        self.wire = wire
        self.session: ClientSession | None = None
        self.found: list[types.Tool] = []
        self.closing = False
        self._opened = asyncio.Event()
        self._why = ""
        self.task = asyncio.create_task(self._live(), name=f"mcp {name}")

    @property
    def over(self) -> bool:
        """Whether it is of no use any more."""
        return self.wire.ended.is_set() or self.task.done()

    @property
    def why(self) -> str:
        """Why it ended, as half a sentence."""
        return self.wire.why or self._why or "the connection was closed"

    async def open(self, seconds: float) -> None:
        """Wait until the server has told its tools.

        Raises:
            McpError: it has not, in that time or at all.
        """
        opened = asyncio.create_task(self._opened.wait())
        try:
            await asyncio.wait({opened, self.task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if self._opened.is_set():
                return
            late = not self.task.done()
        finally:
            opened.cancel()
            if not self._opened.is_set():
                await self._break()
        raise McpError(f"it did not answer within {seconds:g} s" if late else self.why)

    async def _live(self) -> None:
        """How it failed is kept; who waits for that looks at it."""
        try:
            async with Client(self.wire, mode="auto", cache=None, client_info=_ourselves()) as client:
                self.found = await _tools(client)
                self.session = client.session
                self._opened.set()
                await self.wire.ended.wait()
        except Exception as error:  # noqa: BLE001 - whatever the server or the SDK broke with ends this life only
            first = _first(error)
            self._why = first.explain() if isinstance(first, FencepostError) else sentence(first)
        finally:
            self.wire.ended.set()

    async def close(self) -> None:
        """End it; returns when nothing of it is left. Idempotent."""
        self.closing = True
        self.wire.ended.set()
        if self._opened.is_set():
            await asyncio.wait({self.task}, timeout=CLOSING)
        await self._break()

    async def _break(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})


async def _tools(client: Client) -> list[types.Tool]:
    if client.server_capabilities.tools is None:
        return []
    found: list[types.Tool] = []
    cursor = None
    for _ in range(PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


def _ourselves() -> types.Implementation:
    from fencepost import __version__

    return types.Implementation(name="fencepost", version=__version__)


def _first(error: BaseException) -> BaseException:
    """The first cause in a group of them."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
