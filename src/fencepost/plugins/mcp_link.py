"""One server of one session: its connection, its restarts, and what a call over it may claim.

    it was not there, or its pipe or socket took no byte of the request     not started
    it answered, with a result or an error                                  that
    the request left, and the connection broke, the time ran out, the
    turn was cancelled, or what came back cannot be read                    unknown

Rules:
    1. A server that was lost is started again by the next call, once per call, and not before its time: each loss
       without a whole answer in between doubles the wait.
    2. A request that certainly has not left is sent once more over a new connection; one that left, never.
    3. Cancel and time limit are passed on to the server, which may or may not heed them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from mcp import MCPError, types

from fencepost.errors import Cancelled, FencepostError
from fencepost.plugins.mcp_config import McpError
from fencepost.plugins.mcp_connection import Connection, Wire
from fencepost.plugins.mcp_render import Rendering
from fencepost.runtime.cancel import CancelSignal, stop, unless_cancelled
from fencepost.runtime.replies import NotStarted, sentence, unknown
from fencepost.runtime.subjects import Notice
from fencepost.runtime.tools import CallContext, ToolReply

KEY = "fencepost/idempotencyKey"
"""The key of a request's `_meta` that holds the `call_id`: ours, the same when the call is made again."""

MCP_ERROR = "MCP_ERROR"
"""The code of a call that the server answered with an error of the protocol."""

FIRST_WAIT, LONGEST_WAIT = 0.2, 60.0
"""Seconds from a loss to the next start, at first and at most."""
PATIENCE = 5.0
"""Seconds that a call waits for a start that is not due yet; if it is longer, the call is not started."""
COURTESY = 0.3
"""Seconds that a call that is given up on takes to tell the server so."""


class _NotSent(Exception):  # noqa: N818 - what became of a request, not a fault
    """The request certainly has not left."""


class Link:
    """See the module.

    Args:
        name: of the server.
        connect: makes a wire that is not opened yet.
        timeout: seconds for one call.
        start_timeout: seconds until the server has told its tools.
        notify: told what people should know.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Wire],
        timeout: float,
        start_timeout: float,
        notify: Callable[[Notice], None],
    ) -> None:
        self.name = name
        self._connect = connect
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._notify = notify
        self._connection: Connection | None = None
        self._turn = asyncio.Lock()
        self._losses = 0
        self._not_before = 0.0
        self._closed = False

    async def open(self) -> list[types.Tool]:
        """Connect, and give the tools that the server offers.

        Raises:
            McpError: that did not work; says why.
            FencepostError: it may not, for instance because its start could not be recorded.
        """
        return (await self._open()).found

    async def close(self) -> None:
        """End the server, or the session with it. Idempotent; nothing starts it again."""
        self._closed = True
        if self._connection is not None:
            await self._connection.close()

    # --- connecting ---------------------------------------------------------------------------------------------

    async def _open(self) -> Connection:
        self._connection = connection = Connection(self.name, self._connect())
        try:
            await connection.open(self._start_timeout)
        except McpError:
            self._lost()
            raise
        connection.task.add_done_callback(lambda _: self._gone(connection))
        return connection

    def _gone(self, connection: Connection) -> None:
        if not connection.closing and not self._closed:
            self._lost()
            why = f"the MCP server {self.name!r} is gone ({connection.why}); its next call starts it again"
            self._notify(Notice("note", why))

    def _lost(self) -> None:
        wait = min(LONGEST_WAIT, FIRST_WAIT * 2**self._losses)
        self._losses += 1
        self._not_before = asyncio.get_running_loop().time() + wait

    async def _connected(self) -> Connection:
        """The connection that there is, or a new one (rule 1).

        Raises:
            NotStarted: there is none to be had now.
        """
        async with self._turn:
            last = self._connection
            if last is not None and not last.over and not (last.wire.trail.suspect and last.wire.trail.idle):
                return last
            if last is not None:
                await last.close()  # nothing of the old server is left when the new one starts
            wait = self._not_before - asyncio.get_running_loop().time()
            if self._closed or wait > PATIENCE:
                why = "the session is being closed" if self._closed else f"it is not started again for {wait:.0f} s"
                raise NotStarted(f"the MCP server {self.name!r} is not there, and {why}{_because(last)}")
            await asyncio.sleep(max(0.0, wait))
            try:
                return await self._open()
            except FencepostError as error:
                raise NotStarted(f"the MCP server {self.name!r} could not be started again: {error}") from None

    # --- calling ------------------------------------------------------------------------------------------------

    async def call(self, tool: str, arguments: dict[str, Any], context: CallContext) -> ToolReply:
        """Make one call.

        Args:
            tool: as the server calls it.
            arguments: as the log has them.
            context: of the call.

        Raises:
            NotStarted: nothing of it left this process.
        """
        why = ""
        for _ in range(2):  # rule 2
            try:
                connection = await unless_cancelled(self._connected(), context.cancel, COURTESY)
                return await self._ask(connection, tool, arguments, context)
            except _NotSent as error:
                why = str(error)
            except Cancelled:
                raise NotStarted(f"the turn was cancelled ({context.cancel.reason}) before it was sent") from None
        raise NotStarted(f"the MCP server {self.name!r} took no request: {why}")

    async def _ask(
        self, connection: Connection, tool: str, arguments: dict[str, Any], context: CallContext
    ) -> ToolReply:
        trail = connection.wire.trail
        trail.follow(context.call_id)
        asking = asyncio.create_task(_send(connection, tool, arguments, context), name=f"mcp {self.name} {tool}")
        try:
            why = await self._answered(asking, context.cancel)
            if why is None:
                return await self._outcome(asking, connection, context)
            return unknown(f"{why}, and the server was told to stop")
        except asyncio.CancelledError:
            await stop(asking, COURTESY)
            raise
        finally:
            trail.forget(context.call_id)

    async def _answered(self, asking: asyncio.Task[types.CallToolResult], cancel: CancelSignal) -> str | None:
        """None when there is an answer, else why nobody waits for it any more."""
        cancelled = cancel.waiter()
        try:
            both: set[asyncio.Future[Any]] = {asking, cancelled}
            await asyncio.wait(both, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
        if asking.done():
            return None
        await stop(asking, COURTESY)
        if asking.done() and not asking.cancelled():
            return None
        if cancel.cancelled:
            return f"the turn was cancelled ({cancel.reason}) while the call ran"
        return f"the call was still running when its time limit of {self._timeout:g} s ran out"

    async def _outcome(
        self, asking: asyncio.Task[types.CallToolResult], connection: Connection, context: CallContext
    ) -> ToolReply:
        trail, call_id = connection.wire.trail, context.call_id
        error = asyncio.CancelledError() if asking.cancelled() else asking.exception()
        if error is None:
            self._losses = 0
            result = asking.result()
            text = await asyncio.to_thread(Rendering(call_id, context.files).text, result)
            return ToolReply(text, is_error=result.is_error)
        if not trail.has_left(call_id):
            raise _NotSent(sentence(error) if not isinstance(error, MCPError) else error.message)
        if call_id in trail.doubts:
            return unknown(f"between us and the MCP server {self.name!r} something failed ({trail.doubts[call_id]})")
        if isinstance(error, MCPError) and (call_id in trail.refusals or not _broke(error, connection)):
            self._losses = 0
            refusal = f" ({trail.refusals[call_id]})" if call_id in trail.refusals else ""
            text = f"The server answered with an error: {error.message} (code {error.code}){refusal}"
            return ToolReply(text, is_error=True, code=MCP_ERROR)
        return unknown(await self._story(error, connection))

    async def _story(self, error: BaseException, connection: Connection) -> str:
        """What happened behind a request that had left, as half a sentence."""
        if isinstance(error, Exception) and not isinstance(error, MCPError):
            return f"the MCP server {self.name!r} answered, but its answer cannot be read ({sentence(error)})"
        if connection.over:
            await asyncio.wait({connection.task})  # then it is known how the process ended
        why = connection.why if connection.over or not isinstance(error, MCPError) else error.message
        return f"the connection to the MCP server {self.name!r} was lost after the request had left ({why})"


# --- with the SDK -----------------------------------------------------------------------------------------------


async def _send(
    connection: Connection, tool: str, arguments: dict[str, Any], context: CallContext
) -> types.CallToolResult:
    """One request, one answer. Not `Client.call_tool`: that one may raise for a result that has come."""
    assert connection.session is not None

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
        context.progress(f"{message} ({share})\n" if message else f"{share}\n")

    meta = cast("Any", {KEY: context.call_id})  # a typed dictionary that, by the protocol, holds keys of others too
    params = types.CallToolRequestParams(name=tool, arguments=arguments, _meta=meta)
    request = types.CallToolRequest(params=params)
    return await connection.session.send_request(request, types.CallToolResult, progress_callback=heard)


def _broke(error: MCPError, connection: Connection) -> bool:
    """Whether an error is the SDK's word for a broken connection, and not the server's answer.

    Servers use the same codes for errors of their own; where the two cannot be told apart, nobody can say.
    """
    codes = {types.CONNECTION_CLOSED, types.PARSE_ERROR}
    return error.code in codes and (connection.over or not connection.wire.exact)


def _because(last: Connection | None) -> str:
    return f" ({last.why})" if last is not None else ""
