"""`fencepost.connect`: the runtime of another process, with the methods of one in this process.

Rules:
    1. A server that is lost, by its own end or by the connection's, is started or reached again, and the sessions that
       were live through it are resumed there; nothing runs because of that.
    2. Reading goes on behind the last event that arrived: nothing is lost, nothing comes twice (law 9).
    3. What may be asked twice is asked again. A prompt carries its own id, so it is queued once and runs once.
    4. A turn that a lost server was at is `interrupted`; `RemoteSession.recovery` says which calls are unknown.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Self, TypeAlias, TypeVar

import msgspec

from fencepost.client import frames, wire
from fencepost.client.links import HttpLink, Link, LinkLost, ProcessLink, server_environment
from fencepost.client.remote_session import RemoteSession as RemoteSession
from fencepost.core import events as ev
from fencepost.errors import ClosedError, FencepostError, ServerLostError, UsageError
from fencepost.journal.fork import Forked
from fencepost.journal.inspect import Inspection, SessionRow
from fencepost.plugins.approval import Ask, Mode, Question
from fencepost.runtime.settle import Running

T = TypeVar("T")
TRIES = 8
"""How often a lost server is tried to be reached again. One that never answered is not."""
PAUSE, LONGEST_PAUSE = 0.1, 3.0
"""Seconds before the second try; twice as many before each later one, up to the longest."""
_ONCE = (wire.ContinueTurn, wire.EditPrompt, wire.CompactSession)
"""What is not asked again: nobody knows whether it was done."""


def connect(
    url: str,
    *,
    token: str | None = None,
    store: str | None = None,
    model: str | None = None,
    approve: Mode = "all",
    ask: Ask | None = None,
    cwd: Path | str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Client:
    """A client, to be used as an async context manager.

    Args:
        url: `stdio:` starts a server of our own; `http://HOST:PORT` uses one that runs (`fencepost serve --http`).
        token: the bearer token of the latter; that of FENCEPOST_TOKEN if left out.
        store: a server of our own: its store's URL; that of its configuration if left out.
        model: likewise its model.
        approve: likewise which calls pass without asking; here all of them, for they are the program's own.
        ask: asks a person, for `approve="ask"`.
        cwd: where the server is started: its `fencepost.toml` counts.
        environ: variables for it beside those of this process.

    Raises:
        UsageError: the URL is none of these, or an argument does not go with it.
    """
    scheme, _, rest = url.partition(":")
    if scheme == "stdio" and not rest:
        command = [sys.executable, "-m", "fencepost", "serve", "--stdio", "--approve", approve]
        command += [word for flag, value in (("--store", store), ("--model", model)) if value for word in (flag, value)]
        return Client(_starting(command, environ or {}, cwd), ask)
    if scheme in {"http", "https"}:
        if store is not None or model is not None:
            raise UsageError(f"{url} has its store and model already", next_act="Leave store= and model= out")
        given = token or os.environ.get("FENCEPOST_TOKEN")
        if not given:
            raise UsageError(f"{url} wants a bearer token", next_act="Give token=, or set FENCEPOST_TOKEN")
        return Client(_reaching(url, given), ask)
    raise UsageError(f"{url!r} is no server", next_act="Write stdio: to start one, or http://HOST:PORT")


Opener: TypeAlias = Callable[[Callable[[frames.Sent], None], Callable[[], None]], Awaitable[Link]]


def _starting(command: list[str], environ: Mapping[str, str], cwd: Path | str | None) -> Opener:
    async def start(heard: Callable[[frames.Sent], None], lost: Callable[[], None]) -> Link:
        where = None if cwd is None else str(cwd)
        return await ProcessLink.start(command, server_environment(environ), where, heard, lost)

    return start


def _reaching(url: str, token: str) -> Opener:
    async def reach(heard: Callable[[frames.Sent], None], lost: Callable[[], None]) -> Link:
        return HttpLink(url, token, heard, lost)

    return reach


class Client:
    """See the module. Made by `connect`.

    Attributes:
        info: who answers; None before the first request.
    """

    def __init__(self, opener: Opener, ask: Ask | None) -> None:
        self.info: wire.ServerInfo | None = None
        self._opener = opener
        self._person = ask
        self._link: Link | None = None
        self._mending = asyncio.Lock()
        self._live: dict[str, RemoteSession] = {}
        self._ours: set[str] = set()
        self._asking: set[asyncio.Task[None]] = set()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Client of {self.info.store if self.info else 'a server'} | {len(self._live)} live>"

    # --- as a runtime has it ------------------------------------------------------------------------------------

    async def create(self, session: str | None = None, cwd: Path | str | None = None) -> RemoteSession:
        """A new session; see `Runtime.create`."""
        where = str(Path(cwd or Path.cwd()).absolute())
        opened = await self.request(wire.CreateSession(session=session, cwd=where), wire.Opened)
        return await self._took(opened)

    async def resume(
        self,
        session: str,
        *,
        takeover: bool = False,
        running: Running = "leave",
        rerun: frozenset[ev.Effect] = frozenset(),
    ) -> RemoteSession:
        """Take a stored session; see `Runtime.resume`. One that is live on the server is joined."""
        asked = wire.ResumeSession(session=session, takeover=takeover, running=running, rerun=tuple(sorted(rerun)))
        return await self._took(await self.request(asked, wire.Opened))

    async def fork(
        self, parent: str, to: str | None = None, *, at: int | None = None, turn: int | None = None
    ) -> Forked:
        """Make a new session out of the beginning of another one; see `Runtime.fork`."""
        return await self.request(wire.ForkSession(session=parent, to=to, at=at, turn=turn), Forked)

    async def sessions(self, limit: int | None = None) -> list[SessionRow]:
        """The sessions of the store; see `Runtime.sessions`."""
        return (await self.request(wire.ListSessions(limit=limit), wire.Sessions)).sessions

    async def inspect(self, session: str, *, settle: bool = False) -> Inspection:
        """Look at one session; see `Runtime.inspect`."""
        return await self.request(wire.InspectSession(session=session, settle=settle), Inspection)

    async def close(self) -> None:
        """Close in order: a server of our own with all its sessions, else the sessions that were opened from here."""
        if self._closed:
            return
        link = self._link
        if isinstance(link, HttpLink):
            for session in [live for name, live in self._live.items() if name in self._ours]:
                with contextlib.suppress(ServerLostError):  # gone with its sessions: nothing is left to close
                    await session.close()
        self._closed = True
        for asking in list(self._asking):
            asking.cancel()
        if link is not None:
            await link.close()
        for session in list(self._live.values()):
            session.over()

    async def __aenter__(self) -> Self:
        try:
            await self.linked()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # --- the link -----------------------------------------------------------------------------------------------

    async def request(self, params: wire.Params, shape: type[T]) -> T:
        """The result of a method, asked for again over a new link where the old one was lost.

        Raises:
            ServerLostError: the server cannot be reached, or nobody knows whether it did this.
            FencepostError: what the method raised.
        """
        for _ in range(TRIES):
            link = await self.linked()
            try:
                return msgspec.json.decode(await link.ask(params), type=shape)
            except LinkLost as error:
                self._forget(link)  # whoever hears of it first: its reader may not have met the end yet
                if isinstance(params, _ONCE):
                    await self.linked()
                    raise ServerLostError(f"{params.method}: {error}") from None
        raise ServerLostError(f"{params.method}: the server was lost {TRIES} times over this")

    async def linked(self) -> Link:
        """The link; a new one, with the sessions resumed over it, where there is none."""
        if self._closed:
            raise ClosedError("the client is closed")
        if self._link is not None:
            return self._link
        async with self._mending:
            if self._link is None:
                self._link = await self._mended()
            return self._link

    async def _mended(self) -> Link:
        pause, last = PAUSE, "no reason given"
        for attempt in range(TRIES if self.info is not None else 1):
            if attempt:
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            box: list[Link] = []
            link = await self._opener(self._heard, lambda box=box: self._lost(box))  # type: ignore[misc]
            box.append(link)
            try:
                hello = wire.Initialize(protocol=wire.PROTOCOL, client="fencepost.client")
                self.info = msgspec.json.decode(await link.ask(hello), type=wire.ServerInfo)
                for session in list(self._live.values()):
                    await session.rejoin(link)
                return link
            except LinkLost as error:
                last = str(error)
                await link.close()
            except BaseException:
                await link.close()
                raise
        raise ServerLostError(f"the server cannot be reached: {last}")

    def _lost(self, box: list[Link]) -> None:
        """This link is lost; whoever asks next makes another one, and so do the sessions that are live."""
        if box:
            self._forget(box[0])

    def _forget(self, link: Link) -> None:
        if self._link is link:
            self._link = None
            for session in list(self._live.values()):
                session.disturbed()

    async def _took(self, opened: wire.Opened) -> RemoteSession:
        session = self._live.get(opened.session)
        if session is None:
            session = self._live[opened.session] = RemoteSession(self, opened)
            if not opened.joined:
                self._ours.add(opened.session)
        try:
            await (await self.linked()).follow(opened.session, opened.next_seq)
        except LinkLost:
            await self.linked()  # which follows what is live
        return session

    def gone(self, session: str) -> None:
        """A session was closed."""
        self._live.pop(session, None)

    def _heard(self, sent: frames.Sent) -> None:
        session = self._live.get(sent.session)
        if isinstance(sent, frames.QuestionSent):
            if self._person is not None:
                task = asyncio.create_task(self._put(sent.question, self._person), name="question")
                self._asking.add(task)
                task.add_done_callback(self._asking.discard)
        elif session is not None:
            session.heard(sent)

    async def _put(self, asked: Question, ask: Ask) -> None:
        said = await ask(asked)
        decide = wire.Decide(
            session=asked.session,
            call_id=asked.call_id,
            allowed=said.allowed,
            reason=said.reason,
            remember=said.remember,
            scope=said.scope,
            pattern=said.pattern,
        )
        with contextlib.suppress(FencepostError):  # void meanwhile: its turn is over
            await self.request(decide, wire.Done)
