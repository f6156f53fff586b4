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
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

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
        return _in_thread(tool, context, arguments)
    return asyncio.ensure_future(_awaiting(tool, context, arguments))


async def _awaiting(tool: Tool, context: CallContext, arguments: dict[str, Any]) -> Any:
    assert tool.body is not None
    try:
        return await tool.body(context, arguments)
    except SystemExit as error:
        raise _exit(error) from None


def _exit(error: BaseException) -> RuntimeError:
    """A tool may end its call, not the process of the agent."""
    return RuntimeError(f"{type(error).__name__} in a tool")


def _in_thread(tool: Tool, context: CallContext, arguments: dict[str, Any]) -> asyncio.Future[Any]:
    """A daemon thread per call: one that never returns must not keep the process, or a pool's slot, for ever."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    call = tool.thread
    assert call is not None
    variables = contextvars.copy_context()

    def deliver(value: Any, error: Exception | None) -> None:
        if answer.done():
            return
        if error is None:
            answer.set_result(value)
        else:
            answer.set_exception(error)

    def run() -> None:
        value: Any = None
        failure: Exception | None = None
        try:
            value = variables.run(call, context, arguments)
        except StopIteration as error:
            failure = RuntimeError(f"StopIteration in a tool: {error}")  # a future cannot carry it as it is
        except Exception as error:  # noqa: BLE001 - carried over to the loop's side, where it is an ending
            failure = error
        except BaseException as error:  # noqa: BLE001 - SystemExit and its kin, as in `_awaiting`
            failure = _exit(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(deliver, value, failure)

    threading.Thread(target=run, name=f"tool {tool.name}", daemon=True).start()
    return answer


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
