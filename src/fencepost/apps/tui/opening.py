"""Which session is looked at: opened one at a time, shown, and asked about first where a crash left something to say.

Rules:
    1. Nothing runs because a session was opened.
    2. There is always one: what cannot be opened leaves the one before or, if there was none, a new one. What went
       wrong is said below it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from fencepost.apps.cli import exits
from fencepost.apps.cli.chosen import NO_MODEL
from fencepost.apps.cli.live import sentence
from fencepost.apps.cli.stop import Cause, Stop
from fencepost.apps.tui import recovery
from fencepost.errors import FencepostError, UsageError
from fencepost.runtime.cancel import CLOSING
from fencepost.runtime.session import Session
from fencepost.runtime.settle import RUNNING, Running

if TYPE_CHECKING:
    from fencepost.apps.tui.app import Chat


class Opening:
    """See the module.

    Args:
        chat: the application.
        stop: why it ends, once it does.

    Attributes:
        shown: the session that is looked at.
    """

    def __init__(self, chat: Chat, stop: Stop) -> None:
        self._chat = chat
        self._stop = stop
        self._one = asyncio.Lock()
        self._resuming: asyncio.Task[Session] | None = None
        self.shown: Session | None = None

    def call_off(self) -> None:
        """Take up no session: the one that is being opened stays as it was."""
        if self._resuming is not None:
            self._resuming.cancel()

    async def called_off(self) -> None:
        """The same, and wait until it is so."""
        self.call_off()
        if self._resuming is not None:
            await asyncio.wait({self._resuming})

    async def begin(self, first: str | None) -> None:
        """Open the first session; a new one if none is named.

        Raises:
            FencepostError: it cannot be.
        """
        if first is None:
            await self._chat.agent.new()
        else:
            await self.take_up(first)

    async def take_up(self, text: str) -> None:
        """Open a stored session and show it, after asking what is to become of calls that still run.

        Raises:
            FencepostError: it cannot be; the one before it is as it was.
        """
        if self.shown is not None and text == self.shown.id:
            return
        name, alive = await self._chat.agent.still_running(text)
        running: Running = "leave"
        if alive:
            answer = await self._chat.push_screen_wait(recovery.running_dialog(name, alive))
            if answer is None:
                return
            running = next(one for one in RUNNING if one == answer)
        self._resuming = asyncio.create_task(
            self._chat.agent.resume(name, self._chat.hear, running), name=f"resume {name}"
        )
        try:
            await asyncio.wait({self._resuming})
        finally:
            self._resuming.cancel()
        if self._resuming.cancelled():
            raise UsageError(f"session {name} was not taken up; it is as it was")
        self._resuming.result()
        await self.show_current()

    # --- one at a time ------------------------------------------------------------------------------------------

    def in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do one thing at a time that may replace the session; say what went wrong."""
        self._chat.run_worker(self._guarded(work), name="act", group="acts")

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        async with self._one:
            failure: FencepostError | OSError | None = None
            try:
                await work
            except (FencepostError, OSError) as error:
                failure = error
            if self._stop.cause is None:
                await self.show_current()
            if failure is not None:
                self._chat.say(sentence(failure), "bad")  # below the session that there is now

    async def show_current(self) -> None:
        """Show the session that the agent has now; one that could not be opened leaves the one before, or a new one."""
        if not self._chat.agent.opened:
            try:
                await self._chat.agent.new()
            except FencepostError as error:
                self._chat.failures.append(error)
                self._stop.request(Cause(exits.status_of(error), CLOSING))
                return
        session = self._chat.agent.session
        if session is not self.shown:
            await self._show(session)
            if recovery.to_ask(session):
                await self._ask_how_to_go_on(session)

    async def _show(self, session: Session) -> None:
        self.shown = session
        self._stop.attach(session)
        session.on_notice(self._chat.hear)
        log = session.journal.log
        log.subscribe(lambda _event, _size: self._chat.mark())
        session.journal.on_watermark(lambda _seq: self._chat.mark())
        start = await self._chat.transcript.show(session)
        self._greet(session)
        self._chat.run_worker(
            self._chat.transcript.follow(session, start), name="follow", group="follow", exclusive=True
        )
        self._chat.mark()

    def _greet(self, session: Session) -> None:
        if session.journal.log.fold.next_seq == 0:
            self._chat.say(f"session {session.id} in {session.journal.log.header.cwd}")
        if not session.guarantees.durable:
            self._chat.say(f"NOT SAVED: {session.guarantees.store} store, nothing survives this process", "bad")
        missing = {"step", "request", "tool"}.difference(session.guarantees.gates)
        if missing:
            self._chat.say(
                f"no {', '.join(sorted(missing))} gate: after a crash, calls without a result are unknown", "warning"
            )
        if self._chat.model is None:
            self._chat.say(f"{NO_MODEL}\nor choose one here: /model openai:NAME", "warning")

    async def _ask_how_to_go_on(self, session: Session) -> None:
        answer = await self._chat.push_screen_wait(recovery.recovery_dialog(session))
        if answer == recovery.LEAVE:
            self._chat.action_leave()
        elif answer == recovery.DROP:
            for item in list(session.journal.log.fold.pending.values()):
                await session.drop(item.input_id)
        elif answer == recovery.GO_ON:
            self._chat.run_worker(self._go_on(session), name="go on")

    async def _go_on(self, session: Session) -> None:
        try:
            await session.go_on()
        except FencepostError as error:
            if self._stop.cause is None:
                self._chat.say(sentence(error), "bad")
