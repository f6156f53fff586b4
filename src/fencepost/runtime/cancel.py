"""The cancel signal: explicit, one per turn, never an asyncio cancellation.

A tool body sees the signal and decides how to stop; the loop stops dispatching by itself. The first cause wins.
`unless_cancelled` brings the signal to code that does not look at it, such as a policy that waits for a person.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from fencepost.errors import Cancelled

T = TypeVar("T")


USER = "user"
"""The reason of a cancel that a person asked for: an input that the model has not seen yet is then dropped."""

CLOSING = "closing"
"""The reason of a cancel because the session is being closed: such an input stays pending."""


class CancelSignal:
    """Set once, with a reason. Cheap to look at, possible to wait for; safe to set from the loop's thread only."""

    def __init__(self) -> None:
        self.cancelled = False
        """Whether the turn was cancelled."""
        self.reason = ""
        self._waiters: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return f"<CancelSignal {self.reason or 'not set'}>"

    def set(self, reason: str) -> None:
        """Cancel. Later reasons are ignored."""
        if self.cancelled:
            return
        self.cancelled, self.reason = True, reason
        for waiter in list(self._waiters):
            if not waiter.done():
                waiter.set_result(None)

    def waiter(self) -> asyncio.Future[None]:
        """A future that is done when the turn was cancelled. Who does not wait any more cancels it."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.cancelled:
            waiter.set_result(None)
        else:
            self._waiters.add(waiter)
            waiter.add_done_callback(self._waiters.discard)
        return waiter

    async def wait(self) -> None:
        """Return when the turn was cancelled."""
        await self.waiter()

    def check(self) -> None:
        """Raise `Cancelled` if the turn was cancelled."""
        if self.cancelled:
            raise Cancelled(f"cancelled: {self.reason}")


def _at_once() -> float:
    return 0.0


async def unless_cancelled(
    work: Awaitable[T], signal: CancelSignal, drain: float, patience: Callable[[], float] = _at_once
) -> T:
    """What `work` gives, or `Cancelled` if the signal overtakes it.

    Work that is overtaken may end by itself for `patience()` seconds; what it then gives counts. After that it is told
    to stop, and given up on after `drain` seconds more: whatever it does then, nobody waits for it.

    Raises:
        Cancelled: the signal was first.
        RuntimeError: the work ended with an asyncio cancellation of its own.
    """
    task = asyncio.ensure_future(work)
    cancelled = signal.waiter()
    try:
        both: set[asyncio.Future[Any]] = {task, cancelled}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and (seconds := patience()) > 0:
            await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await stop(task, drain)
        raise
    finally:
        cancelled.cancel()
    if not task.done():
        await stop(task, drain)
        raise Cancelled(f"cancelled: {signal.reason}")
    if task.cancelled():
        # Its own doing. Passed on as it is, it would look as if our caller had been cancelled.
        raise RuntimeError("it was cancelled from inside")
    return task.result()


async def wait_unless_cancelled(work: Coroutine[Any, Any, None], signal: CancelSignal) -> None:
    """Wait for `work` until the signal is set; then it is left to itself, told to stop."""
    task, cancelled = asyncio.create_task(work), signal.waiter()
    try:
        await asyncio.wait({task, cancelled}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        cancelled.cancel()
        task.cancel()


async def stop(task: asyncio.Future[Any], drain: float) -> None:
    """Tell a task to stop and wait for that, `drain` seconds at most. How it ends is nobody's business any more."""
    task.add_done_callback(_look_at)
    task.cancel()
    await asyncio.wait({task}, timeout=drain)


def _look_at(task: asyncio.Future[Any]) -> None:
    """A failure that a cancel overtook is expected: unread, asyncio would report it as forgotten."""
    if not task.cancelled():
        task.exception()
