"""One session of one client, from its opening to its close.

A session that is loaded or resumed is only read: no byte changes, and no lock is held (law 7). It is taken, settled and
closed by repair when its first prompt comes; what repair then appends is told like all that happens, so the client sees
the verdicts and the model reads them. One that another process owns stays readable, and its prompts fail.

Rules:
    1. Prompts run in the order in which they came, each as a turn of its own.
    2. A prompt is answered behind everything that its turn had to tell, and behind its closing records.
    3. A client that cancels gets `cancelled` for all that it has asked for, however those turns ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from acp import schema

from fencepost.apps.acp import cards
from fencepost.apps.acp.buffers import Buffers
from fencepost.apps.acp.feed import Feed
from fencepost.apps.acp.peer import Peer
from fencepost.apps.acp.telling import Teller, Update
from fencepost.core import events as ev
from fencepost.errors import FencepostError, NotSavedError
from fencepost.plugins.approval import Approval, Ask, Mode, Question, Verdict
from fencepost.runtime.cancel import USER
from fencepost.runtime.config import LoadedConfig
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.plugin import Plugin
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.session import Session
from fencepost.runtime.toolbox import ToolSource
from fencepost.stores.base import Store

Compose = Callable[[Mode, Ask, Sequence[Plugin]], Runtime]
"""Makes the agent of a session's directory around its store. The store is shared, and is not the agent's to close."""


class Place(msgspec.Struct, frozen=True):
    """A directory, and what is in force there."""

    cwd: Path
    loaded: LoadedConfig
    store: Store
    mode: Mode


_REASONS: dict[ev.TurnEndReason, schema.StopReason] = {
    "completed": "end_turn",
    "aborted": "cancelled",
    "max_tokens": "max_tokens",
}


class TurnFailedError(FencepostError):
    """A turn that ended otherwise than a client can be told in a stop reason."""

    def __init__(self, result: TurnResult) -> None:
        super().__init__(result.message or f"the turn ended as {result.reason}")
        self.code = result.code or result.reason.upper()


class _Prompt(msgspec.Struct, eq=False):
    """One prompt that is not answered yet."""

    cancelled: bool = False
    turn: asyncio.Task[TurnResult] | None = None


class Bridge:
    """See the module.

    Args:
        session: its id.
        place: its working directory, and what is in force there.
        peer: the client.
        compose: makes the agent.
        sources: of tools that the client brings.
        start: the first seq that the client does not know.
    """

    def __init__(
        self,
        session: str,
        place: Place,
        peer: Peer,
        compose: Compose,
        sources: Sequence[ToolSource] = (),
        start: int = 0,
    ) -> None:
        self.id = session
        self.place = place
        self.mode: Mode = place.mode
        self.session: Session | None = None
        self.buffers = Buffers(self._show if peer.shows_files else None)
        self.feed: Feed | None = None
        self._peer = peer
        self._compose = compose
        self._sources = tuple(sources)
        self._start = start
        self._runtime: Runtime | None = None
        self._opening = asyncio.Lock()
        self._prompts: list[_Prompt] = []

    def __repr__(self) -> str:
        return f"<Bridge {self.id} | {'live' if self.session else 'stored'} | {len(self._prompts)} prompts>"

    # --- opening ------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Make the session, which is new. Nothing is stored before its first prompt.

        Raises:
            FencepostError: there is no model, the configuration is wrong, the directory is none.
        """
        runtime = self._agent()
        self._live(await runtime.create(self.id, self.place.cwd, sources=self._sources), runtime)

    async def _open(self) -> Session:
        """The live session; taken and repaired now, if it was only read until now.

        Raises:
            FencepostError: it cannot be taken, or there is no model.
        """
        async with self._opening:
            if self.session is None:
                runtime = self._agent()
                self._live(await runtime.resume(self.id, sources=self._sources), runtime)
            assert self.session is not None
            return self.session

    def _agent(self) -> Runtime:
        if self._runtime is None:
            self._runtime = self._compose(self.mode, self._ask, (self.buffers,))
        return self._runtime

    def _live(self, session: Session, runtime: Runtime) -> None:
        owner = session.journal.log.fold.owner
        ours = owner is not None and owner.seq >= self._start and owner.owner == runtime.identity.owner
        own = owner.seq if owner is not None and ours else session.journal.log.fold.next_seq
        calls, before = session.journal.log.fold.calls, self.buffers.before.get
        teller = Teller(calls, self.place.cwd, replay=False, own=own, before=before)
        self.session = session
        self.feed = Feed(session, self._start, teller, self._tell)

    async def _tell(self, update: Update) -> None:
        await self._peer.update(self.id, update)

    async def taken(self) -> bool:
        """Whether the session is live here, once nothing is about to change that."""
        async with self._opening:
            return self.session is not None

    # --- prompts ------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> schema.PromptResponse:
        """Run a prompt to the end of its turn.

        Raises:
            FencepostError: it was not saved, could not run, or its turn failed.
        """
        prompt = _Prompt()
        self._prompts.append(prompt)
        try:
            session = await self._open()
            if prompt.cancelled:
                return stopped(None, cancelled=True)
            prompt.turn = asyncio.create_task(session.prompt(text), name=f"prompt {self.id}")
            result = await self._result(prompt)
            if self.feed is not None:
                await self.feed.caught_up()
            return stopped(result, cancelled=prompt.cancelled)
        finally:
            self._prompts.remove(prompt)

    async def _result(self, prompt: _Prompt) -> TurnResult | None:
        """How its turn ended; None for one that was cancelled before there was a turn."""
        assert prompt.turn is not None
        try:
            return await prompt.turn
        except asyncio.CancelledError:
            if prompt.cancelled and prompt.turn.cancelled():
                return None
            raise
        except FencepostError:
            if prompt.cancelled:
                return None
            raise

    def cancel(self) -> None:
        """Cancel what runs, and take back what waits."""
        for prompt in self._prompts:
            prompt.cancelled = True
        for prompt in self._prompts[1:]:
            if prompt.turn is not None:
                prompt.turn.cancel()
        if self.session is not None:
            self.session.cancel_soon(USER)

    # --- what the agent asks ------------------------------------------------------------------------------------

    async def _ask(self, question: Question) -> Verdict:
        """Ask the user, once the client was told of the call. The question is durable already."""
        assert self.session is not None
        assert self.feed is not None
        fold = self.session.journal.log.fold
        await self.feed.reached(self.session.journal.watermark)
        before = self.buffers.before.get(question.call_id)
        card = cards.card(fold.calls[question.call_id], self.place.cwd, "pending", before)
        return await self._peer.ask(question, card)

    async def _show(self, place: Path) -> str | None:
        return await self._peer.show(self.id, place)

    def set_mode(self, mode: Mode) -> None:
        """Which calls pass without asking, from now on."""
        self.mode = mode
        if self._runtime is not None:
            for plugin in self._runtime.composition.plugins:
                if isinstance(plugin, Approval):
                    plugin.mode = mode

    # --- the end ------------------------------------------------------------------------------------------------

    async def close(self) -> list[Exception]:
        """Close in order: no more input, the turn's real closers, the last flush, policies and model. The store stays.

        Returns:
            What failed on the way.
        """
        for prompt in self._prompts:
            prompt.cancelled = True
        async with self._opening:
            session, runtime = self.session, self._runtime
        failures: list[Exception] = []
        if session is not None:
            failures += await _quietly(session.close)
        if self.feed is not None:
            await self.feed.ended()
        if runtime is not None:
            failures += await runtime.composition.close()
            if runtime.model is not None:
                failures += await _quietly(runtime.model.close)
        return failures


async def _quietly(close: Callable[[], Any]) -> list[Exception]:
    try:
        await close()
    except Exception as error:  # noqa: BLE001 - what one part fails at must not keep the next one open
        return [error]
    return []


def stopped(result: TurnResult | None, *, cancelled: bool) -> schema.PromptResponse:
    """The answer to a prompt: the protocol's word for how its turn ended, and the log's beside it.

    A client that cancelled gets `cancelled` also where the last records could not be saved: `saved` then says so.

    Raises:
        NotSavedError: it ended, and its last records are not durable.
        TurnFailedError: the protocol has no word for it.
    """
    if result is None:
        return schema.PromptResponse(stop_reason="cancelled")
    about = {"fencepost": {"turn": result.turn, "reason": result.reason, "saved": result.saved}}
    if not result.saved and not cancelled:
        raise NotSavedError("the turn ended, and its last records could not be saved")
    reason = "cancelled" if cancelled else _REASONS.get(result.reason)
    if reason is None:
        raise TurnFailedError(result)
    return schema.PromptResponse(stop_reason=reason, field_meta=about)
