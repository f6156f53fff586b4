"""Watching a session: the events of its log from some seq on, as they come or become durable, and notices.

A watcher holds a position, not a queue: it reads the log itself, so a slow reader costs no memory and misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from fencepost.core import events as ev
from fencepost.errors import NotSavedError
from fencepost.journal.session import Journal
from fencepost.runtime.subjects import Notice


class Watcher:
    """One reader's place in a log.

    Args:
        journal: whose log.
        start: first seq.
        durable: wait for the watermark before giving an event.
        gone: called once, when nobody reads here any more.
    """

    def __init__(self, journal: Journal, start: int, *, durable: bool, gone: Callable[[Watcher], None]) -> None:
        self._journal = journal
        self._next = start
        self._durable = durable
        self._gone = gone
        self._moved = asyncio.Event()
        self._ended = False
        self._unsubscribe: Callable[[], None] | None = (
            journal.on_watermark(lambda _seq: self._moved.set())
            if durable
            else journal.log.subscribe(lambda _event, _size: self._moved.set())
        )

    def end(self) -> None:
        """Nothing more will come: the reader stops behind what is there. Idempotent."""
        self._ended = True
        self._moved.set()
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
            self._gone(self)

    def _available(self) -> int:
        """The first seq that may not be given yet."""
        return self._journal.watermark + 1 if self._durable else self._journal.log.fold.next_seq

    async def events(self) -> AsyncIterator[ev.Event | ev.UnknownEvent]:
        """The events, in order, each once."""
        try:
            while True:
                self._moved.clear()
                limit = self._available()
                if self._next < limit:
                    for event in self._journal.log.events(self._next):
                        if event.seq >= limit:
                            break
                        self._next = event.seq + 1
                        yield event
                elif self._ended:
                    return
                else:
                    await self._moved.wait()
        finally:
            self.end()


class Watchers:
    """Who watches the log of one session."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._all: set[Watcher] = set()

    def __len__(self) -> int:
        return len(self._all)

    def events(self, start: int, *, durable: bool) -> AsyncIterator[ev.Event | ev.UnknownEvent]:
        """The events from `start` on, until `end`."""
        watcher = Watcher(self._journal, start, durable=durable, gone=self._all.discard)
        self._all.add(watcher)
        if self._journal.closed:
            watcher.end()
        return watcher.events()

    def end(self) -> None:
        """Nothing more will come."""
        for watcher in list(self._all):
            watcher.end()


class Notices:
    """Who is told what people should see now and the log does not keep."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._listeners: list[Callable[[Notice], None]] = []

    def listen(self, listener: Callable[[Notice], None]) -> None:
        """Call `listener` with each notice from now on."""
        self._listeners.append(listener)

    def saving_changed(self, failure: NotSavedError | None) -> None:
        """Tell that the session is not being saved, or is again."""
        if failure is None:
            self.tell(Notice("saved", f"session {self._session} is being saved again"))
        else:
            self.tell(Notice("not_saved", failure.explain()))

    def tell(self, notice: Notice) -> None:
        """Tell them. One that fails is reported to the event loop: who watches must not break what is watched."""
        for listener in self._listeners:
            try:
                listener(notice)
            except Exception as error:  # noqa: BLE001 - a stranger's code
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a listener of session {self._session} failed", "exception": error}
                )
