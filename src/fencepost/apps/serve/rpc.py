"""JSON-RPC 2.0 over the API: from the bytes of a message to the bytes of its answer.

What was weighed: the known JSON-RPC libraries bring validation and typing of their own, and none takes msgspec's types;
what is left of the protocol without those is this page.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from fencepost.apps.serve.api import Api
from fencepost.client import frames, wire
from fencepost.errors import FencepostError

_request = msgspec.json.Decoder(frames.Request).decode


class Refused(Exception):  # noqa: N818 - an answer of the protocol, not a fault of ours
    """What JSON-RPC answers with an error. Carries it, and the id of the request where there was one."""

    def __init__(self, code: int, message: str, id: frames.Id = None) -> None:  # noqa: A002 - the protocol's word
        super().__init__(message)
        self.code = code
        self.id = id


def understand(message: bytes) -> tuple[frames.Request, wire.Params]:
    """A request and its parameters.

    Raises:
        Refused: it is none, or its method or parameters are not known.
    """
    try:
        request = _request(message)
    except msgspec.ValidationError as error:
        raise Refused(frames.INVALID_REQUEST, f"this is no JSON-RPC 2.0 request: {error}", _id_in(message)) from None
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Refused(frames.PARSE_ERROR, f"this is not JSON: {error}") from None
    given = None if request.id is msgspec.UNSET else request.id
    kind = wire.METHODS.get(request.method)
    if kind is None:
        raise Refused(frames.METHOD_NOT_FOUND, f"there is no method {request.method!r}", given)
    try:
        return request, msgspec.json.decode(request.params, type=kind)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Refused(frames.INVALID_PARAMS, f"{request.method}: {error}", given) from None


def _id_in(message: bytes) -> frames.Id:
    """The id of something that is JSON and no request, as far as it has one."""
    try:
        value = msgspec.json.decode(message)
    except (msgspec.DecodeError, UnicodeError):
        return None
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def refusal(error: Refused) -> bytes:
    """The answer to what was refused."""
    return _failed(error.id, frames.Error(error.code, str(error)))


async def answer(api: Api, request: frames.Request, params: wire.Params) -> bytes | None:
    """Do what was asked; the answer's bytes, or None for a notification."""
    try:
        result = await api.call(params)
    except FencepostError as error:
        return failed(request, product_error(error))
    except asyncio.CancelledError:
        raise
    except Exception as error:  # noqa: BLE001 - a fault of ours costs one request, and is told as one
        asyncio.get_running_loop().call_exception_handler({"message": f"{request.method} failed", "exception": error})
        return failed(request, frames.Error(frames.INTERNAL, f"an internal fault, {type(error).__name__}: {error}"))
    return None if request.id is msgspec.UNSET else _done(request.id, result)


def product_error(error: FencepostError) -> frames.Error:
    """An error of the product's as JSON-RPC has it."""
    return frames.Error(frames.PRODUCT_ERROR, str(error), frames.ErrorData(error.code, error.next_act))


def done(request: frames.Request) -> bytes | None:
    """The answer that something is done."""
    return None if request.id is msgspec.UNSET else _done(request.id, wire.Done())


def failed(request: frames.Request, error: frames.Error) -> bytes | None:
    """The answer that it failed."""
    return None if request.id is msgspec.UNSET else _failed(request.id, error)


def notification(sent: frames.Sent) -> bytes:
    """What is sent unasked."""
    return msgspec.json.encode({"jsonrpc": "2.0", "method": "sent", "params": sent})


def _done(id: frames.Id | msgspec.UnsetType, result: Any) -> bytes:  # noqa: A002 - the protocol's word
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "result": result})


def _failed(id: frames.Id | msgspec.UnsetType, error: frames.Error) -> bytes:  # noqa: A002 - the protocol's word
    return msgspec.json.encode({"jsonrpc": "2.0", "id": id, "error": error})
