"""The API over one line connection: requests on standard input, answers and what is sent unasked on standard output.

Rules:
    1. Each request is worked on by itself: a long one holds back no other. Answers come in the order of their ends.
    2. A line that is over the limit, or no request, is answered with an error; the connection lives.
    3. The end of standard input is the end of the server; so is a reader that has gone.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

from fencepost.apps.cli.outlet import Outlet
from fencepost.apps.serve import rpc
from fencepost.apps.serve.api import Api
from fencepost.client import frames, wire
from fencepost.client.framing import Lines, TooLong
from fencepost.errors import FencepostError

PIECE = 1 << 20
"""Bytes that are read at a time."""
GRACE = 2.0
"""Seconds that requests get that were read before the end of the input."""
_LONG = frozenset(kind.method for kind in (wire.WaitPrompt, wire.ContinueTurn, wire.CancelTurn, wire.CompactSession))
AT_ONCE = 64
"""Pieces that may wait to be worked on."""


class LineServer:
    """See the module. Made inside a running event loop.

    Args:
        api: what is served.
        source: descriptor that requests are read from.
        out: where answers go.
        ended: called, on the loop, when nothing more will be read.
    """

    def __init__(self, api: Api, source: int, out: Outlet, ended: Callable[[], None]) -> None:
        self._api = api
        self._out = out
        self._ended = ended
        self._lines = Lines()
        self._working: set[asyncio.Task[None]] = set()
        self._following: dict[str, asyncio.Task[None]] = {}
        self._pieces: asyncio.Queue[bytes] = asyncio.Queue()
        self._room = threading.Semaphore(AT_ONCE)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(source, loop), name="requests", daemon=True).start()
        self._taking = asyncio.create_task(self._take(), name="requests")

    def _read(self, source: int, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread: a terminal and a file can be read too, which an event loop cannot wait for."""
        data = b"-"
        while data:
            self._room.acquire()
            try:
                data = os.read(source, PIECE)
            except OSError:
                data = b""  # it hung up: the end of it
            try:
                loop.call_soon_threadsafe(self._pieces.put_nowait, data)
            except RuntimeError:
                return  # the loop is closed: nobody listens any more

    async def _take(self) -> None:
        while True:
            data = await self._pieces.get()
            self._room.release()
            if not data:
                self._ended()
                return
            for line in self._lines.feed(data):
                self._begin(line)

    def _begin(self, line: bytes | TooLong) -> None:
        try:
            if isinstance(line, TooLong):
                raise rpc.Refused(frames.INVALID_REQUEST, f"a line of over {frames.LONGEST} bytes is not read")
            request, params = rpc.understand(line)
        except rpc.Refused as error:
            self._say(rpc.refusal(error))
            return
        task = asyncio.create_task(self._answer(request, params), name=request.method)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _answer(self, request: frames.Request, params: wire.Params) -> None:
        if isinstance(params, wire.FollowEvents):
            self._follow(request, params)
        elif isinstance(params, wire.UnfollowEvents):
            self._unfollow(params.session)
            self._say(rpc.done(request))
        else:
            self._say(await rpc.answer(self._api, request, params))

    def _say(self, message: bytes | None) -> None:
        if message is not None:
            self._out.put(message + b"\n")

    # --- following ----------------------------------------------------------------------------------------------

    def _follow(self, request: frames.Request, params: wire.FollowEvents) -> None:
        try:
            feed = self._api.follow(params.session, params.start)
        except FencepostError as error:
            self._say(rpc.failed(request, rpc.product_error(error)))
            return
        self._unfollow(params.session)
        self._say(rpc.done(request))

        async def pass_on() -> None:
            async for sent in feed.sent():
                self._say(rpc.notification(sent))
                await self._out.room()

        self._following[params.session] = asyncio.create_task(pass_on(), name=f"follow {params.session}")

    def _unfollow(self, session: str) -> None:
        following = self._following.pop(session, None)
        if following is not None:
            following.cancel()

    async def answered(self) -> None:
        """What was asked before the end of the input is done, but for what waits for a turn."""
        short = {task for task in self._working if task.get_name() not in _LONG}
        if short:
            await asyncio.wait(short, timeout=GRACE)

    async def finish(self) -> None:
        """Behind the closing of the sessions: what they still said goes out, then nothing more."""
        self._taking.cancel()
        if self._following:
            await asyncio.wait(self._following.values())
        for task in self._working:
            task.cancel()
        if self._working:
            await asyncio.wait(self._working)
