"""Running one body: with a time limit, the cancel signal, and an ending whatever the body does.

Endings:
    it returned or raised by itself                     that value or error
    its time ran out                                    unknown
    the turn was cancelled while it ran                 it gets `settle` seconds to finish by itself (its own
                                                        answer then counts); after that it is told to stop and
                                                        is unknown, whatever it says then: the cancel wins, and
                                                        its words are only shown
    it does not stop, or is a thread, which cannot be   given up on; a late answer becomes a note

An asyncio cancellation is only used as the last means to stop a coroutine. It never decides anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from fencepost.runtime.aside import exit_of, in_thread
from fencepost.runtime.replies import as_text, failed, reply_of, sentence, sound, text_of, unknown
from fencepost.runtime.tools import CallContext, Tool, ToolReply

LATE = 2000
"""Characters of a late answer that are kept at most."""


async def run_body(
    tool: Tool,
    context: CallContext,
    arguments: dict[str, Any],
    settle: float,
    drain: float,
    late: Callable[[str], None],
) -> ToolReply:
    """Run a body to its ending; never raises what the body raises.

    Args:
        tool: whose body.
        context: handed to the body.
        arguments: validated.
        settle: seconds to finish by itself after a cancel.
        drain: seconds to stop after being told to.
        late: told what a body answered after it was given up on.
    """
    running = _start(tool, context, arguments)
    cancelled = context.cancel.waiter()
    try:
        await asyncio.wait({running, cancelled}, timeout=tool.timeout, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return _ending(running)
        if context.cancel.cancelled:
            await asyncio.wait({running}, timeout=settle)
            if running.done():
                return _ending(running)
            why = f"the turn was cancelled ({context.cancel.reason}) while the call ran"
        else:
            why = f"the call was still running when its time limit of {tool.timeout:g} s ran out"
        return ToolReply(why, unknown=True, detail=await _stop(running, drain, late))
    except asyncio.CancelledError:
        await _stop(running, drain, late)
        raise
    finally:
        cancelled.cancel()


def _start(tool: Tool, context: CallContext, arguments: dict[str, Any]) -> asyncio.Future[Any]:
    if tool.thread is not None:
        return in_thread(f"tool {tool.name}", partial(tool.thread, context, arguments))
    return asyncio.ensure_future(_awaiting(tool, context, arguments))


async def _awaiting(tool: Tool, context: CallContext, arguments: dict[str, Any]) -> Any:
    assert tool.body is not None
    try:
        return await tool.body(context, arguments)
    except SystemExit as error:
        raise exit_of(error) from None


def _ending(running: asyncio.Future[Any]) -> ToolReply:
    if running.cancelled():
        return unknown("the body of the call was cancelled from inside")
    error = running.exception()
    if error is None:
        return reply_of(running.result())
    if isinstance(error, Exception):
        return failed(error)
    raise error


async def _stop(running: asyncio.Future[Any], drain: float, late: Callable[[str], None]) -> str:
    """Tell a body to stop and wait a while; what it says then. Else give up on it, and listen for a late answer."""
    if isinstance(running, asyncio.Task):
        running.cancel()
        await asyncio.wait({running}, timeout=drain)
    if not running.done():
        running.add_done_callback(lambda done: late(_late_text(done)))
        return ""
    if running.cancelled():
        return ""
    error = running.exception()
    return f"Told to stop, it failed: {sentence(error)}" if error is not None else _last_words(running.result())


def _last_words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, ToolReply):
        reply = sound(value)
        return reply.detail if reply.unknown else f"Told to stop, it said: {reply.text}"
    return f"Told to stop, it said: {as_text(value)}"


def _late_text(done: asyncio.Future[Any]) -> str:
    if done.cancelled():
        return "the body stopped after it had been given up on"
    error = done.exception()
    if error is not None:
        return f"the body failed after it had been given up on: {sentence(error)}"
    value = done.result()
    text = text_of(sound(value)) if isinstance(value, ToolReply) else as_text(value)
    return f"the body answered after it had been given up on: {text:.{LATE}}"
