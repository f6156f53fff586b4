"""Watching a log: its events from some seq on, as they come, or as they become durable.

A watcher holds a position, not a queue: it reads the log itself, so a slow reader costs no memory and misses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fencepost.core import events as ev
from fencepost.journal.session import Journal


class Watcher:
    """One reader's place in a log.

    Args:
        journal: whose log.
        start: first seq.
        durable: wait for the watermark before giving an event.
    """

    def __init__(self, journal: Journal, start: int, *, durable: bool) -> None:
        self._journal = journal
        self._next = start
        self._durable = durable
        self._moved = asyncio.Event()
        self._ended = False
        if durable:
            self._unsubscribe = journal.on_watermark(lambda _seq: self._moved.set())
        else:
            self._unsubscribe = journal.log.subscribe(lambda _event, _size: self._moved.set())

    def end(self) -> None:
        """Nothing more will come: readers stop behind what is there."""
        self._ended = True
        self._moved.set()
        self._unsubscribe()

    def _available(self) -> int:
        """The first seq that may not be given yet."""
        return self._journal.watermark + 1 if self._durable else self._journal.log.fold.next_seq

    async def events(self) -> AsyncIterator[ev.Event | ev.UnknownEvent]:
        """The events, in order, each once."""
        while True:
            self._moved.clear()
            limit = self._available()
            if self._next < limit:
                for event in self._journal.log.events(self._next):
                    if event.seq >= limit:
                        break
                    self._next = event.seq + 1
                    yield event
                continue
            if self._ended:
                return
            await self._moved.wait()
