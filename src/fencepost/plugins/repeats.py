"""Repeats: a call that was made several times in a row, always with the same result, is not made once more.

    [plugin.repeats]
    same = 5        # times; 0: as often as the model likes

"The same" is the same tool with the same arguments, and to the letter the same result; "in a row" is with no other call
between, within one turn and what it goes on with. Counted from the log. Calls that never ran, because a policy denied
them for instance, do not count and do not interrupt a row; neither do nested calls, which are a program's business.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Annotated

import msgspec

from fencepost.core.calls import CallRecord
from fencepost.core.verdict import NOT_ENTERED
from fencepost.errors import IllegalEventError
from fencepost.plugins.approval_scopes import arguments_of, canonical
from fencepost.plugins.folded import Folded
from fencepost.plugins.turns import Turns, calls_of
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Admission, Candidate, Deny

SAME = 5
"""Times in a row, if nobody says otherwise."""


class RepeatsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[plugin.repeats]`.

    Attributes:
        same: how often the same call may have the same result in a row; 0: always.
    """

    same: Annotated[int, msgspec.Meta(ge=0)] | None = None


class Repeats:
    """The plugin.

    Args:
        same: see `RepeatsSettings`; the configuration's say counts more.
    """

    name = "repeats"
    requires: tuple[str, ...] = ()

    def __init__(self, same: int = SAME) -> None:
        self._given = self._same = same
        self._turns = Folded(Turns)

    def apply(self, context: PluginContext) -> None:
        """Stand among the policies."""
        given = context.configured(RepeatsSettings).same
        self._same = self._given if given is None else given
        if self._same:
            context.hook(lambda hooks: hooks.tool_admit, Position.POLICY, self._admit)

    async def _admit(self, call: Candidate, go_on: Callable[[Candidate], Awaitable[Admission]]) -> Admission:
        if call.parent is None and (times := self._times(call)) >= self._same:
            return Deny(
                f"this very call was made {times} times in a row, each time with the same result; once more would tell "
                "nothing new. Change something about it, do something else, or tell the user what is in the way"
            )
        return await go_on(call)

    def _times(self, call: Candidate) -> int:
        """How often this call was made last, with the same result each time; counted no further than it matters."""
        log = call.journal.log
        line = self._turns.of(log).line(call.turn)
        ran = (one for one in calls_of(log, line) if one.parent is None and _ran(one))
        last = next(ran, None)
        if last is None or not _is(last, call):
            return 0
        row = itertools.takewhile(lambda one: _is(one, call) and _result(one) == _result(last), ran)
        return 1 + sum(1 for _ in itertools.islice(row, self._same))


def _ran(record: CallRecord) -> bool:
    return record.result is not None and record.result.code not in NOT_ENTERED


def _is(record: CallRecord, call: Candidate) -> bool:
    if record.name != call.tool.name:
        return False
    try:
        return canonical(arguments_of(record)) == canonical(call.arguments)
    except IllegalEventError:
        return False  # a value that no log can hold


def _result(record: CallRecord) -> object:
    result = record.result
    return None if result is None else (result.content, result.is_error, result.code)
