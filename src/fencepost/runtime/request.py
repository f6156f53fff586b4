"""One attempt at one model request: pull the stream through the gate, record what arrives, give the whole answer.

Rules:
    1. The stream is only made here and only pulled inside the hooks, so that the request gate stands before the
       first byte that leaves (law 3).
    2. Text is recorded as it arrives. Of an attempt that fails, only the chunks stay.
    3. A stream that ends without the provider's end marker is `TRUNCATED`: kept, never taken for an answer.
    4. After a cancel the part that a person saw is recorded as `interrupted`; half tool calls are dropped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fencepost.core import events as ev
from fencepost.errors import Cancelled, ModelError
from fencepost.runtime.answer import Assembler
from fencepost.runtime.models import Finished, ReasoningDelta, TextDelta, closing_stream
from fencepost.runtime.subjects import Answer, Attempt

if TYPE_CHECKING:
    from fencepost.runtime.loop import Body


async def ask(body: Body, attempt: Attempt) -> Answer:
    """Send the request once and return its whole answer.

    Raises:
        NotSavedError: the request gate failed; nothing was sent.
        ModelError: the request failed, or its stream was cut.
        Cancelled: the turn was cancelled; what was visible is recorded.
    """
    attempt.cancel.check()
    assembler = Assembler(lambda: attempt.journal.identity.fresh("c"))
    pulling = asyncio.create_task(_pull(body, attempt, assembler), name="model stream")
    cancelled = asyncio.ensure_future(attempt.cancel.wait())
    try:
        await asyncio.wait({pulling, cancelled}, return_when=asyncio.FIRST_COMPLETED)
        if not pulling.done():
            await _stop(pulling)
        if attempt.cancel.cancelled:
            _look_at(pulling)
            _keep_visible(attempt, assembler, "cancelled")
            raise Cancelled(f"cancelled: {attempt.cancel.reason}")
        finish = pulling.result()
    finally:
        cancelled.cancel()
        if not pulling.done():
            await _stop(pulling)
    return Answer(assembler.blocks(finish), finish, assembler.usage)


async def _pull(body: Body, attempt: Attempt, assembler: Assembler) -> ev.Finish:
    stream = body.hooks.model_stream.bind(lambda inner: body.model.stream(inner.request))(attempt)
    finish: ev.Finish | None = None
    async with closing_stream(stream) as deltas:
        async for delta in deltas:
            assembler.feed(delta)
            if isinstance(delta, TextDelta):
                _chunk(attempt, delta.text, "text")
                await attempt.journal.room()
            elif isinstance(delta, ReasoningDelta):
                _chunk(attempt, delta.text, "reasoning")
            elif isinstance(delta, Finished):
                finish = delta.reason
    if finish is None:
        raise ModelError(
            f"the stream of {body.model.provider}:{body.model.model} ended without its end marker",
            code="TRUNCATED",
            retryable=True,
        )
    return finish


def _chunk(attempt: Attempt, text: str, kind: ev.Delta) -> None:
    if text:
        attempt.journal.append(ev.AssistantChunk, turn=attempt.turn, step=attempt.step, delta=text, kind=kind)


def _keep_visible(attempt: Attempt, assembler: Assembler, finish: ev.Finish) -> None:
    visible = assembler.visible()
    if visible:
        attempt.journal.append(
            ev.AssistantMessage,
            turn=attempt.turn,
            step=attempt.step,
            message_id=attempt.journal.identity.fresh("m"),
            content=visible,
            finish=finish,
            interrupted=True,
        )


async def _stop(task: asyncio.Task[ev.Finish]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _look_at(task: asyncio.Task[ev.Finish]) -> None:
    """A failure that a cancel overtook is not lost silently: asyncio would report it as never retrieved."""
    if not task.cancelled():
        task.exception()
