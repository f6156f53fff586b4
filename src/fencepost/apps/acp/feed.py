"""A live session's events, to its client: in order, each when it is durable (law 9); and the output of calls.

Output that a body prints is not kept in the log. It is shown below its call while that runs, its last part only, and a
few times a second at most: each showing replaces the one before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from fencepost.apps.acp import cards
from fencepost.apps.acp.telling import Teller, Update, note
from fencepost.core import events as ev
from fencepost.runtime.session import Session
from fencepost.runtime.subjects import Notice

OUTPUT = 1 << 15
"""Characters of the output of a running call that are shown."""
INTERVAL = 0.2
"""Seconds from one showing of it to the next."""

Send = Callable[[Update], Awaitable[None]]


class Feed:
    """See the module. Made inside a running event loop.

    Args:
        session: whose events.
        start: the first seq that the client does not know.
        teller: makes updates of them.
        send: says them to the client.
    """

    def __init__(self, session: Session, start: int, teller: Teller, send: Send) -> None:
        self.position = start
        """The first seq that was not told."""
        self._session = session
        self._teller = teller
        self._send = send
        self._output: dict[str, str] = {}
        self._new: set[str] = set()
        self._notes: deque[str] = deque()
        self._noted = 0
        self._moved = asyncio.Condition()
        self._saying: asyncio.Task[None] | None = None
        self.lock = asyncio.Lock()
        """Held while something is told: who wants to tell more in one piece takes it."""
        self._task = asyncio.create_task(self._run(), name=f"feed {session.id}")
        session.on_notice(self._notice)

    async def _run(self) -> None:
        try:
            async for event in self._session.events(self.position, durable=True):
                async with self.lock:
                    self._forget(event)
                    for update in self._teller.tell(event):
                        await self._send(update)
                    self.position = event.seq + 1
                async with self._moved:
                    self._moved.notify_all()
        finally:
            async with self._moved:
                self._moved.notify_all()

    async def reached(self, seq: int) -> None:
        """Return when the event `seq` was told, or nothing more will be.

        Raises:
            Exception: what ended the feed.
        """
        async with self._moved:
            await self._moved.wait_for(lambda: self.position > seq or self._task.done() or self._session.journal.closed)
        if self.position <= seq:
            await asyncio.shield(self._task)

    async def caught_up(self) -> None:
        """Return when all that is durable now was told."""
        await self.reached(self._session.journal.watermark)

    async def ended(self) -> None:
        """Return when the session is closed and all of it was told."""
        await asyncio.wait({self._task})
        if self._saying is not None:
            self._saying.cancel()
            await asyncio.wait({self._saying})

    # --- what the log does not keep -----------------------------------------------------------------------------

    def _notice(self, notice: Notice) -> None:
        call = self._session.journal.log.fold.calls.get(notice.call_id)
        if notice.kind == "progress":
            if call is None or call.result is not None:
                return
            self._output[notice.call_id] = (self._output.get(notice.call_id, "") + notice.text)[-OUTPUT:]
            self._new.add(notice.call_id)
        elif call is None:  # what is said of a call stands in the log too
            self._notes.append(notice.text)
        if self._saying is None or self._saying.done():
            self._saying = asyncio.create_task(self._say(), name=f"output {self._session.id}")

    async def _say(self) -> None:
        while self._new or self._notes:
            async with self.lock:
                await self._say_notes()
                for name in sorted(self._new & self._teller.running):
                    self._new.discard(name)
                    content = (cards.text_content(self._output[name]),)
                    await self._send(cards.progress(name, status="in_progress", content=content))
            await asyncio.sleep(INTERVAL)

    async def _say_notes(self) -> None:
        while self._notes:
            self._noted += 1
            for update in note(self._notes.popleft(), f"now.{self._noted}"):
                await self._send(update)

    def _forget(self, event: ev.Event | ev.UnknownEvent) -> None:
        """The output of a call that is over: its result has what matters of it."""
        if isinstance(event, ev.ToolResult):
            self._output.pop(event.call_id, None)
            self._new.discard(event.call_id)
