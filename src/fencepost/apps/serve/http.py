"""The API over HTTP: requests are POSTed to `/rpc`, what is sent unasked is the event stream of GET `/events`.

    POST /rpc                              one JSON-RPC request, its answer
    GET  /events?session=ID&start=SEQ      server-sent events; `id` is the seq, so that `Last-Event-ID` goes on
    GET  /schema                           the API as JSON schema

Rules:
    1. Every request but none carries the bearer token. It is compared in constant time.
    2. A request for another host than ours is refused, and one that a web page of another origin made: a page in a
       browser must not reach what listens on loopback (DNS rebinding).
    3. A stream holds no session open and no event back: whoever comes again says where to go on.
"""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fencepost.apps.serve import rpc
from fencepost.apps.serve.api import Api
from fencepost.apps.serve.feed import Feed
from fencepost.client import frames
from fencepost.client.schema import text as schema_text
from fencepost.errors import FencepostError

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

PING = 15
"""Seconds between comments on a stream that has nothing to send."""


def application(api: Api, token: str, hosts: frozenset[str]) -> ASGIApp:
    """The ASGI application.

    Args:
        api: what is served.
        token: that every request has to bear.
        hosts: what `Host` may say, in lower case, with the port.
    """

    async def call(request: Request) -> Response:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > frames.LONGEST:
                refused = rpc.Refused(frames.INVALID_REQUEST, f"a request of over {frames.LONGEST} bytes is not read")
                return _json(rpc.refusal(refused), 413)
        try:
            asked, params = rpc.understand(bytes(body))
        except rpc.Refused as error:
            return _json(rpc.refusal(error), 400)
        answer = await rpc.answer(api, asked, params)
        return Response(status_code=204) if answer is None else _json(answer, 200)

    async def events(request: Request) -> Response:
        session = request.query_params.get("session", "")
        last = request.headers.get("last-event-id")
        try:
            start = int(last) + 1 if last else int(request.query_params.get("start", "0"))
        except ValueError:
            return _problem(400, "USAGE", "start, and Last-Event-ID, are sequence numbers")
        try:
            feed = api.follow(session, start)
        except FencepostError as error:
            return _problem(409, error.code, error.explain())
        return EventSourceResponse(_stream(feed), ping=PING)

    async def schema(request: Request) -> Response:  # noqa: ARG001 - the shape of an endpoint
        return _json(schema_text().encode(), 200)

    routes = [
        Route("/rpc", call, methods=["POST"]),
        Route("/events", events, methods=["GET"]),
        Route("/schema", schema, methods=["GET"]),
    ]
    return _Door(Starlette(routes=routes), token, hosts)


async def _stream(feed: Feed) -> AsyncIterator[ServerSentEvent]:
    async for sent in feed.sent():
        seq = str(sent.seq) if isinstance(sent, frames.EventSent) else None
        yield ServerSentEvent(data=msgspec.json.encode(sent).decode(), id=seq)


class _Door:
    """Who may come in (rules 1 and 2)."""

    def __init__(self, inside: ASGIApp, token: str, hosts: frozenset[str]) -> None:
        self._inside = inside
        self._token = token.encode()
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            refused = self._refusal(Request(scope))
            if refused is not None:
                await refused(scope, receive, send)
                return
        await self._inside(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "").lower()
        if host not in self._hosts:
            return _problem(403, "HOST", f"this server does not answer to the name {host!r}")
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() not in self._hosts:
            return _problem(403, "ORIGIN", f"pages of {origin} may not use this server")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token):
            answer = _problem(401, "TOKEN", "a bearer token is needed, and this is not it")
            answer.headers["WWW-Authenticate"] = "Bearer"
            return answer
        return None


def _json(body: bytes, status: int) -> Response:
    return Response(body, status, media_type="application/json")


def _problem(status: int, code: str, why: str) -> Response:
    return JSONResponse({"code": code, "message": why}, status)
