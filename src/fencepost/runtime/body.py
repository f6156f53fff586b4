"""Running one body: with a time limit, the cancel signal, and an ending whatever the body does.

Endings:
    it returned or raised by itself                     that value or error
    its time ran out                                    unknown
    the turn was cancelled while it ran                 it gets `settle` seconds to finish by itself (its own
                                                        answer then counts); after that it is told to stop and
                                                        is unknown, whatever it says then: the cancel wins
    it does not stop, or is a thread, which cannot be   given up on; a late answer becomes a note

An asyncio cancellation is only used as the last means to stop a coroutine. It never decides anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.runtime.tools import CallContext, Tool, ToolReply


class Ending(msgspec.Struct, frozen=True):
    """How a body ended: with a value (a `ToolReply` with `unknown` where nobody can say), or with an error."""

    value: Any = None
    error: Exception | None = None


async def run_body(
    tool: Tool,
    context: CallContext,
    arguments: dict[str, Any],
    settle: float,
    drain: float,
    late: Callable[[str], None],
) -> Ending:
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
    cancelled = asyncio.ensure_future(context.cancel.wait())
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
        await _stop(running, drain, late)
        return Ending(ToolReply(why, unknown=True))
    except asyncio.CancelledError:
        await _stop(running, drain, late)
        raise
    finally:
        cancelled.cancel()


def _start(tool: Tool, context: CallContext, arguments: dict[str, Any]) -> asyncio.Future[Any]:
    if tool.thread is not None:
        return _in_thread(tool, context, arguments)
    assert tool.body is not None
    return asyncio.ensure_future(_awaiting(tool, context, arguments))


async def _awaiting(tool: Tool, context: CallContext, arguments: dict[str, Any]) -> Any:
    assert tool.body is not None
    return await tool.body(context, arguments)


def _in_thread(tool: Tool, context: CallContext, arguments: dict[str, Any]) -> asyncio.Future[Any]:
    """A daemon thread per call: one that never returns must not keep the process, or a pool's slot, for ever."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    call = tool.thread
    assert call is not None

    def deliver(value: Any, error: BaseException | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def run() -> None:
        value, failure = None, None
        try:
            value = call(context, arguments)
        except BaseException as error:  # noqa: BLE001 - carried over to the loop's side, where it is an ending
            failure = error if isinstance(error, Exception) else RuntimeError(f"{type(error).__name__} in a tool")
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(deliver, value, failure)

    threading.Thread(target=run, name=f"tool {tool.name}", daemon=True).start()
    return answer


def _ending(running: asyncio.Future[Any]) -> Ending:
    if running.cancelled():
        return Ending(ToolReply("the body of the call was cancelled from inside", unknown=True))
    error = running.exception()
    if error is None:
        return Ending(running.result())
    if isinstance(error, Exception):
        return Ending(error=error)
    raise error


async def _stop(running: asyncio.Future[Any], drain: float, late: Callable[[str], None]) -> None:
    """Tell a body to stop, wait a while, then give up on it and listen for a late answer."""
    if isinstance(running, asyncio.Task):
        running.cancel()
        await asyncio.wait({running}, timeout=drain)
    if not running.done():
        running.add_done_callback(lambda done: late(_late_text(done)))
    elif not running.cancelled():
        running.exception()  # looked at, so that asyncio does not report it as forgotten


def _late_text(done: asyncio.Future[Any]) -> str:
    if done.cancelled():
        return "the body stopped after it had been given up on"
    error = done.exception()
    if error is not None:
        return f"the body failed after it had been given up on: {type(error).__name__}: {error}"
    return f"the body answered after it had been given up on: {done.result()!s:.2000}"
