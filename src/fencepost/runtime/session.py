"""A live session as its user sees it: prompt, steer, cancel, watch, close.

Rules:
    1. A prompt is acknowledged when it is durable, not before (law 9).
    2. One turn runs at a time; what is queued meanwhile runs in its order, each prompt once.
    3. Nothing runs because a session was opened: only a prompt, or `go_on`, starts a turn.
    4. Closing is ordered: no more input, cancel and settle the loop, the real `step/end` and `turn/end`, the closing
       flush, then the journal.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Self

from fencepost.core import events as ev
from fencepost.core.lifecycle import State
from fencepost.errors import Cancelled, ClosedError, NotSavedError, UsageError
from fencepost.journal.session import Journal, Recovery
from fencepost.runtime.cancel import CLOSING, USER, CancelSignal, wait_unless_cancelled
from fencepost.runtime.guarantees import Guarantees
from fencepost.runtime.inbox import SessionInbox
from fencepost.runtime.loop import Body, TurnLoop, TurnResult
from fencepost.runtime.outcomes import Outcomes, new_promise, settle
from fencepost.runtime.pauses import compact
from fencepost.runtime.subjects import Compacted, Notice
from fencepost.runtime.toolbox import Toolbox
from fencepost.runtime.watch import Notices, Watchers


class Session:
    """One live session. Made by `Runtime.create` and `Runtime.resume`.

    Attributes:
        id: of the session.
        journal: its log, and what makes that durable.
        guarantees: what is in force.
        recovery: what resuming found and did.
    """

    def __init__(
        self,
        make_body: Callable[[Journal, Callable[[Notice], None]], Body],
        journal: Journal,
        guarantees: Guarantees,
        recovery: Recovery,
        closed: Callable[[Session], None],
        toolbox: Toolbox,
        files: Path,
    ) -> None:
        self.id = journal.session
        self.journal = journal
        self.guarantees = guarantees
        self.recovery = recovery
        self._make_body = make_body
        self._toolbox = toolbox
        self._files = files
        self._body: Body | None = None
        self._on_closed = closed
        self._inbox = SessionInbox(journal)
        self._watchers = Watchers(journal)
        self._notices = Notices(self.id)
        self._outcomes = Outcomes()
        self._continue: asyncio.Future[TurnResult] | None = None
        self._signal = CancelSignal()
        """Of the running turn or, between turns, of the next one."""
        self._running = False
        self._alone = asyncio.Lock()
        self._accepting = 0
        self._over = asyncio.Event()
        """Set when a turn is over; clear while one runs or is about to."""
        self._over.set()
        self._closing = False
        self._closed: asyncio.Task[None] | None = None
        self._pump = asyncio.create_task(self._run(), name=f"session {self.id}")
        journal.listen(self._notices.saving_changed)

    def __repr__(self) -> str:
        return f"<Session {self.id} | {self.journal.log.fold.state.value} | durable up to {self.journal.watermark}>"

    # --- input --------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> TurnResult:
        """Queue a prompt, which says what to do, and wait for the end of the turn that answers it.

        Cancelling this call cancels that turn, and waits until it is settled.

        Raises:
            NotSavedError: the prompt could not be made durable; it will not run.
            ClosedError: the session is closed, or was closed before the prompt's turn came.
            Cancelled: the prompt was taken back with `drop`.
            CompositionError: the runtime has no model.
        """
        input_id = await self.queue(text)
        try:
            return await asyncio.shield(self._outcomes.of(input_id))
        except asyncio.CancelledError:
            await self._abandon([input_id])
            raise

    async def queue(self, text: str, *, input_id: str | None = None) -> str:
        """Queue a prompt for a turn of its own; returns its `input_id` when it is durable (law 9).

        Args:
            text: what to do.
            input_id: the prompt's own name. One that the log has already is the same prompt, asked for again because
                the answer was lost: it is not queued twice, and runs now if it has not run.

        Raises:
            NotSavedError, ClosedError, CompositionError: as `prompt`.
        """
        return await self._accept(text, "turn", input_id)

    async def steer(self, text: str, *, input_id: str | None = None) -> str:
        """Hand something to the next step of the running turn; without one it gets a turn of its own.

        Raises:
            NotSavedError, ClosedError, CompositionError: as `prompt`.
        """
        return await self._accept(text, "step", input_id)

    def outcome(self, input_id: str) -> asyncio.Future[TurnResult] | None:
        """How the turn of an input will have ended; None for one that nothing here runs. Yours to cancel."""
        return self._outcomes.shared(input_id)

    async def _accept(self, text: str, target: ev.Target, input_id: str | None) -> str:
        self._ready()
        if not text.strip():
            raise UsageError("the prompt is empty")
        if input_id is not None and input_id in self.journal.log.fold.inputs:
            return await self._accept_again(input_id)
        name = input_id or self.journal.identity.fresh("i")
        queued = self.journal.append(ev.InputQueued, input_id=name, target=target, content=(ev.Text(text),))
        self._accepting += 1
        self._over.clear()
        try:
            await self.journal.flush()
            if self._closing:
                raise ClosedError(f"session {self.id} was closed; the prompt is kept and did not run")
            self._outcomes.promise(queued.input_id)
            self._inbox.admit(queued)
        except (NotSavedError, asyncio.CancelledError):
            self._forget(queued.input_id, "it was not acknowledged")
            raise
        finally:
            self._accepting -= 1
            self._rest()
        return queued.input_id

    async def _accept_again(self, input_id: str) -> str:
        """The same prompt, asked for again (law 9: it is acknowledged when it is durable, and runs once)."""
        await self.journal.flush()
        item = self.journal.log.fold.pending.get(input_id)
        if item is not None and self.outcome(input_id) is None:
            self._outcomes.promise(input_id)
            self._inbox.admit(item)
        return input_id

    def _ready(self) -> Body:
        """What turns work with.

        Raises:
            ClosedError, CompositionError: there will be no turn.
        """
        if self._closing:
            raise ClosedError(f"session {self.id} is closed and takes no more input")
        if self._body is None:
            self._body = self._make_body(self.journal, self._notices.tell)
        return self._body

    def _forget(self, input_id: str, why: str) -> None:
        self._inbox.drop(input_id)
        if input_id in self.journal.log.fold.pending and not self.journal.closed:
            self.journal.append(ev.InputDropped, input_id=input_id, reason=why)

    async def drop(self, input_id: str) -> None:
        """Take a queued prompt back, durably.

        Raises:
            UsageError: it is not pending any more.
            NotSavedError: that it was dropped could not be made durable; it does not run here all the same.
        """
        if input_id not in self.journal.log.fold.pending:
            raise UsageError(f"input {input_id} is not pending")
        self._forget(input_id, "dropped by the user")
        self._outcomes.settle([input_id], Cancelled(f"input {input_id} was taken back"))
        await self.journal.flush()

    async def go_on(self) -> TurnResult | None:
        """Go on with the interrupted turn, and with prompts that are pending and that nothing runs.

        Returns:
            How the last of these turns ended, or None where there was nothing to go on with.

        Raises:
            UsageError: a turn is running.
            ClosedError, CompositionError: as `prompt`.
        """
        self._ready()
        if self._busy():
            raise UsageError(f"session {self.id} is busy with a turn already")
        fold = self.journal.log.fold
        promises: list[asyncio.Future[TurnResult]] = []
        if fold.turn is not None and fold.turn.ended == "interrupted":
            self._continue = new_promise()
            promises.append(self._continue)
        left = list(fold.pending.values())
        for item in left:
            promises.append(self._outcomes.promise(item.input_id))
            self._inbox.admit(item)
        self._inbox.woken.set()
        self._rest()
        try:
            results = [await asyncio.shield(promise) for promise in promises]
        except asyncio.CancelledError:
            await self._abandon([item.input_id for item in left], keep=True)
            raise
        return max(results, key=lambda result: result.turn, default=None)

    async def compact(self) -> Compacted:
        """Put a summary in the place of older steps, while no turn runs. `cancel` ends it.

        Raises:
            FencepostError: a turn runs, or it came to nothing; see `pauses.compact`.
        """
        body = self._ready()
        if self._busy():
            raise UsageError(f"session {self.id} is busy with a turn")
        with self._at_work():
            async with self._alone:
                return await compact(body, self._signal)

    # --- the pump -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._turns()
        except BaseException as error:
            # A bug, or the end of the process; outcomes are TurnResults. Nobody may wait for a turn that won't come.
            self._closing = True
            self._no_more_turns(error)
            raise

    async def _turns(self) -> None:
        while not self._closing:
            await self._inbox.woken.wait()
            self._inbox.woken.clear()
            while not self._closing and (self._inbox.waiting() or self._continue is not None):
                async with self._alone:
                    await self._one_turn()

    async def _one_turn(self) -> None:
        going_on, self._continue = self._continue, None
        turn = self.journal.log.fold.turn
        continues = turn.number if going_on is not None and turn is not None else None
        self._inbox.open_turn(continues)
        try:
            with self._at_work():
                body = self._ready()  # now: who closes the session meanwhile is still owed the end of this turn
                # What is not there when the turn is cancelled is waited for by the next one.
                fetching = self._toolbox.open(self.journal, self._files, self._notices.tell)
                await wait_unless_cancelled(fetching, self._signal)
                result = await TurnLoop(body, self._inbox, self._signal).run(continues)
                if result.reason == "aborted" and result.message == USER:
                    for name in self._inbox.unseen():
                        self._forget(name, "the turn was cancelled before the model saw it")
                self._outcomes.settle(self._inbox.claimed, result)
                settle(going_on, result)
        except BaseException as error:
            self._outcomes.settle(self._inbox.claimed, error)
            settle(going_on, error)
            raise

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        """Something runs that can be cancelled."""
        self._running = True
        self._over.clear()
        try:
            yield
        finally:
            self._running = False
            self._signal = CancelSignal()
            self._over.set()
            self._rest()

    def _busy(self) -> bool:
        """Whether a turn runs, or is about to."""
        return self._running or self._accepting > 0 or self._inbox.waiting() or self._continue is not None

    def _rest(self) -> None:
        """After each change of what there is to do."""
        if self._busy() and not self._closing:
            self._over.clear()
        else:
            self._over.set()
            if self._signal.cancelled:
                self._signal = CancelSignal()  # what it was meant for did not become a turn

    def _no_more_turns(self, why: BaseException) -> None:
        self._outcomes.settle_all(why)
        settle(self._continue, why)
        self._continue = None

    # --- cancel and close ---------------------------------------------------------------------------------------

    async def cancel(self, reason: str = USER) -> None:
        """Cancel the running turn, or the one that is about to start, and wait until it is over. Else: nothing."""
        self.cancel_soon(reason)
        await self._over.wait()

    def cancel_soon(self, reason: str = USER) -> None:
        """The same without waiting: for signal callbacks."""
        if self._busy():
            self._signal.set(reason)

    async def _abandon(self, inputs: list[str], *, keep: bool = False) -> None:
        """Whoever asked stopped waiting: end the turn that runs for them, and run no other.

        Args:
            inputs: what they asked for.
            keep: leave those that have not run pending.
        """
        why = Cancelled("whoever asked stopped waiting")
        if keep:
            settle(self._continue, why)
            self._continue = None
        for name in inputs:
            if self._inbox.holds(name):
                self._inbox.drop(name)
                self._outcomes.settle([name], why)
                if not keep:
                    self._forget(name, str(why))
        if self._running and self._body is not None and (keep or any(name in self._inbox.claimed for name in inputs)):
            self._signal.set(USER)
            with contextlib.suppress(TimeoutError):  # a store that does not answer: nobody need wait for that here
                await asyncio.wait_for(self._over.wait(), self._body.rules.bound)
        self._rest()

    async def close(self) -> None:
        """Close in order (rule 4). Idempotent; a second call waits for the first.

        Raises:
            NotSavedError: the last events could not be made durable. Ownership is given up all the same.
        """
        if self._closed is None:
            self._closed = asyncio.create_task(self._close(), name=f"close {self.id}")
        await asyncio.shield(self._closed)

    async def _close(self) -> None:
        if self._busy():
            self._signal.set(CLOSING)
        self._closing = True
        self._inbox.woken.set()
        await asyncio.wait({self._pump})
        async with self._alone:
            pass  # what is done in place of a turn has been cancelled, and ends
        self._no_more_turns(ClosedError(f"session {self.id} was closed; what was pending is kept"))
        self._over.set()
        try:
            await self._toolbox.close()
        finally:
            try:
                await self.journal.close()
            finally:
                self._watchers.end()
                self._on_closed(self)
        if not self._pump.cancelled() and (failure := self._pump.exception()) is not None:
            raise failure

    # --- watching -----------------------------------------------------------------------------------------------

    def events(self, start: int = 0, *, durable: bool = False) -> AsyncIterator[ev.Event | ev.UnknownEvent]:
        """The events from seq `start` on, then those that come, until the session is closed.

        Args:
            start: first seq.
            durable: give each event only when it is durable: what is shown then survives (law 9).
        """
        return self._watchers.events(start, durable=durable)

    def on_notice(self, listener: Callable[[Notice], None]) -> None:
        """Call `listener` with what people should see now and the log does not keep."""
        self._notices.listen(listener)

    @property
    def idle(self) -> bool:
        """Whether no turn is open."""
        return self.journal.log.fold.state is State.IDLE

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
