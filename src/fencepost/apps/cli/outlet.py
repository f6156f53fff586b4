"""A file descriptor that a thread of its own writes to.

A reader that is slow, or stands still, must not stop the loop: signals, gates and the closing of a session go on.
One that is gone is noticed once.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable

BOUND = 1 << 20
"""Bytes that may wait to be written before `room` waits."""


class Outlet:
    """See the module. Made inside a running event loop.

    Args:
        fd: written to, never closed.
        on_broken: called once, on the loop, when it cannot be written any more.
    """

    def __init__(self, fd: int, on_broken: Callable[[OSError], None]) -> None:
        self._fd = fd
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._items: queue.SimpleQueue[bytes | asyncio.Future[None]] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self.broken: OSError | None = None
        threading.Thread(target=self._write_all, name=f"outlet {fd}", daemon=True).start()

    @property
    def waiting(self) -> int:
        """Bytes that are still to be written."""
        return self._waiting

    def put(self, data: bytes) -> None:
        """Write `data` behind all that was put before. Never waits."""
        with self._lock:
            self._waiting += len(data)
        self._items.put(data)

    async def room(self) -> None:
        """Wait while more waits to be written than the bound."""
        if self._waiting > BOUND:
            await self.drained()

    async def drained(self) -> None:
        """Wait until all that was put before is written, or cannot be."""
        reached: asyncio.Future[None] = self._loop.create_future()
        self._items.put(reached)
        await reached

    # --- the thread ---------------------------------------------------------------------------------------------

    def _write_all(self) -> None:
        while True:
            item = self._items.get()
            if isinstance(item, asyncio.Future):
                self._tell(_resolve, item)
                continue
            try:
                if self.broken is None:
                    self._write(item)
            except OSError as error:
                self.broken = error
                self._tell(self._on_broken, error)
            with self._lock:
                self._waiting -= len(item)

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more


def _resolve(reached: asyncio.Future[None]) -> None:
    if not reached.done():
        reached.set_result(None)
