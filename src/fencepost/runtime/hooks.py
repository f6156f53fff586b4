"""The eight places where a plugin may stand around what the runtime does, and the order in which they stand.

Every hook is an around-hook: `hook(subject, next)`. It may look at the subject, refuse, change it, call `next` with
it (once, several times, or not at all), and look at what came back.

Where a registration stands is declared by its `Position`, never by who registered first:

    OBSERVE   sees everything, decides nothing (tracing, a user interface)
    POLICY    may refuse (rules, budgets, guards)
    ASK       asks a person, about what no policy has refused (approval)
    RETRY     may call `next` again
    SHAPE     may change what goes in or comes out (compaction, truncation)
    BOUND     limits what is inside (timeouts)
    GATE      innermost: nothing may stand between a gate and the effect

Rules:
    1. One gate per point: a second one is refused, for then neither would be next to the effect.
    2. Within a position, the one that was added first is outside.
    3. A registration belongs to its plugin and ends with it.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Generic, TypeAlias, TypeVar

from fencepost.core.events import Gate
from fencepost.errors import CompositionError
from fencepost.runtime.cancel import CancelSignal, unless_cancelled
from fencepost.runtime.models import ModelDelta
from fencepost.runtime.subjects import (
    Admission,
    Admitted,
    Answer,
    Attempt,
    Candidate,
    Compacted,
    Done,
    Pause,
    StepPlan,
    TurnStopping,
)
from fencepost.runtime.tools import ToolReply

S = TypeVar("S")
R = TypeVar("R")
T = TypeVar("T")


class Position(enum.IntEnum):
    """Where a registration stands, outermost first."""

    OBSERVE = 0
    POLICY = 1
    ASK = 2
    RETRY = 3
    SHAPE = 4
    BOUND = 5
    GATE = 6


Next: TypeAlias = Callable[[S], R]
Hook: TypeAlias = Callable[[S, Callable[[S], R]], R]


class HookPoint(Generic[S, R]):
    """One place, with the hooks that stand around it.

    Args:
        name: how the point is called in `fencepost config` and in errors.
        gate: the gate that a GATE registration here puts in force, if any.
    """

    def __init__(self, name: str, gate: Gate | None = None) -> None:
        self.name = name
        self.gate = gate
        self._hooks: list[tuple[Position, str, Hook[S, R]]] = []

    def __repr__(self) -> str:
        return f"<HookPoint {self.name}: {' > '.join(self.owners()) or 'empty'}>"

    def add(self, owner: str, position: Position, hook: Hook[S, R]) -> Callable[[], None]:
        """Put `hook` at `position`; returns what takes it away again.

        Raises:
            CompositionError: a second gate (rule 1), or a gate at a point that has no effect behind it.
        """
        if position is Position.GATE:
            self._refuse_gate(owner)
        entry = (position, owner, hook)
        self._hooks.append(entry)
        self._hooks.sort(key=lambda item: item[0])

        def remove() -> None:
            self._hooks = [kept for kept in self._hooks if kept is not entry]

        return remove

    def _refuse_gate(self, owner: str) -> None:
        if self.gate is None:
            raise CompositionError(f"{self.name}: {owner} wants the gate, and there is none at this point")
        if self.gate_owner() is not None:
            raise CompositionError(f"{self.name}: {owner} wants the gate, and {self.gate_owner()} holds it already")

    def gate_owner(self) -> str | None:
        """The plugin that holds the gate here, or None."""
        return next((owner for position, owner, _ in self._hooks if position is Position.GATE), None)

    def owners(self) -> list[str]:
        """`owner@POSITION` for each registration, outermost first."""
        return [f"{owner}@{position.name}" for position, owner, _ in self._hooks]

    def only_gate(self) -> bool:
        """Whether nobody stands here but, perhaps, a gate."""
        return all(position is Position.GATE for position, _, _ in self._hooks)

    def bind(self, innermost: Callable[[S], R]) -> Callable[[S], R]:
        """The whole chain around `innermost`, as one callable."""
        chain = innermost
        for _, _, hook in reversed(self._hooks):
            chain = _around(hook, chain)
        return chain


def _around(hook: Hook[S, R], inner: Callable[[S], R]) -> Callable[[S], R]:
    return lambda subject: hook(subject, inner)


async def through(
    point: HookPoint[S, Awaitable[T]],
    subject: S,
    innermost: Callable[[S], Awaitable[T]],
    cancel: CancelSignal,
    drain: float,
    patience: Callable[[], float] = lambda: 0.0,
) -> T:
    """Pass a point, and come back though a hook there hangs and the turn is cancelled; see `unless_cancelled`.

    A gate alone is simply awaited: a flush ends when its write does, and nobody can hurry that.

    Raises:
        Cancelled: the turn was cancelled, and the hooks were told to stop.
    """
    chain = point.bind(innermost)(subject)
    if point.only_gate():
        return await chain
    return await unless_cancelled(chain, cancel, drain, patience)


class Hooks:
    """The seven points in the order in which a turn passes them, and one that is passed between turns."""

    def __init__(self) -> None:
        self.before_step: HookPoint[StepPlan, Awaitable[None]] = HookPoint("before_step", "step")
        """Before a step is prepared. Raising `Blocked` ends the turn; the prompt stays pending."""
        self.model_request: HookPoint[Attempt, Awaitable[Answer]] = HookPoint("model_request")
        """Around the whole request of a step, retries included."""
        self.model_stream: HookPoint[Attempt, AsyncIterator[ModelDelta]] = HookPoint("model_stream", "request")
        """Around each attempt's stream. What it returns is pulled; nothing may be sent before that."""
        self.tool_admit: HookPoint[Candidate, Awaitable[Admission]] = HookPoint("tool_admit")
        """May this call run? Asked before `tool/call` is appended."""
        self.tool_execute: HookPoint[Admitted, Awaitable[ToolReply]] = HookPoint("tool_execute", "tool")
        """Around the body, behind `tool/call`."""
        self.tool_done: HookPoint[Done, Awaitable[ToolReply]] = HookPoint("tool_done")
        """Around the recording of a result; may shape the text that the model gets."""
        self.turn_stopping: HookPoint[TurnStopping, Awaitable[str | None]] = HookPoint("turn_stopping")
        """Nothing is owed any more. A text that comes back goes in as one more message, and the turn goes on."""
        self.compact: HookPoint[Pause, Awaitable[Compacted]] = HookPoint("compact")
        """Somebody asks, between turns, for a summary in the place of older steps."""

    def points(self) -> list[HookPoint[object, object]]:
        """All points, in turn order."""
        return [point for point in vars(self).values() if isinstance(point, HookPoint)]

    def gates(self) -> tuple[Gate, ...]:
        """The gates in force: those that some plugin holds, and the loop's own closing one (law 10)."""
        held: list[Gate] = [point.gate for point in self.points() if point.gate and point.gate_owner()]
        return (*held, "closing")

    def policy(self) -> str:
        """The plugins that hold the gates, for `turn/start`; `none` if nobody does."""
        owners = {owner for point in self.points() if (owner := point.gate_owner()) is not None}
        return "+".join(sorted(owners)) or "none"
