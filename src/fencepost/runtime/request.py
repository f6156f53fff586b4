"""One attempt at one model request: pull the stream through the gate, record what arrives, give the whole answer.

Rules:
    1. The stream is only made here and only pulled inside the hooks, so that the request gate stands before the
       first byte that leaves (law 3).
    2. Text is recorded as it arrives. Of an attempt that is followed by another, only the chunks stay; of the last
       one the part that a person saw is recorded as `interrupted`, without half tool calls (`keep_visible`). Of a
       request that belongs to no step (`Attempt.aside`) nothing is recorded.
    3. A stream that ends without the provider's end marker is `TRUNCATED`: kept, never taken for an answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fencepost.core import events as ev
from fencepost.errors import ModelError
from fencepost.runtime.answer import Assembler
from fencepost.runtime.cancel import stop
from fencepost.runtime.models import Finished, ReasoningDelta, TextDelta, closing_stream
from fencepost.runtime.subjects import Answer, Attempt

if TYPE_CHECKING:
    from fencepost.runtime.loop import Body


async def ask(body: Body, attempt: Attempt, assembler: Assembler) -> Answer:
    """Send the request once and return its whole answer.

    Args:
        body: the model, and what stands around it.
        attempt: which request.
        assembler: takes what arrives; holds what was visible when this raises.

    Raises:
        NotSavedError: the request gate failed; nothing was sent.
        ModelError: the request failed, or its stream was cut.
        Cancelled: the turn was cancelled.
    """
    attempt.cancel.check()
    pulling = asyncio.create_task(_pull(body, attempt, assembler), name="model stream")
    cancelled = attempt.cancel.waiter()
    try:
        both: set[asyncio.Future[Any]] = {pulling, cancelled}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        cancelled.cancel()
        if not pulling.done() or attempt.cancel.cancelled:
            await stop(pulling, body.rules.drain)
    attempt.cancel.check()
    if pulling.cancelled():
        raise ModelError(f"the stream of {_name(body)} was cancelled from inside", code="TRUNCATED", retryable=True)
    finish = pulling.result()
    return Answer(assembler.blocks(finish), finish, assembler.usage)


async def _pull(body: Body, attempt: Attempt, assembler: Assembler) -> ev.Finish:
    stream = body.hooks.model_stream.bind(lambda inner: body.model.stream(inner.request))(attempt)
    finish: ev.Finish | None = None
    async with closing_stream(stream) as deltas:
        async for delta in deltas:
            assembler.feed(delta)
            if isinstance(delta, TextDelta | ReasoningDelta) and not attempt.aside:
                _chunk(attempt, delta.text, "text" if isinstance(delta, TextDelta) else "reasoning")
                await attempt.journal.room()
            elif isinstance(delta, Finished):
                finish = delta.reason
    if finish is None or finish in {"truncated", "cancelled"}:
        raise ModelError(f"the stream of {_name(body)} ended without its end marker", code="TRUNCATED", retryable=True)
    return finish


def _name(body: Body) -> str:
    return f"{body.model.provider}:{body.model.model}"


def _chunk(attempt: Attempt, text: str, kind: ev.Delta) -> None:
    if text:
        attempt.journal.append(ev.AssistantChunk, turn=attempt.turn, step=attempt.step, delta=text, kind=kind)


def keep_visible(attempt: Attempt, assembler: Assembler, since: int) -> None:
    """Record what a person saw of an answer that will not come: cut, or cancelled.

    Args:
        attempt: which request.
        assembler: of its last attempt.
        since: the seq at which that attempt began. A retry that is recorded behind it has taken those words back.
    """
    visible = assembler.visible()
    retried = any(isinstance(event, ev.RequestRetry) for event in attempt.journal.log.events(since))
    if visible and not retried:
        attempt.journal.append(
            ev.AssistantMessage,
            turn=attempt.turn,
            step=attempt.step,
            message_id=attempt.journal.identity.fresh("m"),
            content=visible,
            finish="cancelled" if attempt.cancel.cancelled else "truncated",
            interrupted=True,
        )
