"""The methods of the API over a runtime. Knows sessions and turns; knows no connection, no framing, no HTTP.

Rules:
    1. Nothing here is state that the log does not have, but which sessions are live and what is asked at present.
    2. A method that is asked twice, because an answer was lost on the way, does its work once: a prompt is known by its
       `input_id`, a session that is live here is not resumed again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from fencepost import __version__
from fencepost.apps.serve.feed import Feed
from fencepost.apps.serve.outcomes import outcome_of
from fencepost.apps.serve.questions import OpenQuestions
from fencepost.client import frames, wire
from fencepost.core import events as ev
from fencepost.core.codec import encode, expand, last_seq
from fencepost.errors import SessionExistsError, UsageError
from fencepost.journal.inspect import Reading, fold_stored, pending_inputs
from fencepost.plugins.approval import Question
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.session import Session
from fencepost.runtime.subjects import Compacted


class Api:
    """See the module.

    Attributes:
        questions: what the approval policy asks; hand it to the composition as `ask`.
        runtime: set once, after that composition was made.
    """

    def __init__(self) -> None:
        self.runtime: Runtime
        self.questions = OpenQuestions(self._asked)
        self._live: dict[str, Session] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._feeds: set[Feed] = set()
        self._methods: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "initialize": self._initialize,
            "session/list": self._list,
            "session/create": self._create,
            "session/open": self._open,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/close": self._close,
            "session/inspect": self._inspect,
            "session/export": self._export,
            "prompt/queue": self._queue,
            "prompt/wait": self._wait,
            "prompt/edit": self._edit,
            "prompt/drop": self._drop,
            "turn/continue": self._continue,
            "turn/cancel": self._cancel,
            "session/compact": self._compact,
            "approval/list": self._questions,
            "approval/decide": self._decide,
            "events/read": self._read,
        }

    async def call(self, params: wire.Params) -> Any:
        """What a method gives.

        Raises:
            UsageError: it belongs to a kind of connection that this is not.
            FencepostError: what the method raises.
        """
        method = self._methods.get(params.method)
        if method is None:
            raise UsageError(f"{params.method} needs a line connection", next_act="Over HTTP, GET /events")
        return await method(params)

    def follow(self, session: str, start: int) -> Feed:
        """A feed of a live session.

        Raises:
            UsageError: it is not live here.
        """
        feed = Feed(self._session(session), start, self._feeds.discard)
        self._feeds.add(feed)
        for asked in self.questions.of(session):
            feed.add(frames.QuestionSent(session, asked))
        return feed

    def cancel_soon(self, reason: str) -> None:
        """Cancel whatever runs."""
        for session in self._live.values():
            session.cancel_soon(reason)

    async def close(self) -> None:
        """Close every session in order, then the policies, the model and the store.

        Raises:
            NotSavedError, ExceptionGroup: see `Runtime.close`.
        """
        await self.runtime.close()

    # --- sessions -----------------------------------------------------------------------------------------------

    async def _initialize(self, params: wire.Initialize) -> wire.ServerInfo:
        if params.protocol != wire.PROTOCOL:
            act = f"Use a client of that version; this is fencepost {__version__}"
            raise UsageError(f"protocol {params.protocol} was asked for, {wire.PROTOCOL} is spoken here", next_act=act)
        model = self.runtime.model
        name = f"{model.provider}:{model.model}" if model is not None else None
        return wire.ServerInfo(wire.PROTOCOL, __version__, self.runtime.store.url, name)

    async def _list(self, params: wire.ListSessions) -> wire.Sessions:
        return wire.Sessions(await self.runtime.sessions(params.limit))

    async def _create(self, params: wire.CreateSession) -> wire.Opened:
        async with self._alone(params.session or ""):
            if params.session in self._live:
                raise SessionExistsError(f"session {params.session} is there already")
            return self._took(await self.runtime.create(params.session, params.cwd))

    async def _open(self, params: wire.OpenSession) -> wire.Opened:
        if params.session in self._live:
            return _opened(self._live[params.session], joined=True)
        reading = await self._reading(params.session)
        header = reading.stored.header
        cwd = header.cwd if header is not None else ""
        return wire.Opened(
            params.session, False, cwd, _next_seq(reading), None, wire.Recovered(), pending_inputs(reading.fold)
        )

    async def _resume(self, params: wire.ResumeSession) -> wire.Opened:
        async with self._alone(params.session):
            if params.session in self._live:
                return _opened(self._live[params.session], joined=True)
            session = await self.runtime.resume(
                params.session, takeover=params.takeover, running=params.running, rerun=frozenset(params.rerun)
            )
            return self._took(session)

    def _alone(self, session: str) -> asyncio.Lock:
        """One request at a time opens a session of a given name."""
        return self._opening.setdefault(session, asyncio.Lock())

    def _took(self, session: Session) -> wire.Opened:
        self._live[session.id] = session
        session.on_notice(lambda notice: self._to_feeds(session.id, lambda feed: feed.notice(notice)))
        return _opened(session)

    async def _fork(self, params: wire.ForkSession) -> Any:
        return await self.runtime.fork(params.session, params.to, at=params.at, turn=params.turn)

    async def _close(self, params: wire.CloseSession) -> wire.Done:
        session = self._session(params.session)
        try:
            await session.close()
        finally:
            self._live.pop(params.session, None)
        return wire.Done()

    async def _inspect(self, params: wire.InspectSession) -> Any:
        return await self.runtime.inspect(params.session, settle=params.settle)

    async def _export(self, params: wire.ExportSession) -> wire.Exported:
        reading = await self._reading(params.session)
        lines = [encode(reading.stored.header)] if reading.stored.header is not None else []
        lines += [encode(event) for entry in reading.stored.entries for event in expand(entry)]
        return wire.Exported([msgspec.Raw(line) for line in lines])

    async def _reading(self, session: str) -> Reading:
        return fold_stored(await self.runtime.store.read(session), self.runtime.vocabulary)

    def _session(self, session: str) -> Session:
        found = self._live.get(session)
        if found is None:
            raise UsageError(f"session {session} is not live here", next_act="session/resume takes it")
        return found

    # --- input and turns ----------------------------------------------------------------------------------------

    async def _queue(self, params: wire.QueuePrompt) -> wire.Queued:
        session = self._session(params.session)
        queue = session.queue if params.target == "turn" else session.steer
        return wire.Queued(await queue(params.text, input_id=params.input_id))

    async def _wait(self, params: wire.WaitPrompt) -> TurnResult:
        session = self._session(params.session)
        promised = session.outcome(params.input_id)
        return await promised if promised is not None else outcome_of(session.journal.log, params.input_id)

    async def _edit(self, params: wire.EditPrompt) -> wire.Queued:
        session = self._session(params.session)
        await session.drop(params.input_id)
        return wire.Queued(await session.queue(params.text))

    async def _drop(self, params: wire.DropPrompt) -> wire.Done:
        await self._session(params.session).drop(params.input_id)
        return wire.Done()

    async def _continue(self, params: wire.ContinueTurn) -> TurnResult | None:
        return await self._session(params.session).go_on()

    async def _compact(self, params: wire.CompactSession) -> Compacted:
        return await self._session(params.session).compact()

    async def _cancel(self, params: wire.CancelTurn) -> wire.Done:
        await self._session(params.session).cancel(params.reason)
        return wire.Done()

    # --- approvals and events -----------------------------------------------------------------------------------

    async def _questions(self, params: wire.ListQuestions) -> wire.Questions:
        return wire.Questions(self.questions.of(params.session))

    async def _decide(self, params: wire.Decide) -> wire.Done:
        self.questions.answer(params)
        return wire.Done()

    def _asked(self, asked: Question) -> None:
        self._to_feeds(asked.session, lambda feed: feed.add(frames.QuestionSent(asked.session, asked)))

    def _to_feeds(self, session: str, tell: Callable[[Feed], None]) -> None:
        for feed in self._feeds:
            if feed.session == session:
                tell(feed)

    async def _read(self, params: wire.ReadEvents) -> wire.Events:
        limit = max(1, params.limit)
        session = self._live.get(params.session)
        if session is not None:
            journal = session.journal
            found = journal.log.events(params.start)
            last = journal.watermark
        else:
            reading = await self._reading(params.session)
            last = _next_seq(reading) - 1
            found = (event for entry in reading.stored.entries for event in expand(entry) if event.seq >= params.start)
        taken: list[ev.Event | ev.UnknownEvent] = []
        for event in found:
            if event.seq > last or len(taken) == limit:
                break
            taken.append(event)
        following = taken[-1].seq + 1 if taken else params.start
        return wire.Events([msgspec.Raw(encode(event)) for event in taken], following)


def _opened(session: Session, *, joined: bool = False) -> wire.Opened:
    fold, header = session.journal.log.fold, session.journal.log.header
    return wire.Opened(
        session.id,
        True,
        header.cwd,
        session.journal.watermark + 1,
        session.guarantees,
        wire.recovered(session.recovery),
        pending_inputs(fold),
        joined,
    )


def _next_seq(reading: Reading) -> int:
    entries = reading.stored.entries
    return last_seq(entries[-1]) + 1 if entries else 0
