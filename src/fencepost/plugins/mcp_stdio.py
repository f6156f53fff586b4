"""The wire to a server of our own: one JSON-RPC message a line on its stdin and stdout.

It is ours rather than the SDK's for three things that must be known exactly: whether a request left (the first byte
that the pipe took), how the process ended, and that it ends with this one.

Rules:
    1. Lines end at byte 0x0A, nowhere else, and may be long.
    2. A line that has begun is written to its end, whoever stops waiting: half a line would spoil the next.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCRequest, jsonrpc_message_adapter

from fencepost.plugins.mcp_child import PIECE, Child
from fencepost.plugins.mcp_trail import Trail

LINE_LIMIT = 64 << 20
"""Bytes of one message from a server at most; above it the connection is given up."""
AHEAD = 16
"""Messages that are read before somebody takes them."""


class SeveredError(ConnectionError):
    """A request could not be written, not even its first byte or not to its end; see the trail."""


class StdioWire:
    """One server process and the streams to it: a transport of the SDK.

    Args:
        start: starts the process.

    Attributes:
        trail: what left.
        ended: set when it is over: the server closed its side, or died.
        exact: True: that is known before the SDK's word for it can be.
    """

    exact = True

    def __init__(self, start: Callable[[], Awaitable[Child]]) -> None:
        self.trail = Trail()
        self.ended = asyncio.Event()
        self._start = start
        self._child: Child | None = None
        self._reading: asyncio.Task[None] | None = None
        self._trouble = ""

    @property
    def why(self) -> str:
        """Why it is over, as half a sentence; empty if that was our doing."""
        return self._trouble

    async def __aenter__(self) -> tuple[Arriving, Pen]:
        self._child = await self._start()
        arriving, pen = Arriving(), Pen(self._child, self.trail)
        self._reading = asyncio.create_task(self._read(self._child, arriving), name="mcp stdout")
        return arriving, pen

    async def __aexit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        assert self._child is not None
        assert self._reading is not None
        try:
            await self._child.end()
        finally:
            self._reading.cancel()
            if self._trouble:
                self._trouble = self._child.story or self._trouble

    async def _read(self, child: Child, arriving: Arriving) -> None:
        try:
            await self._lines(child.stdout, arriving)
        finally:
            self._trouble = self._trouble or "it closed its stdout"
            self.ended.set()
            await arriving.put(None)

    async def _lines(self, stdout: asyncio.StreamReader, arriving: Arriving) -> None:
        begun: list[bytes] = []
        size = 0
        while piece := await stdout.read(PIECE):
            first, *more = piece.split(b"\n")
            begun.append(first)
            size += len(first)
            if more:
                for line in (b"".join(begun), *more[:-1]):
                    if line.strip():
                        await arriving.put(_message(line))
                begun, size = [more[-1]], len(more[-1])
            if size > LINE_LIMIT:
                self._trouble = f"it sent a line of more than {LINE_LIMIT} bytes"
                return


def _message(line: bytes) -> SessionMessage | Exception:
    """What a line says. What is no message is handed on as the error; some servers print there what they should log."""
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


class Arriving:
    """Messages from the server, as the SDK reads them; ends with the connection. Read by one task."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[SessionMessage | Exception | None] = asyncio.Queue(AHEAD)
        self._closed = False

    async def put(self, item: SessionMessage | Exception | None) -> None:
        """Hand on one message, None for the end. Waits while too many lie there; nobody reads any more: drops it."""
        if not self._closed:
            await self._queue.put(item)

    async def receive(self) -> SessionMessage | Exception:
        """The next message."""
        item = None if self._closed else await self._queue.get()
        if item is None:
            raise StopAsyncIteration
        return item

    async def aclose(self) -> None:
        """Read no more: what comes is dropped, so that the server does not stand still."""
        self._closed = True
        while not self._queue.empty():
            self._queue.get_nowait()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return await self.receive()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class Pen:
    """Messages to the server, as the SDK writes them."""

    def __init__(self, child: Child, trail: Trail) -> None:
        self._child = child
        self._trail = trail
        self._turn = asyncio.Lock()
        self._writing: set[asyncio.Task[None]] = set()

    async def send(self, item: SessionMessage, /) -> None:
        """Write one message.

        Raises:
            SeveredError: it is a request and could not be written. Other messages are nobody's loss and are dropped.
        """
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        writing = asyncio.create_task(self._write(line), name="mcp stdin")
        self._writing.add(writing)
        writing.add_done_callback(self._written)
        try:
            await asyncio.shield(writing)
        except OSError as error:
            if isinstance(item.message, JSONRPCRequest):
                raise SeveredError(f"the server does not read any more ({error.strerror or error})") from None

    async def _write(self, line: bytes) -> None:
        async with self._turn:
            calls = self._trail.named(line)
            rest = memoryview(line)
            while rest:
                if self._child.stdin < 0:
                    raise BrokenPipeError("its stdin is closed")
                try:
                    written = os.write(self._child.stdin, rest)
                except BlockingIOError:
                    await _writable(self._child.stdin)
                    continue
                self._trail.leave(calls)
                rest = rest[written:]

    def _written(self, writing: asyncio.Task[None]) -> None:
        """Whoever waited may have gone; an unread failure would be reported as forgotten."""
        self._writing.discard(writing)
        if not writing.cancelled():
            writing.exception()

    async def aclose(self) -> None:
        """Nothing more comes. The process ends by it, in its own time: see `Child.end`."""
        for writing in self._writing:
            writing.cancel()
        if self._writing:
            await asyncio.wait(self._writing)
        self._child.close_stdin()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _writable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_writer(descriptor, wake)
    try:
        await ready
    finally:
        loop.remove_writer(descriptor)
