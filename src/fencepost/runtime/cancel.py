"""The cancel signal: explicit, one per turn, never an asyncio cancellation.

A tool body sees the signal and decides how to stop; the loop stops dispatching by itself. The first cause wins.
"""

from __future__ import annotations

import asyncio

from fencepost.errors import Cancelled


class CancelSignal:
    """Set once, with a reason. Cheap to look at, possible to wait for; safe to set from the loop's thread only."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.reason = ""

    def __repr__(self) -> str:
        return f"<CancelSignal {self.reason or 'not set'}>"

    @property
    def cancelled(self) -> bool:
        """Whether the turn was cancelled."""
        return self._event.is_set()

    def set(self, reason: str) -> None:
        """Cancel. Later reasons are ignored."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    async def wait(self) -> None:
        """Return when the turn was cancelled."""
        await self._event.wait()

    def check(self) -> None:
        """Raise `Cancelled` if the turn was cancelled."""
        if self._event.is_set():
            raise Cancelled(f"cancelled: {self.reason}")
