"""The wire to a server elsewhere: the SDK's streamable HTTP, with an eye on what leaves.

The HTTP client below the SDK is ours, so that three things are known: whether a request was taken in by anybody,
whether the server turned it away, and whether it has forgotten our session. One request that meets a dead socket is
answered with an error of its own, where the SDK would give up the connection with every call in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client
from mcp.types import CONNECTION_CLOSED

from fencepost.plugins.mcp_trail import Trail

WAIT = 30.0
"""Seconds for connecting and for sending. How long an answer may take is the call's own limit."""

NOBODY_THERE = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
"""What is raised before the first byte of a request can have left."""


class HttpWire:
    """One session with a server elsewhere: a transport of the SDK.

    Args:
        url: of its endpoint.
        headers: sent with every request.

    Attributes:
        trail: what left.
        ended: set when the server does not know the session any more.
        exact: False: the SDK's word for a broken stream can also be a server's own.
        why: what was met last, as half a sentence.
    """

    exact = False

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.trail = Trail()
        self.ended = asyncio.Event()
        self.why = ""
        self._url = url
        self._headers = dict(headers)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Any:
        async with AsyncExitStack() as stack:
            timeout = httpx2.Timeout(WAIT, read=None)
            client = await stack.enter_async_context(Watched(self, headers=self._headers, timeout=timeout))
            streams = await stack.enter_async_context(streamable_http_client(self._url, http_client=client))
            self._stack = stack.pop_all()
        return streams

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    def turned_away(self, response: httpx2.Response, calls: frozenset[str]) -> None:
        """The server answered with a status that says no."""
        self.why = f"it answered with HTTP {response.status_code} {response.reason_phrase}".strip()
        in_session = MCP_SESSION_ID in response.request.headers
        if response.status_code == 404 and in_session:
            # The protocol's word for "I do not know this session": nobody has looked at the message.
            self.trail.came_back(calls)
            self.ended.set()
        elif response.status_code >= 500:
            self.trail.doubts.update(dict.fromkeys(calls, self.why))
        else:
            self.trail.refusals.update(dict.fromkeys(calls, self.why))
            # Many a server says so where the word above is due, and others say so of arguments.
            self.trail.suspect = response.status_code == 400 and in_session


class Watched(httpx2.AsyncClient):
    """A client that says what became of each request, and answers those that met nobody."""

    def __init__(self, wire: HttpWire, **settings: Any) -> None:
        super().__init__(**settings)
        self._wire = wire

    async def send(self, request: httpx2.Request, **how: Any) -> httpx2.Response:
        """Send one request. Of a message that could not be sent, or whose answer broke off, an error response."""
        if request.method != "POST":
            return await super().send(request, **how)
        trail = self._wire.trail
        calls = trail.named(request.content)
        trail.leave(calls)
        try:
            response = await super().send(request, **how)
        except httpx2.TransportError as error:
            if isinstance(error, NOBODY_THERE):
                trail.came_back(calls)
            self._wire.why = f"{type(error).__name__}: {error}"
            return _instead(request, self._wire.why)
        if response.status_code >= 400:
            self._wire.turned_away(response, calls)
        return response


def _instead(request: httpx2.Request, why: str) -> httpx2.Response:
    """The error as a server would have sent it, so that it reaches the one request that it is about."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": CONNECTION_CLOSED, "message": why}}
    return httpx2.Response(503, request=request, json=error)
