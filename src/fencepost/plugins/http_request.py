"""The tool `http_request`: one request over HTTP, recorded as one call.

    GET HEAD OPTIONS    `read`
    PUT DELETE          `idempotent`
    POST PATCH          `write`

The unsafe ones carry `Idempotency-Key: CALL_ID` unless the model gives one: a server that knows such keys does the
same thing once, however often it is told, and can be asked later what became of it. Redirects are not followed: a
request to another place is a call of its own, which policies see.

What failed before anything left is "not started". What failed afterwards is unknown, or for a `read` a failure that may
be tried again. After a crash nobody here knows more; the note says under which key the server may.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from fencepost.core.events import Effect
from fencepost.plugins.http_address import Address, BadUrl, Target, is_private, target_of, warning
from fencepost.plugins.http_answer import shown
from fencepost.plugins.http_exchange import Answer, Exchange, Forbidden, Lost, Request
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.replies import NotStarted
from fencepost.runtime.settlement import Unknown, UnsettledCall
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext, Tool, ToolReply

BAD_URL = "BAD_URL"
BAD_HEADER = "BAD_HEADER"
BAD_BODY = "BAD_BODY"
PRIVATE_ADDRESS = "PRIVATE_ADDRESS"
NO_ANSWER = "NO_ANSWER"

BODY_BYTES = 1 << 20
"""Bytes of the largest body that is sent."""
KEY = "Idempotency-Key"
OPEN = "this error does not say whether the request was carried out; verify that before sending another"

Method = Literal["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "POST", "PATCH"]
EFFECTS: Mapping[str, Effect] = {
    "GET": "read",
    "HEAD": "read",
    "OPTIONS": "read",
    "PUT": "idempotent",
    "DELETE": "idempotent",
}
"""By method (RFC 9110, section 9.2); any other writes."""

_RESERVED = frozenset({"connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding"})
_RESERVED |= {"proxy-authorization", "proxy-connection", "upgrade"}
_OTHER_METHODS = frozenset({"x-http-method", "x-http-method-override", "x-method-override"})
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")


class HttpRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[plugin.http]`.

    Attributes:
        timeout: seconds that a request gets if the model does not say.
        limit: seconds that the model may ask for at most.
        private: patterns (`*.corp.example`) of more names that lead into private networks: a person is asked about
            them, and only then are they connected to.
    """

    timeout: Annotated[float, Meta(gt=0)] = 30.0
    limit: Annotated[float, Meta(gt=0)] = 300.0
    private: tuple[str, ...] = ()


class _Refusal(Exception):  # noqa: N818 - an answer on its way out, not a fault
    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reply = ToolReply(f"{text} Nothing was sent.", is_error=True, code=code)


def http_tool(rules: HttpRules | None = None) -> Tool:
    """The tool.

    Args:
        rules: see there.
    """
    ruled = rules or HttpRules()

    @tool(effect="write", guard=partial(_guard, ruled.private), settle=_settle)
    async def http_request(
        context: CallContext,
        url: Annotated[str, Meta(description="http:// or https://")],
        method: Annotated[Method, Meta(description="GET if not given")] = "GET",
        headers: Annotated[dict[str, str], Meta(description="beside the usual ones")] = {},  # noqa: B006 - copied
        body: Annotated[str | None, Meta(description="sent as UTF-8")] = None,
        timeout: Annotated[Annotated[float, Meta(gt=0)] | None, Meta(description="seconds for all of it")] = None,
    ) -> ToolReply:
        """Send one HTTP request. Redirects are not followed; long answers are cut, with a note."""
        try:
            request = _request(context, method, url, headers, body)
        except _Refusal as refusal:
            return refusal.reply
        limit = min(timeout or ruled.timeout, ruled.limit)
        return await _exchanged(request, limit, ruled.private, context.cancel)

    return msgspec.structs.replace(http_request, effect_by=effect_of)


def effect_of(arguments: dict[str, Any]) -> Effect:
    """The effect of a call with these arguments."""
    return EFFECTS.get(str(arguments.get("method", "GET")), "write")


def _guard(private: tuple[str, ...], arguments: dict[str, Any], _: Path) -> str | None:
    try:
        return warning(target_of(str(arguments.get("url", ""))), private)
    except BadUrl:
        return None  # the body refuses it by itself


def _settle(call: UnsettledCall) -> Unknown:
    if effect_of(call.arguments) == "read":
        return Unknown("it only reads")
    headers = call.arguments.get("headers") or {}
    given = next((str(value) for name, value in headers.items() if name.lower() == KEY.lower()), call.call_id)
    try:
        where = target_of(str(call.arguments.get("url", ""))).origin
    except BadUrl:
        return Unknown()
    return Unknown(f"if the request left, {where} got it with {KEY}: {given}, and may be asked what became of it")


# --- before anything is sent ------------------------------------------------------------------------------------


def _request(context: CallContext, method: str, url: str, headers: dict[str, str], body: str | None) -> Request:
    try:
        target = target_of(url)
        data = (body or "").encode()
    except BadUrl as error:
        raise _Refusal(BAD_URL, str(error)) from None
    except UnicodeEncodeError as error:
        raise _Refusal(BAD_BODY, f"The body holds half of a surrogate pair at {error.start}.") from None
    if len(data) > BODY_BYTES:
        raise _Refusal(BAD_BODY, f"The body has {len(data)} bytes; {BODY_BYTES} may be sent.")
    if data and method == "HEAD":
        raise _Refusal(BAD_BODY, "HEAD takes no body.")
    given = {_checked(name, value, target): (name, value.strip()) for name, value in headers.items()}
    if len(given) < len(headers):
        raise _Refusal(BAD_HEADER, "A header is given twice.")
    usual = {"host": ("Host", target.authority), "user-agent": ("User-Agent", "fencepost")}
    usual |= {"accept": ("Accept", "*/*"), "accept-encoding": ("Accept-Encoding", "gzip")}
    if EFFECTS.get(method) != "read":
        usual[KEY.lower()] = (KEY, context.call_id)
    if data:
        usual["content-type"] = ("Content-Type", _content_type(data))
    fields = usual | given | {"connection": ("Connection", "close")}
    return Request(method, target, tuple(fields.values()), data)


def _checked(name: str, value: str, target: Target) -> str:
    """A header's name in lower case, if it may be sent."""
    lower = name.lower()
    if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value) or not _encodable(value):
        raise _Refusal(BAD_HEADER, f"The header {name!r} is not valid.")
    if lower in _OTHER_METHODS:
        raise _Refusal(BAD_HEADER, f"{name} makes another method of it; give that as the method.")
    if lower in _RESERVED:
        raise _Refusal(BAD_HEADER, f"{name} is set by the connection.")
    if lower == "host" and target.address is None:
        raise _Refusal(BAD_HEADER, "Host is the URL's host; only a request to an address may name another.")
    return lower


def _encodable(value: str) -> bool:
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _content_type(data: bytes) -> str:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return "text/plain; charset=utf-8"
    return "application/json"


# --- the exchange, and what is claimed of it --------------------------------------------------------------------


async def _exchanged(request: Request, limit: float, private: tuple[str, ...], cancel: CancelSignal) -> ToolReply:
    asked = warning(request.target, private) is not None
    exchange = Exchange(request, limit, partial(_refused, request.target, asked))
    try:
        answer = await _unless_cancelled(exchange, cancel)
    except Forbidden as error:
        return _Refusal(PRIVATE_ADDRESS, str(error)).reply
    except Lost as error:
        return _lost(request, str(error))
    failed = answer.status >= 400 or (bool(answer.broken) and EFFECTS.get(request.method) == "read")
    code = f"HTTP_{answer.status}" if answer.status >= 400 else NO_ANSWER if failed else ""
    open_still = (answer.status >= 500 or answer.status == 408) and EFFECTS.get(request.method) != "read"
    return ToolReply(shown(answer, request.method, OPEN if open_still else ""), is_error=failed, code=code)


def _refused(target: Target, asked: bool, address: Address) -> str | None:
    if asked or not is_private(address):
        return None
    return (
        f"{target.host} leads to {address}, a private address, and nobody was asked about that. Ask for the address "
        f"itself with a Host header, or let the user name the host in `private` of [plugin.http]."
    )


def _lost(request: Request, why: str) -> ToolReply:
    what = f"{request.method} {request.target.origin}"
    if EFFECTS.get(request.method) == "read":
        return ToolReply(f"{what} got no answer: {why}. It only reads, so it may be tried again.", True, NO_ANSWER)
    key = next(value for name, value in request.headers if name.lower() == KEY.lower())
    return ToolReply(f"{what}: {why}", unknown=True, detail=f"The request was sent with {KEY}: {key}.")


async def _unless_cancelled(exchange: Exchange, cancel: CancelSignal) -> Answer:
    """The exchange, ended at once by a cancel that comes while nothing has left. Afterwards the runtime decides.

    Raises:
        NotStarted, Forbidden, Lost: see `Exchange.run`.
    """
    running = asyncio.ensure_future(exchange.run())
    cancelled = cancel.waiter()
    try:
        both: set[asyncio.Future[Any]] = {running, cancelled}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not running.done() and not exchange.left:
            running.cancel()
            await asyncio.wait({running})
            if running.cancelled() and not exchange.left:
                raise NotStarted(f"the turn was cancelled ({cancel.reason}) before the request left")
        return await running
    finally:
        cancelled.cancel()
        running.cancel()
