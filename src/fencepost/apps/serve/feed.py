"""What a follower of a live session is sent: its durable events in order, and beside them notices and questions.

A slow reader is never waited for by the session: events are read from the log when there is room for them, and of
notices only those about saving are kept beyond a bound.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec

from fencepost.client import frames
from fencepost.core.codec import encode
from fencepost.runtime.session import Session
from fencepost.runtime.subjects import Notice

KEPT = 256
"""Notices of progress that wait for a slow reader at most."""


class Feed:
    """One follower's place in a live session.

    Args:
        session: which.
        start: seq of the first event that is sent.
        gone: called once when nobody reads here any more.
    """

    def __init__(self, session: Session, start: int, gone: Callable[[Feed], None]) -> None:
        self.session = session.id
        self._events = session.events(start, durable=True)
        self._gone = gone
        self._beside: deque[frames.Sent] = deque()
        self._progress = 0
        self._wake = asyncio.Event()

    def notice(self, notice: Notice) -> None:
        """Pass a notice on."""
        progress = notice.kind == "progress"
        if progress and self._progress >= KEPT:
            return
        self._progress += progress
        self.add(frames.NoticeSent(self.session, notice.kind, notice.text, notice.call_id))

    def add(self, sent: frames.Sent) -> None:
        """Send this as soon as the reader takes it, in front of events that are not sent yet."""
        self._beside.append(sent)
        self._wake.set()

    async def sent(self) -> AsyncIterator[frames.Sent]:
        """What is sent, until the session is closed."""
        following = None
        try:
            while True:
                while self._beside:
                    yield self._take()
                following = following or asyncio.ensure_future(anext(self._events, None))
                waking = asyncio.ensure_future(self._wake.wait())
                await asyncio.wait({following, waking}, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                self._wake.clear()
                if not following.done():
                    continue
                event, following = following.result(), None
                if event is None:
                    break
                yield frames.EventSent(self.session, event.seq, msgspec.Raw(encode(event)))
            while self._beside:
                yield self._take()
            yield frames.SessionEnded(self.session)
        finally:
            self._gone(self)
            if following is not None:
                following.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await following
            await self._events.aclose()  # type: ignore[attr-defined]  # an async generator, typed as an iterator

    def _take(self) -> frames.Sent:
        item = self._beside.popleft()
        if isinstance(item, frames.NoticeSent) and item.notice == "progress":
            self._progress -= 1
        return item
