"""A connection to a server: send a request and get its answer, and hear what is sent unasked. It lives once.

    ProcessLink   a server that is started here, over its standard input and output
    HttpLink      one that runs already

A link that is lost fails everything that waits on it with `LinkLost` and is never mended: `remote` makes another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from fencepost import errors
from fencepost.client import frames, wire
from fencepost.client.framing import Lines, TooLong

if TYPE_CHECKING:
    import httpx2

ENDING = 10.0
"""Seconds that a server gets to close in order, before it is killed."""
PIECE = 1 << 20


class LinkLost(ConnectionError):  # noqa: N818 - it says what happened to a link; users get a ServerLostError
    """Nothing comes over this link any more."""


class Link(Protocol):
    """See the module. `heard` is called with what is sent unasked, `lost` once when the link is lost."""

    async def ask(self, params: wire.Params) -> msgspec.Raw:
        """The result of a method.

        Raises:
            LinkLost: no answer will come; the request may or may not have been worked on.
            FencepostError: what the method raised.
        """
        ...

    async def follow(self, session: str, start: int) -> None:
        """Hear of a live session's events from a seq on, and of its notices and questions from now on."""
        ...

    async def close(self) -> None:
        """End it: a server that was started here closes in order, and is waited for."""
        ...


def _tree(kind: type[errors.FencepostError]) -> list[type[errors.FencepostError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _tree(child))]


_BY_CODE = {kind.code: kind for kind in reversed(_tree(errors.FencepostError))}


def error_of(error: frames.Error) -> errors.FencepostError:
    """An error as the same program would have met it in its own process."""
    data = error.data or frames.ErrorData("PROTOCOL")
    kind = _BY_CODE.get(data.code, errors.FencepostError)
    made = kind(error.message, next_act=data.next_act)
    made.code = data.code
    return made


class _Answers:
    """Requests that wait for their answers."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[frames.Id, asyncio.Future[msgspec.Raw]] = {}
        self.lost: LinkLost | None = None

    def request(self, params: wire.Params) -> tuple[bytes, asyncio.Future[msgspec.Raw]]:
        if self.lost is not None:
            raise self.lost
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(lambda _: self._waiting.pop(number, None))
        message = {"jsonrpc": "2.0", "id": number, "method": params.method, "params": params}
        return msgspec.json.encode(message), answer

    def take(self, response: frames.Response) -> None:
        answer = self._waiting.get(response.id)
        if answer is None or answer.done():
            return  # nobody waits for it any more
        if isinstance(response.error, frames.Error):
            answer.set_exception(error_of(response.error))
        else:
            answer.set_result(response.result if isinstance(response.result, msgspec.Raw) else msgspec.Raw(b"null"))

    def lose(self, why: str) -> None:
        self.lost = self.lost or LinkLost(why)
        for answer in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(self.lost)


class _Incoming(msgspec.Struct, frozen=True):
    method: str | None = None
    params: msgspec.Raw = msgspec.Raw(b"null")


class ProcessLink:
    """A server of our own, made by `start`."""

    def __init__(
        self, process: asyncio.subprocess.Process, heard: Callable[[frames.Sent], None], lost: Callable[[], None]
    ) -> None:
        self._process = process
        self._heard = heard
        self._on_lost = lost
        self._answers = _Answers()
        self._reading = asyncio.create_task(self._read(), name="server")

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        environment: Mapping[str, str],
        cwd: str | None,
        heard: Callable[[frames.Sent], None],
        lost: Callable[[], None],
    ) -> ProcessLink:
        """Start a server.

        Raises:
            UsageError: it cannot be started.
        """
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=dict(environment),
                cwd=cwd,
                start_new_session=True,  # Ctrl-C is for the program; it closes the server in order
            )
        except OSError as error:
            why = f"the server cannot be started: {command[0]}: {error.strerror}"
            raise errors.UsageError(why, next_act="Check the command and the directory") from None
        return cls(process, heard, lost)

    async def ask(self, params: wire.Params) -> msgspec.Raw:
        """See `Link`."""
        message, answer = self._answers.request(params)
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(message + b"\n")
            await pipe.drain()
        except ConnectionError:
            self._answers.lose("the server does not read any more")
        return await answer

    async def follow(self, session: str, start: int) -> None:
        """See `Link`."""
        await self.ask(wire.FollowEvents(session=session, start=start))

    async def _read(self) -> None:
        lines, pipe = Lines(), self._process.stdout
        assert pipe is not None
        try:
            while data := await pipe.read(PIECE):
                for line in lines.feed(data):
                    self._take(line)
        finally:
            self._answers.lose("the server ended")
            self._on_lost()

    def _take(self, line: bytes | TooLong) -> None:
        if isinstance(line, TooLong):
            return  # whoever waits for it asked for more than a line can carry; ending the link tells them
        incoming = msgspec.json.decode(line, type=_Incoming)
        if incoming.method is None:
            self._answers.take(msgspec.json.decode(line, type=frames.Response))
        elif incoming.method == "sent":
            self._heard(msgspec.json.decode(incoming.params, type=frames.Sent))

    async def close(self) -> None:
        """See `Link`."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(asyncio.shield(self._reading), ENDING)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
        await self._process.wait()
        await asyncio.wait({self._reading})


class HttpLink:
    """A server that runs already.

    Args:
        url: `http://HOST:PORT`.
        token: that it wants.
        heard, lost: see `Link`.
    """

    def __init__(self, url: str, token: str, heard: Callable[[frames.Sent], None], lost: Callable[[], None]) -> None:
        try:
            import httpx2
        except ImportError:
            act = "pip install 'fencepost[http]'"
            raise errors.UsageError("an HTTP client is not installed", next_act=act) from None
        self._library = httpx2
        self._heard = heard
        self._on_lost = lost
        self._answers = _Answers()
        self._http: httpx2.AsyncClient = httpx2.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=httpx2.Timeout(10, read=None)
        )
        self._following: set[asyncio.Task[None]] = set()

    async def ask(self, params: wire.Params) -> msgspec.Raw:
        """See `Link`."""
        message, answer = self._answers.request(params)
        try:
            response = await self._http.post("/rpc", content=message, headers={"Content-Type": "application/json"})
        except self._library.HTTPError as error:
            answer.cancel()
            self._lose(f"the server cannot be reached: {type(error).__name__}: {error}")
            raise self._answers.lost or LinkLost("lost") from None
        if response.status_code not in {200, 400, 413}:
            answer.cancel()
            raise self._problem(response)
        self._answers.take(msgspec.json.decode(response.content, type=frames.Response))
        return await answer

    def _problem(self, response: httpx2.Response) -> errors.FencepostError:
        said: Any = None
        with contextlib.suppress(msgspec.DecodeError):
            said = msgspec.json.decode(response.content)
        why = said.get("message", "") if isinstance(said, dict) else ""
        act = "Give token=, or FENCEPOST_TOKEN" if response.status_code == 401 else None
        return errors.UsageError(f"the server answered {response.status_code}: {why}", next_act=act)

    async def follow(self, session: str, start: int) -> None:
        """See `Link`. Returns when the server has taken it on."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(self._stream(session, start, begun), name=f"follow {session}")
        self._following.add(task)
        task.add_done_callback(self._following.discard)
        await begun

    async def _stream(self, session: str, start: int, begun: asyncio.Future[None]) -> None:
        query = {"session": session, "start": str(start)}
        try:
            async with self._http.stream("GET", "/events", params=query) as response:
                if response.status_code != 200:
                    await response.aread()
                    begun.set_exception(self._problem(response))
                    return
                begun.set_result(None)
                async for data in _events(response.aiter_bytes()):
                    sent = msgspec.json.decode(data, type=frames.Sent)
                    self._heard(sent)
                    if isinstance(sent, frames.SessionEnded):
                        return
        except self._library.HTTPError as error:
            if not begun.done():
                begun.set_exception(LinkLost(str(error)))
            self._lose(f"the server cannot be reached: {type(error).__name__}: {error}")
            return
        self._lose("the server ended the stream")

    def _lose(self, why: str) -> None:
        self._answers.lose(why)
        self._on_lost()

    async def close(self) -> None:
        """See `Link`."""
        for task in list(self._following):
            task.cancel()
        if self._following:
            await asyncio.wait(self._following)
        await self._http.aclose()


async def _events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of server-sent events (one `data` line each, which is what our server writes)."""
    lines = Lines()
    async for piece in pieces:
        for line in lines.feed(piece):
            if isinstance(line, bytes) and line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a server is started with."""
    return {**os.environ, **environ}
