"""A live session as its user sees it: prompt, steer, cancel, watch, close.

Rules:
    1. A prompt is acknowledged when it is durable, not before (law 9).
    2. One turn runs at a time; what is queued meanwhile runs in its order.
    3. Nothing runs because a session was opened: only a prompt, or `go_on`, starts a turn.
    4. Closing is ordered: no more input, cancel and settle the loop, the real `step/end` and `turn/end`, the closing
       flush, then the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Self

import msgspec

from fencepost.core import events as ev
from fencepost.core.lifecycle import State
from fencepost.errors import ClosedError, NotSavedError, UsageError
from fencepost.journal.session import Journal, Recovery
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.inbox import SessionInbox
from fencepost.runtime.loop import Body, TurnLoop, TurnResult
from fencepost.runtime.subjects import Notice
from fencepost.runtime.watch import Watcher

USER = "user"
"""The reason of a cancel that a person asked for: an input that the model has not seen yet is then dropped."""

CLOSING = "closing"
"""The reason of a cancel because the session is being closed: such an input stays pending."""


class Guarantees(msgspec.Struct, frozen=True):
    """What is in force for a session.

    Attributes:
        store: its URL.
        durable: whether the store survives the process at all.
        gates: those that some plugin holds, and the closing one.
        policy: which plugins hold them.
        ownership: what keeps a second writer out.
    """

    store: str
    durable: bool
    gates: tuple[ev.Gate, ...]
    policy: str
    ownership: str


class Session:
    """One live session. Made by `Runtime.create` and `Runtime.resume`."""

    def __init__(
        self,
        make_body: Callable[[Journal, Callable[[Notice], None]], Body],
        journal: Journal,
        guarantees: Guarantees,
        recovery: Recovery,
    ) -> None:
        self.id = journal.session
        self.journal = journal
        self.guarantees = guarantees
        self.recovery = recovery
        self._inbox = SessionInbox(journal)
        self._body = make_body(journal, self._notify)
        self._watchers: list[Watcher] = []
        self._on_notice: list[Callable[[Notice], None]] = []
        self._waiting: dict[str, asyncio.Future[TurnResult]] = {}
        self._turn: CancelSignal | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._closing = False
        self._continue: asyncio.Future[TurnResult] | None = None
        self._closed: asyncio.Task[None] | None = None
        self._pump = asyncio.create_task(self._run(), name=f"session {self.id}")
        journal.listen(self._saving_changed)

    def __repr__(self) -> str:
        state = self.journal.log.fold.state.value
        return f"<Session {self.id} | {state} | durable up to {self.journal.watermark}>"

    # --- input --------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> TurnResult:
        """Queue a prompt and wait for the end of the turn that answers it.

        Cancelling this call cancels that turn.

        Args:
            text: what to do.

        Raises:
            NotSavedError: the prompt could not be made durable; it will not run.
            ClosedError: the session is closed, or was closed before the prompt's turn came.
        """
        input_id = await self.queue(text)
        result = self._waiting.setdefault(input_id, asyncio.get_running_loop().create_future())
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            self._stop_turn_of(input_id)
            raise

    async def queue(self, text: str) -> str:
        """Queue a prompt for a turn of its own; returns its `input_id` when it is durable (law 9).

        Raises:
            NotSavedError, ClosedError: as `prompt`.
        """
        return await self._accept(text, "turn")

    async def steer(self, text: str) -> str:
        """Hand something to the next step of the running turn; without one it gets a turn of its own.

        Raises:
            NotSavedError, ClosedError: as `prompt`.
        """
        return await self._accept(text, "step")

    async def _accept(self, text: str, target: ev.Target) -> str:
        if self._closing:
            raise ClosedError(f"session {self.id} is closed and takes no more input")
        if not text.strip():
            raise UsageError("the prompt is empty")
        queued = self.journal.append(
            ev.InputQueued, input_id=self.journal.identity.fresh("i"), target=target, content=(ev.Text(text),)
        )
        try:
            await self.journal.flush()
        except NotSavedError:
            self._forget(queued.input_id, "it could not be saved")
            raise
        self._waiting[queued.input_id] = asyncio.get_running_loop().create_future()
        self._inbox.admit(queued)
        return queued.input_id

    def _forget(self, input_id: str, why: str) -> None:
        self._inbox.drop(input_id)
        if input_id in self.journal.log.fold.pending:
            self.journal.append(ev.InputDropped, input_id=input_id, reason=why)

    async def drop(self, input_id: str) -> None:
        """Take a queued prompt back, durably.

        Raises:
            UsageError: it is not pending any more.
        """
        if input_id not in self.journal.log.fold.pending:
            raise UsageError(f"input {input_id} is not pending")
        self._forget(input_id, "dropped by the user")
        self._resolve([input_id], ClosedError(f"input {input_id} was dropped"))
        await self.journal.flush()

    async def go_on(self) -> TurnResult | None:
        """Go on with the interrupted turn and with prompts that an earlier process left pending.

        Returns:
            How the last of these turns ended, or None where there was nothing to go on with.
        """
        fold = self.journal.log.fold
        left = [item for item in fold.pending.values() if item.input_id not in self._waiting]
        interrupted = fold.turn is not None and fold.turn.ended == "interrupted"
        if not interrupted and not left:
            return None
        result: TurnResult | None = None
        for item in left:
            self._waiting[item.input_id] = asyncio.get_running_loop().create_future()
            self._inbox.admit(item)
        if interrupted:
            self._continue = asyncio.get_running_loop().create_future()
            self._inbox.woken.set()
            result = await self._continue
        for item in left:
            result = await self._waiting[item.input_id]
        return result

    # --- the pump -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._turns()
        except BaseException as error:
            # A bug, not an outcome: outcomes are TurnResults. Nobody may go on waiting for a turn that will not come.
            self._closing = True
            self._resolve(list(self._waiting), error)
            raise

    async def _turns(self) -> None:
        while True:
            await self._inbox.woken.wait()
            self._inbox.woken.clear()
            while not self._closing and (self._inbox.waiting() or self._continue is not None):
                await self._one_turn()
            if self._closing:
                return

    async def _one_turn(self) -> None:
        going_on, self._continue = self._continue, None
        self._inbox.next_turn()
        self._turn = CancelSignal()
        self._idle.clear()
        try:
            last = self.journal.log.fold.turn
            continues = last.number if going_on is not None and last is not None else None
            result = await TurnLoop(self._body, self._inbox, self._turn).run(continues)
        except BaseException as error:
            self._resolve(self._inbox.claimed, error)
            if going_on is not None and not going_on.done():
                going_on.set_exception(error)
            raise
        finally:
            self._turn = None
            self._idle.set()
        await self._settle(result)
        self._resolve(self._inbox.claimed, result)
        if going_on is not None and not going_on.done():
            going_on.set_result(result)

    async def _settle(self, result: TurnResult) -> None:
        """An input that was claimed and not consumed: dropped if a person cancelled, else it stays pending."""
        left = self._inbox.unconsumed()
        if result.reason == "aborted" and result.message == USER:
            for name in left:
                self._forget(name, "the turn was cancelled before the model saw it")
        self._inbox.claimed.extend(name for name in left if name not in self._inbox.claimed)

    def _resolve(self, inputs: list[str], outcome: TurnResult | BaseException) -> None:
        for name in inputs:
            waiter = self._waiting.get(name)
            if waiter is None or waiter.done():
                continue
            if isinstance(outcome, TurnResult):
                waiter.set_result(outcome)
            else:
                waiter.set_exception(outcome)
                waiter.exception()

    # --- cancel and close ---------------------------------------------------------------------------------------

    async def cancel(self, reason: str = USER) -> None:
        """Cancel the running turn and wait until its closing records are written. Without one: nothing."""
        if self._turn is not None:
            self._turn.set(reason)
        await self._idle.wait()

    def cancel_soon(self, reason: str = USER) -> None:
        """Cancel the running turn without waiting: for signal callbacks."""
        if self._turn is not None:
            self._turn.set(reason)

    def _stop_turn_of(self, input_id: str) -> None:
        if self._turn is not None and input_id in self._inbox.claimed:
            self._turn.set(USER)
        else:
            self._forget(input_id, "whoever asked stopped waiting")

    async def close(self) -> None:
        """Close in order (rule 4). Idempotent; a second call waits for the first.

        Raises:
            NotSavedError: the last events could not be made durable. Ownership is given up all the same.
        """
        if self._closed is None:
            self._closed = asyncio.create_task(self._close(), name=f"close {self.id}")
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        self._closing = True
        self._inbox.woken.set()
        if self._turn is not None:
            self._turn.set(CLOSING)
        await asyncio.wait({self._pump})
        failure = None if self._pump.cancelled() else self._pump.exception()
        self._resolve(list(self._waiting), ClosedError(f"session {self.id} was closed"))
        try:
            await self.journal.close()
        finally:
            for watcher in self._watchers:
                watcher.end()
        if failure is not None:
            raise failure

    # --- watching -----------------------------------------------------------------------------------------------

    def events(self, start: int = 0, *, durable: bool = False) -> AsyncIterator[ev.Event | ev.UnknownEvent]:
        """The events from seq `start` on, then those that come, until the session is closed.

        Args:
            start: first seq.
            durable: give each event only when it is durable: what is shown then survives (law 9).
        """
        watcher = Watcher(self.journal, start, durable=durable)
        self._watchers.append(watcher)
        return watcher.events()

    def on_notice(self, listener: Callable[[Notice], None]) -> None:
        """Call `listener` with what people should see now and the log does not keep."""
        self._on_notice.append(listener)

    def _notify(self, notice: Notice) -> None:
        for listener in self._on_notice:
            listener(notice)

    def _saving_changed(self, failure: NotSavedError | None) -> None:
        if failure is None:
            self._notify(Notice("saved", f"session {self.id} is being saved again"))
        else:
            self._notify(Notice("not_saved", failure.explain()))

    @property
    def idle(self) -> bool:
        """Whether no turn is open."""
        return self.journal.log.fold.state is State.IDLE

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
