"""What the model gets to read of a call: from endings, refusals and faults to replies.

Rules:
    1. A reply says what is known and no more: "not started" only of a body that was not entered, or that vouches by
       `NotStarted` that nothing had left it (law 2); "unknown" in the words that repair uses.
    2. What comes from tools and plugins is made sound here, so that no odd value reaches the log.
"""

from __future__ import annotations

import contextlib
import inspect
from typing import Any

import msgspec

from fencepost.core import verdict as v
from fencepost.runtime.tools import ToolReply

TOOL_ERROR = "TOOL_ERROR"
"""The code of a body that failed without naming one."""

_RESERVED = v.NOT_ENTERED | {v.TOOL_OUTCOME_UNKNOWN}


NEXT_ACTS = {
    v.DENIED: "Do not repeat it unless the user asks for it.",
    v.INVALID_ARGUMENTS: "Correct the arguments if the call is still needed.",
    v.UNKNOWN_TOOL: "Use one of the tools that there are.",
}
"""What the model should do about a refusal; for the others, retry if it is still needed."""


class NotStarted(Exception):  # noqa: N818 - what a body says, not a fault
    """Raised by a body that vouches that it had no effect: a request that never left, a server that was not there.

    The text is the cause, as half a sentence. Whoever cannot be certain raises anything else, or says `unknown`.
    """


def refused(code: str, why: str) -> ToolReply:
    """The call was not let go, so its body did not run."""
    return ToolReply(v.not_started_text(why, NEXT_ACTS.get(code, v.RETRY)), is_error=True, code=code)


def unknown(why: str, detail: str = "") -> ToolReply:
    """The body was entered, and nobody can say how far it came."""
    return ToolReply(why, unknown=True, detail=detail)


def failed(error: BaseException) -> ToolReply:
    """The body ended with an exception: the call is over and failed, or never did anything and says so."""
    if isinstance(error, NotStarted):
        return refused(v.TOOL_NOT_STARTED, str(error) or "its body says so")
    return ToolReply(sentence(error), is_error=True, code=TOOL_ERROR)


def reply_of(value: Any) -> ToolReply:
    """What a body's value means for the model. A code of its own never says that it was not entered."""
    if inspect.iscoroutine(value):
        value.close()
        return failed(TypeError("the tool gave a coroutine, which nobody awaits: an async tool is an async function"))
    if not isinstance(value, ToolReply):
        return ToolReply(as_text(value))
    reply = sound(value)
    if reply.unknown or reply.code not in _RESERVED:
        return reply
    if reply.code == v.TOOL_OUTCOME_UNKNOWN:
        return msgspec.structs.replace(reply, unknown=True)
    return msgspec.structs.replace(reply, is_error=True, code=TOOL_ERROR)


def sound(reply: object) -> ToolReply:
    """`reply` with fields of the types that it declares.

    Raises:
        TypeError: it is no reply at all.
    """
    if not isinstance(reply, ToolReply):
        raise TypeError(f"a hook gave {type(reply).__name__} where a ToolReply is due")
    return ToolReply(
        as_text(reply.text),
        is_error=bool(reply.is_error),
        code=as_text(reply.code or ""),
        unknown=bool(reply.unknown),
        detail=as_text(reply.detail or ""),
    )


def text_of(reply: ToolReply) -> str:
    """The text of the result."""
    if not reply.unknown:
        return reply.text
    text = v.unknown_text(reply.text)
    return f"{text}\n\n{reply.detail}" if reply.detail else text


def as_text(value: Any) -> str:
    """A value as text for the model: itself, JSON where JSON can carry it, else `repr`."""
    if isinstance(value, str):
        return value
    if value is None:
        return "done"
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    with contextlib.suppress(TypeError, ValueError, OverflowError, RecursionError):
        return msgspec.json.encode(value).decode()
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - the value is a stranger's, and so is its __repr__
        return f"a {type(value).__name__} that cannot be shown ({type(error).__name__})"


def sentence(error: BaseException) -> str:
    """An exception in one line or more, its type in front."""
    try:
        text = str(error).strip()
    except Exception:  # noqa: BLE001 - the exception is a stranger's, and so is its __str__
        text = ""
    return f"{type(error).__name__}: {text or 'no message'}"
