"""What each turn of a session has used up so far: time and tokens, folded from its log.

    time      from `turn/start` to `turn/end`, or to now; without the time in which a person was asked. A turn that was
              interrupted ends with the last thing that is known of it: the time in which no process lived is nobody's.
    tokens    input and output of each answer and each summary, as the provider counted them, cached ones included.
              What no provider counted is not known, and counts nothing.

A turn that goes on with an interrupted one (`continues`) is one with it: `line` names them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from fencepost.core import events as ev
from fencepost.core.calls import CallRecord
from fencepost.core.log import Log


class Spent(msgspec.Struct):
    """What one turn has used up. Times in epoch milliseconds."""

    began: int
    continues: int | None
    ended: int | None = None
    tokens: int = 0
    waited: int = 0
    asked: dict[str, None] = {}
    asked_since: int = 0

    def milliseconds(self, now: int) -> int:
        """How long it has worked. A clock that was set back makes it shorter, never less than nothing."""
        end = self.ended if self.ended is not None else now
        waiting = max(0, end - self.asked_since) if self.asked else 0
        return max(0, end - self.began - self.waited - waiting)


class Turns:
    """The turns of one session: a fold over its log, see `folded`."""

    def __init__(self) -> None:
        self.spent: dict[int, Spent] = {}
        self._open: Spent | None = None
        self._plan: dict[type, Callable[[Spent, Any], None]] = {
            ev.AssistantMessage: _count,
            ev.ContextSummary: _count,
            ev.ApprovalAsked: _ask,
            ev.ApprovalDecided: _told,
            ev.ToolResult: _told,
            ev.TurnEnd: self._end,
        }

    def take(self, entry: ev.Entry) -> None:
        """Take the next entry of the log in."""
        if type(entry) is ev.TurnStart:
            self._open = self.spent[entry.turn] = Spent(entry.time, entry.continues)
        elif self._open is not None and (step := self._plan.get(type(entry))) is not None:
            step(self._open, entry)

    def line(self, turn: int) -> tuple[int, ...]:
        """The turn and those that it goes on with, the newest first."""
        turns: list[int] = []
        number: int | None = turn
        while number is not None and number in self.spent and number not in turns:
            turns.append(number)
            number = self.spent[number].continues
        return tuple(turns)

    def _end(self, spent: Spent, event: ev.TurnEnd) -> None:
        if spent.asked:
            spent.waited += max(0, event.time - spent.asked_since)
            spent.asked = {}
        spent.ended = event.time
        self._open = None


def _count(spent: Spent, event: ev.AssistantMessage | ev.ContextSummary) -> None:
    if event.usage is not None:
        spent.tokens += event.usage.input_tokens + event.usage.output_tokens


def _ask(spent: Spent, event: ev.ApprovalAsked) -> None:
    if not spent.asked:
        spent.asked_since = event.time
    spent.asked[event.call_id] = None


def _told(spent: Spent, event: ev.ApprovalDecided | ev.ToolResult) -> None:
    if event.call_id in spent.asked:
        del spent.asked[event.call_id]
        if not spent.asked:
            spent.waited += max(0, event.time - spent.asked_since)


def calls_of(log: Log, line: tuple[int, ...]) -> Iterator[CallRecord]:
    """The calls of some turns, the newest first."""
    oldest = min(line, default=0)
    for record in reversed(log.fold.calls.values()):
        if record.turn < oldest:
            return
        if record.turn in line:
            yield record
