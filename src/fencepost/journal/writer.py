"""Makes one session's log durable: drives the `Batching` machine over a store's handle.

Rules:
    1. Append is the log's business and never waits; this module only hears of it.
    2. A flush begins its write in the next tick, so that all that is appended and flushed in one tick shares it. A
       write that nobody waits for lets a few ticks pass: the gate that follows a result by a hair shares that too.
    3. Nobody can cancel a write: it runs in a task of its own. Who is cancelled while waiting first sees the write
       that carries its events end; a second cancellation ends that wait too.
    4. Only `watermark` may be called durable, and a flush returns only when the watermark has passed it (law 4).
       Every failure of a store, foreseen or not, fails the flushes that its write was to answer.
    5. After `close` nothing is written.

What it refuses to be: the owner of the handle (the session releases it), or a judge of failures: it says so once,
keeps the events, and the machine decides when to try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from fencepost.core import events as ev
from fencepost.core.batching import BOUND, Action, ArmTimer, Batching, Write
from fencepost.core.codec import encode, last_seq, pack
from fencepost.core.log import Log
from fencepost.errors import FencepostError, NotSavedError
from fencepost.stores.base import Handle

WINDOW_MS = 200

GRACE = 4
"""Ticks of the event loop that a write lets pass when nobody waits for it: some microseconds each."""

OnState: TypeAlias = Callable[[NotSavedError | None], None]


class Writer:
    """Write-behind and flush for one session. Made inside a running event loop.

    Args:
        handle: ownership of the stored session.
        log: the log in memory; it begins with the very entries of `handle.stored`. Entries behind those (the seed of
            a fork) are pending from the start.
        window_ms: milliseconds from the first pending event to its write.
        bound: bytes that may be pending before `room` waits.
        on_state: called with the error when the session stops being saved, and with None when it is saved again;
            once each, before those who wait hear of it.

    Raises:
        ValueError: the log does not begin with what is stored.
    """

    def __init__(
        self,
        handle: Handle,
        log: Log,
        *,
        window_ms: int = WINDOW_MS,
        bound: int = BOUND,
        on_state: OnState | None = None,
    ) -> None:
        stored = handle.stored
        end = last_seq(stored.entries[-1]) if stored.entries else -1
        self._written = len(stored.entries)
        if len(log.entries) < self._written or (self._written and last_seq(log.entries[self._written - 1]) != end):
            raise ValueError(f"session {log.header.session}: the log does not begin with what is stored")
        self._handle = handle
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._machine = Batching(end, window=window_ms / 1000, bound=bound)
        self._watermark = stored.watermark
        self._on_state = on_state
        self._on_watermark: list[Callable[[int], None]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self._ended: asyncio.Future[None] | None = None
        """The end of the write in flight, for those who are cancelled while they wait for it."""
        self._timer: asyncio.TimerHandle | None = None
        self._in_flight = False
        self._closed = False
        self._stopped = False
        self.problem: NotSavedError | None = None
        """Why the newest write failed; None while the session is being saved."""
        self._unsubscribe = log.subscribe(self._appended)
        for entry in log.entries[self._written :]:
            self._do(self._machine.accept(last_seq(entry), len(encode(entry)), self._loop.time()))

    def __repr__(self) -> str:
        state = "closed" if self._closed else "not saved" if self.problem else "saved"
        return f"<Writer {self._log.header.session} | {state} | {self._machine!r}>"

    @property
    def watermark(self) -> int:
        """Seq of the last event that the store has acknowledged, -1 if none."""
        return self._watermark

    @property
    def pending_bytes(self) -> int:
        """Bytes appended and not yet acknowledged."""
        return self._machine.pending

    def on_watermark(self, listener: Callable[[int], None]) -> Callable[[], None]:
        """Call `listener` with the watermark each time it moves, before those who wait for it go on.

        Returns what ends that.
        """
        self._on_watermark.append(listener)
        return lambda: self._on_watermark.remove(listener)

    async def flush(self) -> None:
        """Return when all that was appended before the call is durable; at once if it is already.

        Raises:
            NotSavedError: the write that was to answer failed, or the writer is closed. Caused by what the store said.
            asyncio.CancelledError: the waiter was cancelled; raised after the write in flight ended (rule 3).
        """
        target = self._log.fold.next_seq - 1
        if target <= self._machine.durable:
            return
        if self._closed:
            raise self._not_saved(self._machine.durable + 1, target, "the session is closed")
        await self._wait(target)

    async def room(self) -> None:
        """Return when no more bytes are pending than may be; at once if so already.

        Raises:
            NotSavedError: they cannot be written.
        """
        while self._machine.over_bound:
            await self.flush()

    async def close(self) -> None:
        """Flush once more, then stop. Idempotent. What is appended from now on is not written.

        Raises:
            NotSavedError: the last flush failed; the writer is closed all the same.
        """
        first = not self._closed
        if first:
            self._closed = True
            self._unsubscribe()
        try:
            if first and self._machine.last > self._machine.durable:
                await self._wait(self._machine.last)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            if self._task is not None:
                await asyncio.wait([self._task])

    # --- what moves the machine ---------------------------------------------------------------------------------

    def _appended(self, event: ev.Event, size: int) -> None:
        action = self._machine.accept(event.seq, size, self._loop.time(), type(event) is ev.ToolResult)
        if action is not None:
            self._do(action)

    async def _wait(self, target: int) -> None:
        if self._stopped:
            raise self._not_saved(self._machine.durable + 1, target, "writing was cut off")
        answer = self._loop.create_future()
        self._waiting.append((target, answer))
        if self._machine.flush(target, self._loop.time()) is not None:
            self._wake()
        try:
            await answer
        except asyncio.CancelledError:
            while self._in_flight and target > self._machine.durable:
                self._ended = self._ended or self._loop.create_future()
                await asyncio.wait([self._ended])
            raise

    def _do(self, action: ArmTimer | None) -> None:
        if action is None:
            return
        if action.at <= self._loop.time():
            if self._waiting:
                self._wake()
            else:
                self._loop.call_soon(self._wake)  # cheaper here, and here is in the way of an append
        elif self._timer is None:
            # A timer that is armed already rings earlier, finds nothing due, and is armed again then. So a session
            # full of gates arms one timer per window, not one per gate.
            self._timer = self._loop.call_at(action.at, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake()

    def _wake(self) -> None:
        if self._task is None or self._task.done():
            self._task = self._loop.create_task(self._drive())

    # --- writing ------------------------------------------------------------------------------------------------

    async def _drive(self) -> None:
        """Write for as long as the machine has a write to do."""
        for _ in range(GRACE):
            if self._waiting:
                break
            await asyncio.sleep(0)
        action = self._machine.due(self._loop.time())
        while isinstance(action, Write):
            action = await self._write(action)
        self._task = None
        self._do(action)

    async def _write(self, write: Write) -> Action:
        count = len(self._log.entries)
        self._in_flight = True
        try:
            await self._handle.append(list(pack(self._log.entries[self._written : count])), write.first_seq)
        except asyncio.CancelledError as error:
            self._stopped = True  # whether the batch is stored is unknown, so nothing may follow it
            self._failed(write, error)
            raise
        except Exception as error:  # noqa: BLE001 - who waits for this write must fail, not hang, whatever went wrong
            action = self._machine.failed(self._loop.time())
            self._failed(write, error)
        else:
            action = self._machine.wrote(self._loop.time())
            self._written = count
            self._landed(write)
        finally:
            self._in_flight = False
            if self._ended is not None:
                self._ended.set_result(None)
                self._ended = None
        return action

    def _landed(self, write: Write) -> None:
        self._watermark = write.last_seq
        for listener in self._on_watermark:
            self._loop.call_soon(listener, write.last_seq)
        if self.problem is not None:
            self.problem = None
            self._tell()
        for answer in self._answered(write):
            answer.set_result(None)

    def _failed(self, write: Write, cause: BaseException) -> None:
        first = self.problem is None
        self.problem = self._not_saved(write.first_seq, write.last_seq, cause)
        if first:
            self._tell()
        for answer in self._answered(write):
            answer.set_exception(self._not_saved(write.first_seq, write.last_seq, cause))

    def _answered(self, write: Write) -> list[asyncio.Future[None]]:
        """The waiters that this write answers and that still wait; they are forgotten."""
        waiting, self._waiting, due = self._waiting, [], []
        for target, answer in waiting:
            if target > write.last_seq:
                self._waiting.append((target, answer))
            elif not answer.done():
                due.append(answer)
        return due

    def _tell(self) -> None:
        if self._on_state is not None:
            self._loop.call_soon(self._on_state, self.problem)

    def _not_saved(self, first: int, last: int, cause: BaseException | str) -> NotSavedError:
        known = isinstance(cause, FencepostError | str)
        why = cause if known else f"{type(cause).__name__}: {cause}"
        error = NotSavedError(
            f"session {self._log.header.session}: events {first} to {last} are not saved: {why}",
            next_act=(cause.next_act or None) if isinstance(cause, FencepostError) else None,
        )
        error.__cause__ = None if isinstance(cause, str) else cause
        return error
