"""A live session of another process, with the methods of one in this process. See `remote`."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

import msgspec

from fencepost.client import frames, wire
from fencepost.client.links import Link
from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.errors import FencepostError, ServerLostError, SessionNotFoundError, UsageError
from fencepost.runtime.guarantees import Guarantees
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.subjects import Compacted, Notice

T = TypeVar("T")

READ = 500
"""Events that are read at a time."""


class Asker(Protocol):
    """What a session asks of its client."""

    async def request(self, params: wire.Params, shape: type[T]) -> T:
        """See `Client.request`."""
        ...

    async def linked(self) -> Link:
        """The link, made anew where it was lost."""
        ...

    def gone(self, session: str) -> None:
        """A session was closed."""
        ...


class RemoteSession:
    """A live session of another process. Made by `Client.create` and `Client.resume`.

    Attributes:
        id: of the session.
        guarantees: what is in force.
        recovery: what the last resuming found and did; after a lost server that is the news.
        recoveries: how often the server was lost and the session resumed.
    """

    def __init__(self, client: Asker, opened: wire.Opened) -> None:
        self.id = opened.session
        self.guarantees: Guarantees | None = opened.guarantees
        self.recovery = opened.recovery
        self.recoveries = 0
        self._cwd = opened.cwd
        self._client = client
        self._listeners: list[Callable[[Notice], None]] = []
        self._moved = asyncio.Event()
        self._over = False
        self._rejoining: asyncio.Task[object] | None = None

    def __repr__(self) -> str:
        return f"<RemoteSession {self.id} | {self._client!r}>"

    # --- input --------------------------------------------------------------------------------------------------

    async def prompt(self, text: str) -> TurnResult:
        """Queue a prompt and wait for the end of the turn that answers it; see `Session.prompt`.

        If the server is lost meanwhile the result's reason is `interrupted`, and `recovery` says what is unknown.

        Raises:
            ClosedError: the prompt is kept and has not run, because the server was lost before its turn.
        """
        name = await self.queue(text)
        before = self.recoveries
        try:
            result = await self._ask(wire.WaitPrompt(session=self.id, input_id=name), TurnResult)
        except asyncio.CancelledError:
            with contextlib.suppress(FencepostError):  # lost or over: then nothing runs any more
                await asyncio.shield(self.cancel())
            raise
        if result.reason == "interrupted" and self.recoveries > before:
            return msgspec.structs.replace(result, code=ServerLostError.code, message=_unknown(self.recovery))
        return result

    async def queue(self, text: str, *, input_id: str | None = None) -> str:
        """Queue a prompt; returns its `input_id` when it is durable (law 9). See `Session.queue`."""
        return await self._queue(text, "turn", input_id)

    async def steer(self, text: str, *, input_id: str | None = None) -> str:
        """Hand something to the running turn; see `Session.steer`."""
        return await self._queue(text, "step", input_id)

    async def _queue(self, text: str, target: ev.Target, input_id: str | None) -> str:
        name = input_id or f"i_{secrets.token_hex(8)}"
        asked = wire.QueuePrompt(session=self.id, text=text, target=target, input_id=name)
        return (await self._ask(asked, wire.Queued)).input_id

    async def edit(self, input_id: str, text: str) -> str:
        """Take a prompt back that has not run, and queue another one; returns its id."""
        return (await self._ask(wire.EditPrompt(session=self.id, input_id=input_id, text=text), wire.Queued)).input_id

    async def drop(self, input_id: str) -> None:
        """Take a prompt back; see `Session.drop`."""
        await self._ask(wire.DropPrompt(session=self.id, input_id=input_id), wire.Done)

    async def go_on(self) -> TurnResult | None:
        """Go on with what was interrupted; see `Session.go_on`.

        Raises:
            ServerLostError: the server was lost meanwhile; `recovery` says what is unknown.
        """
        return await self._ask(wire.ContinueTurn(session=self.id), TurnResult | None)  # type: ignore[arg-type]

    async def compact(self) -> Compacted:
        """Put a summary in the place of older steps; see `Session.compact`."""
        return await self._ask(wire.CompactSession(session=self.id), Compacted)

    async def cancel(self, reason: str = "user") -> None:
        """Cancel the running turn, and wait until it is over."""
        await self._ask(wire.CancelTurn(session=self.id, reason=reason), wire.Done)

    async def close(self) -> None:
        """Close it in order, on the server."""
        if not self._over:
            await self._ask(wire.CloseSession(session=self.id), wire.Done)
            self.over()

    async def _ask(self, params: wire.Params, shape: type[T]) -> T:
        return await self._client.request(params, shape)

    # --- watching -----------------------------------------------------------------------------------------------

    async def events(self, start: int = 0, *, durable: bool = True) -> AsyncIterator[ev.Event | ev.UnknownEvent]:
        """The durable events from seq `start` on, then those that come, until the session is closed.

        Args:
            start: first seq.
            durable: has to be True: what is not durable does not leave the server's process.
        """
        if not durable:
            raise UsageError("events of another process are given when they are durable", next_act="Leave durable= out")
        while True:
            self._moved.clear()
            over = self._over
            batch = await self._ask(wire.ReadEvents(session=self.id, start=start, limit=READ), wire.Events)
            start = batch.next
            for raw in batch.events:
                entry = CORE.decode(bytes(raw))
                assert not isinstance(entry, ev.ChunkRun | ev.Header), "a server sends events one by one"
                yield entry
            if batch.events:
                continue
            if over:
                return
            await self._moved.wait()

    def on_notice(self, listener: Callable[[Notice], None]) -> None:
        """Call `listener` with what people should see now and the log does not keep."""
        self._listeners.append(listener)

    # --- what the client tells it -------------------------------------------------------------------------------

    def heard(self, sent: frames.Sent) -> None:
        """Something was sent about this session."""
        if isinstance(sent, frames.NoticeSent):
            notice = msgspec.convert({"kind": sent.notice, "text": sent.text, "call_id": sent.call_id}, Notice)
            for listener in self._listeners:
                listener(notice)
        elif isinstance(sent, frames.SessionEnded):
            self.over()
        self._moved.set()

    def disturbed(self) -> None:
        """The link is lost. Somebody may only read here: then nobody else would make a new one."""
        if self._rejoining is None or self._rejoining.done():
            self._rejoining = asyncio.create_task(self._again(), name=f"rejoin {self.id}")

    async def _again(self) -> None:
        with contextlib.suppress(FencepostError):  # whoever asks next gets it
            await self._client.linked()
        self._moved.set()

    async def rejoin(self, link: Link) -> None:
        """Over a new link: resume it where it is not live, and hear of it again."""
        opened = await self._taken(link)
        if not opened.joined:
            self.recovery = opened.recovery
            self.recoveries += 1
        await link.follow(self.id, opened.next_seq)
        self._moved.set()

    async def _taken(self, link: Link) -> wire.Opened:
        try:
            answer = await link.ask(wire.ResumeSession(session=self.id))
        except SessionNotFoundError:  # nothing of it was stored before its first prompt, so it begins again
            answer = await link.ask(wire.CreateSession(session=self.id, cwd=self._cwd))
        return msgspec.json.decode(answer, type=wire.Opened)

    def over(self) -> None:
        """It is closed, or its client is."""
        self._over = True
        self._client.gone(self.id)
        self._moved.set()


def _unknown(recovery: wire.Recovered) -> str:
    """What to say about a turn that a lost server was at."""
    calls = [f"{call.name} ({call.call_id})" for call in recovery.calls if call.verdict == "outcome_unknown"]
    what = f"the outcome of {', '.join(calls)} is unknown" if calls else "no call's outcome is unknown"
    return f"the server was lost in the middle of the turn; {what}"
