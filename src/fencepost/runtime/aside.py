"""Blocking work of a stranger, in a thread of its own.

A daemon thread for each: one that never returns must not keep the process, or a pool's slot, for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


def in_thread(name: str, work: Callable[[], Any]) -> asyncio.Future[Any]:
    """Do `work` in a thread; it cannot be stopped, and its late answer is for whoever still listens."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
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
            value = variables.run(work)
        except StopIteration as error:
            failure = RuntimeError(f"StopIteration in a tool: {error}")  # a future cannot carry it as it is
        except Exception as error:  # noqa: BLE001 - carried over to the loop's side, where it is an ending
            failure = error
        except BaseException as error:  # noqa: BLE001 - SystemExit and its kin end the call, not the agent
            failure = exit_of(error)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(deliver, value, failure)

    threading.Thread(target=run, name=name, daemon=True).start()
    return answer


def exit_of(error: BaseException) -> RuntimeError:
    """A tool may end its call, not the process of the agent."""
    return RuntimeError(f"{type(error).__name__} in a tool")
