"""Budget: what one turn may use up at most.

    [plugin.budget]
    calls = 50          # tool calls that are let go, nested ones included
    seconds = 900       # of work; the time in which a person is asked does not count
    tokens = 200000     # of all requests together, as the provider counts them

When something is used up, further calls are denied with the reason. Time and tokens also end the turn, as `blocked`,
before its next request; so do calls, when the model goes on asking for them. What was used is counted from the log
(`turns`), so that it survives a crash: a turn that goes on with an interrupted one has what that one left over.

It is looked at between requests and calls, not while one runs: a single request may go beyond it, once.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Annotated
from weakref import WeakKeyDictionary

import msgspec

from fencepost.core.log import Log
from fencepost.journal.session import Journal
from fencepost.plugins.folded import Folded
from fencepost.plugins.turns import Turns, calls_of
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Admission, Admit, Blocked, Candidate, Deny, StepPlan

PATIENCE = 3
"""Steps with nothing but calls that the budget denies, until the turn is ended."""

HOW = "a new prompt has a new budget; [plugin.budget] says how much"


class BudgetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[plugin.budget]`; what is left out is not limited.

    Attributes:
        calls: tool calls of one turn at most.
        seconds: of one turn at most.
        tokens: of one turn at most.
    """

    calls: Annotated[int, msgspec.Meta(ge=0)] | None = None
    seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    tokens: Annotated[int, msgspec.Meta(gt=0)] | None = None


class Budget:
    """The plugin.

    Args:
        calls: tool calls of one turn at most; None: any number. The configuration's say counts more, here and below.
        seconds: of one turn at most.
        tokens: of one turn at most.
    """

    name = "budget"
    requires: tuple[str, ...] = ()

    def __init__(self, calls: int | None = None, seconds: float | None = None, tokens: int | None = None) -> None:
        self._given = self._limits = BudgetSettings(calls, seconds, tokens)
        self._turns = Folded(Turns)
        self._passing: WeakKeyDictionary[Log, dict[str, int]] = WeakKeyDictionary()
        """Calls that were let pass and are not in the log yet, with their turns: nested ones come all at once."""

    def apply(self, context: PluginContext) -> None:
        """Stand among the policies, if there is a limit."""
        given = context.configured(BudgetSettings)
        known = {name: value for name, value in msgspec.structs.asdict(given).items() if value is not None}
        self._limits = msgspec.structs.replace(self._given, **known)
        if self._limits != BudgetSettings():
            context.hook(lambda hooks: hooks.before_step, Position.POLICY, self._before_step)
            context.hook(lambda hooks: hooks.tool_admit, Position.POLICY, self._admit)

    async def _before_step(self, plan: StepPlan, go_on: Callable[[StepPlan], Awaitable[None]]) -> None:
        used_up = self._used_up(plan.journal, plan.turn) or self._called_in_vain(plan)
        if used_up is not None:
            raise Blocked(f"the budget of this turn is used up: {used_up}; {HOW}")
        await go_on(plan)

    async def _admit(self, call: Candidate, go_on: Callable[[Candidate], Awaitable[Admission]]) -> Admission:
        used_up = self._used_up(call.journal, call.turn) or self._called(call)
        if used_up is not None:
            return Deny(f"the budget of this turn is used up: {used_up}. Finish with what there is; {HOW}")
        passing = self._passing.setdefault(call.journal.log, {})
        passing[call.call_id] = call.turn
        admission: Admission | None = None
        try:
            admission = await go_on(call)
            return admission
        finally:
            if not isinstance(admission, Admit):
                passing.pop(call.call_id, None)

    def _used_up(self, journal: Journal, turn: int) -> str | None:
        """What of time and tokens is used up, in words."""
        turns, limits = self._turns.of(journal.log), self._limits
        spent = [turns.spent[number] for number in turns.line(turn)]
        if limits.tokens is not None and (tokens := sum(one.tokens for one in spent)) >= limits.tokens:
            return f"{tokens} of {limits.tokens} tokens"
        if limits.seconds is not None:
            now = journal.identity.clock()
            seconds = sum(one.milliseconds(now) for one in spent) / 1000
            if seconds >= limits.seconds:
                return f"{seconds:.0f} of {limits.seconds:g} seconds"
        return None

    def _called(self, call: Candidate) -> str | None:
        """Whether there were calls enough, in words."""
        if self._limits.calls is None:
            return None
        log = call.journal.log
        line = self._turns.of(log).line(call.turn)
        calls = sum(1 for record in calls_of(log, line) if record.admitted is not None)
        passing = self._passing.get(log, {})
        for name, turn in list(passing.items()):
            record = log.fold.calls.get(name)
            if turn not in line or (record is not None and (record.admitted or record.result)):
                del passing[name]
        calls += len(passing)
        return f"{calls} of {self._limits.calls} calls" if calls >= self._limits.calls else None

    def _called_in_vain(self, plan: StepPlan) -> str | None:
        """Whether the model went on asking for calls after the last one that it had, in words."""
        limit, log = self._limits.calls, plan.journal.log
        if limit is None:
            return None
        records = list(calls_of(log, self._turns.of(log).line(plan.turn)))
        if sum(1 for record in records if record.admitted is not None) < limit:
            return None
        in_vain = itertools.takewhile(lambda record: record.admitted is None, records)
        steps = len({(record.turn, record.step) for record in in_vain})
        return f"{limit} of {limit} calls, and {steps} more steps asked for others" if steps >= PATIENCE else None
