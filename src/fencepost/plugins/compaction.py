"""Compaction: when the context nears its limit, a summary takes the place of closed steps (docs/notes/0014).

Rules:
    1. One event, `context/summary`, changes what a model sees, and nothing else: the log is never rewritten, and a
       crash before that event is durable leaves the old history in force.
    2. It reaches to the end of a step, so a call and its result are seen together or not at all (core).
    3. The summary is made from the log, by a request of its own that passes the request gate.
    4. What is no good leaves the history as it is, and is said: a request that fails, an answer that was cut, is empty
       or is longer than what it would replace. It is not tried again before the context has grown; nor is it where a
       summary did not help.
    5. The newest steps are kept as they are. If they alone are too much, fewer of them; in the end none.

Without a limit nothing happens by itself: how large a model's window is, only the configuration knows.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Annotated
from weakref import WeakKeyDictionary

import msgspec

from fencepost.core import events as ev
from fencepost.core.log import Fold
from fencepost.errors import Cancelled, ModelError, UsageError
from fencepost.journal.session import Journal
from fencepost.plugins.compaction_text import SYSTEM, Cut, context_size, conversation, cut_at, summary_text, tokens
from fencepost.runtime.answer import WHOLE
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.replies import sentence
from fencepost.runtime.subjects import Answer, Compacted, Notice, Pause, StepPlan

NO_SUMMARY = "NO_SUMMARY"
"""The code of an answer that is no summary."""

WORTH = 4
"""By itself, nothing is summed up that is less than this part of what was said: each time costs a request."""

PATIENCE = 20
"""After a failure the context has to grow by this part of itself before it is tried again."""

RESERVED = 4
"""This part of the limit is left free in the request for a summary: for the answer, and for what was counted badly."""


class CompactionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[plugin.compaction]`.

    Attributes:
        limit: tokens that the model's context holds; without it nothing is summed up by itself.
        at: the part of it at which that happens.
        keep: closed steps, the newest, that stay as they are.
    """

    limit: Annotated[int, msgspec.Meta(ge=1000)] | None = None
    at: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.8
    keep: Annotated[int, msgspec.Meta(ge=1)] = 4


class Compaction:
    """The plugin."""

    name = "compaction"
    requires: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._settings = CompactionSettings()
        self._again: WeakKeyDictionary[Journal, int] = WeakKeyDictionary()
        """After a failure: the size at which it is tried again."""

    def apply(self, context: PluginContext) -> None:
        """Stand before each step, if there is a limit, and wherever somebody asks for a summary."""
        self._settings = context.configured(CompactionSettings)
        if self._settings.limit is not None:
            context.hook(lambda hooks: hooks.before_step, Position.SHAPE, self._before)
        context.hook(lambda hooks: hooks.compact, Position.SHAPE, self._asked)

    async def _asked(self, pause: Pause, go_on: Callable[[Pause], Awaitable[Compacted]]) -> Compacted:  # noqa: ARG002
        """Somebody wants it: whatever the size, but not without the newest step, which may be owed an answer."""
        cut = self._cut(pause.journal.log.fold)
        if cut is None:
            raise UsageError("there is nothing to sum up: the newest step is kept as it is")
        return await self._sum_up(pause, cut)

    async def _before(self, plan: StepPlan, go_on: Callable[[StepPlan], Awaitable[None]]) -> None:
        now = context_size(plan.journal.log.fold, plan.claims)
        if now >= max(self._room, self._again.get(plan.journal, 0)):
            why = await self._by_itself(plan.pause)
            if why is not None:
                self._again[plan.journal] = now * (PATIENCE + 1) // PATIENCE
                plan.pause.notify(Notice("note", f"the context is near its limit, with about {now} tokens: {why}"))
        await go_on(plan)

    async def _by_itself(self, pause: Pause) -> str | None:
        """Sum up if that is worth it; why it is no use to try again soon, or None."""
        cut = self._cut(pause.journal.log.fold)
        if cut is None or cut.rest > self._room:
            cut = cut_at(pause.journal.log.fold, 0)
        if cut is None or cut.part * (WORTH - 1) < cut.rest:
            return "too little of it is in steps that could be summed up"
        try:
            done = await self._sum_up(pause, cut)
        except Cancelled:
            raise
        except Exception as error:  # noqa: BLE001 - the history is as it was; the step's own request has its own say
            return f"it was not summed up: {sentence(error)}"
        if done.after < self._room:
            self._again.pop(pause.journal, None)
            return None
        return f"it was, and is still about {done.after} tokens"

    def _cut(self, fold: Fold) -> Cut | None:
        """The cut that keeps as many steps as it should, or fewer if those alone are half of what is allowed."""
        found = None
        for keep in range(self._settings.keep, 0, -1):
            found = cut_at(fold, keep)
            if found is not None and found.rest <= self._room / 2:
                break
        return found

    @property
    def _room(self) -> float:
        """Tokens that a context may have before it is summed up."""
        return math.inf if self._settings.limit is None else self._settings.limit * self._settings.at

    async def _sum_up(self, pause: Pause, cut: Cut) -> Compacted:
        """Ask for the summary and record it.

        Raises:
            NotSavedError, ModelError, Cancelled: nothing was recorded.
        """
        log = pause.journal.log
        limit = self._settings.limit
        pause.notify(Notice("progress", f"summing up {cut.steps} steps, about {cut.part} tokens"))
        room = None if limit is None else limit - limit // RESERVED - tokens(SYSTEM)
        before = context_size(log.fold)
        answer = await pause.ask(SYSTEM, conversation(log.fold, cut.through, room))
        text = summary_text(_summary(answer), log, cut.through)
        if tokens(text) >= cut.part:
            raise ModelError("the summary is longer than what it would replace", code=NO_SUMMARY)
        pause.cancel.check()
        pause.journal.append(
            ev.ContextSummary,
            through=cut.through,
            content=(ev.Text(text),),
            model=pause.model,
            usage=answer.usage,
        )
        return Compacted(cut.through, cut.steps, before, context_size(log.fold))


def _summary(answer: Answer) -> str:
    if answer.finish not in WHOLE:
        raise ModelError(f"the summary was cut ({answer.finish})", code=NO_SUMMARY)
    text = ev.text_of(answer.content)
    if not text.strip():
        raise ModelError("the model gave no summary", code=NO_SUMMARY)
    return text
