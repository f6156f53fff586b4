"""The policy: first on disk, then let go. Three gates; the closing one is the loop's own.

    gate      where                                                     on failure
    step      before each step is prepared                              the turn ends with an error, the prompt stays
    request   when the first piece of the model's stream is pulled,     nothing is sent, the turn ends with an error
              again on every retry
    tool      around the body, innermost; then the cancel signal is     result NOT_SAVED, or ABORTED_BEFORE_DISPATCH;
              looked at again                                           the body is not entered

This is a plugin, separate from the store. Leaving it out is legal and visible: `turn/start` then records fewer gates,
and what they would have proved is `outcome_unknown` (law 10). Another policy can take its place.

A nested call passes on its parent's clearance: the parent's `tool/call` is durable, and what the child does is part
of what the parent does (design.md, section 6). With `gate="own"` it is cleared like any other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from fencepost.core.verdict import ABORTED_BEFORE_DISPATCH, not_started_text
from fencepost.runtime.hooks import Position
from fencepost.runtime.models import ModelDelta, closing_stream
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Admitted, Attempt, StepPlan
from fencepost.runtime.tools import ToolReply


class Checkpoint:
    """The plugin. Stateless: one serves any number of sessions."""

    name = "checkpoint"
    requires: tuple[str, ...] = ()

    def apply(self, context: PluginContext) -> None:
        """Take the three gates."""
        context.hook(lambda hooks: hooks.before_step, Position.GATE, step_gate)
        context.hook(lambda hooks: hooks.model_stream, Position.GATE, request_gate)
        context.hook(lambda hooks: hooks.tool_execute, Position.GATE, tool_gate)


async def step_gate(plan: StepPlan, go_on: Callable[[StepPlan], Awaitable[None]]) -> None:
    """All that the step builds on is durable: the answers and results so far, and the prompt."""
    await plan.journal.flush()
    await go_on(plan)


async def request_gate(
    attempt: Attempt, go_on: Callable[[Attempt], AsyncIterator[ModelDelta]]
) -> AsyncIterator[ModelDelta]:
    """Lazily: this runs when the first piece is pulled, so the stream is not even made before the flush."""
    await attempt.journal.flush()
    attempt.cancel.check()
    async with closing_stream(go_on(attempt)) as stream:
        async for delta in stream:
            yield delta


async def tool_gate(call: Admitted, go_on: Callable[[Admitted], Awaitable[ToolReply]]) -> ToolReply:
    """The call's own `tool/call` is durable; then, and if nobody cancelled meanwhile, it is let go.

    A nested call passes with its parent, but for one: known not to be saved, perhaps because another writer took over,
    a session lets nothing more happen (law 4).
    """
    candidate = call.candidate
    journal = candidate.journal
    if candidate.parent is None or candidate.own_gate or journal.unsaved is not None:
        clearance = await journal.clear(call.event)
    else:
        clearance = journal.proof(call.rests_on)
    if candidate.cancel.cancelled:
        why = f"the turn was cancelled ({candidate.cancel.reason}) while the gate waited"
        return ToolReply(not_started_text(why), is_error=True, code=ABORTED_BEFORE_DISPATCH)
    return await go_on(call.cleared(clearance))
