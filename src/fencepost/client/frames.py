"""What goes over a connection: JSON-RPC 2.0 requests, answers and errors, and what is sent unasked.

The methods themselves are `wire`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from fencepost.plugins.approval import Question

PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
PRODUCT_ERROR = -32000
"""JSON-RPC's codes, and the one of every error of the product."""

LONGEST = 50 << 20
"""Bytes of one line at most, newline included."""

# --- what is sent unasked ---------------------------------------------------------------------------------------


class EventSent(msgspec.Struct, frozen=True, tag_field="kind", tag="event"):
    """A durable event, in the bytes of the log."""

    session: str
    seq: int
    event: msgspec.Raw


class NoticeSent(msgspec.Struct, frozen=True, tag_field="kind", tag="notice"):
    """What people should see now and the log does not keep."""

    session: str
    notice: str
    text: str
    call_id: str = ""


class QuestionSent(msgspec.Struct, frozen=True, tag_field="kind", tag="question"):
    """A question was asked."""

    session: str
    question: Question


class SessionEnded(msgspec.Struct, frozen=True, tag_field="kind", tag="ended"):
    """The session was closed; no event follows."""

    session: str


Sent = EventSent | NoticeSent | QuestionSent | SessionEnded
"""The parameters of the notification `sent`, and the data of the event stream."""

# --- frames -----------------------------------------------------------------------------------------------------


class ErrorData(msgspec.Struct, frozen=True):
    """What programs and people need to know of an error."""

    code: str
    next_act: str = ""


class Error(msgspec.Struct, frozen=True):
    """A JSON-RPC error."""

    code: int
    message: str
    data: ErrorData | None = None


Id = int | str | None


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request; without an id a notification."""

    method: str
    jsonrpc: Literal["2.0"]
    params: msgspec.Raw = msgspec.Raw(b"{}")
    id: Id | msgspec.UnsetType = msgspec.UNSET


class Response(msgspec.Struct, frozen=True):
    """An answer as it arrives: a result, or an error."""

    id: Id
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: Error | msgspec.UnsetType = msgspec.UNSET
    jsonrpc: str = "2.0"
