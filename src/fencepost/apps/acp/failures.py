"""What went wrong, as JSON-RPC errors: a number of the protocol, a sentence, and the product's own code in `data`.

    -32002   there is no such session, or none is open here under that id
    -32602   the request asks for something that cannot be
    -32800   the client took its request back
    -32010   fencepost foresaw it (held, damaged, not saved, a model that fails …): `data.code` says which
    -32603   it did not

`data` is `{"code", "next"}`: the stable name of the cause, and what can be done about it. -32603 is kept for faults:
clients take it for a reason to begin a new session, which a held or damaged one is not.
"""

from __future__ import annotations

import sys
import traceback

from acp.exceptions import RequestError
from pydantic import ValidationError

from fencepost.errors import FencepostError, SessionNotFoundError, UsageError

NOT_FOUND = -32002
INVALID_PARAMS = -32602
CANCELLED = -32800
FORESEEN = -32010


def refusal(error: FencepostError) -> RequestError:
    """An error that fencepost foresaw."""
    status = FORESEEN
    if isinstance(error, SessionNotFoundError):
        status = NOT_FOUND
    elif isinstance(error, UsageError):
        status = INVALID_PARAMS
    return RequestError(status, str(error), {"code": error.code, "next": error.next_act})


def invalid(error: ValidationError) -> RequestError:
    """Parameters that do not have the form of the method's. What was sent is not repeated."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"]) or "params"
    return RequestError(INVALID_PARAMS, f"{where}: {first['msg']}", {"code": "INVALID_PARAMS", "next": ""})


def cancelled() -> RequestError:
    """The client took its request back."""
    return RequestError(CANCELLED, "the request was cancelled", {"code": "CANCELLED", "next": ""})


def fault(method: str, error: Exception) -> RequestError:
    """What nobody foresaw: told in one line, and with its traceback to standard error."""
    sys.stderr.write(f"fencepost: an internal fault in {method}\n")
    traceback.print_exception(error)
    text = " ".join(str(error).split()) or "no message"
    return RequestError(-32603, f"an internal fault, {type(error).__name__}: {text}", {"code": "INTERNAL", "next": ""})
