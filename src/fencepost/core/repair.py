"""Log to closers: the events that end an interrupted turn.

A pure function of the durable log and of what is known about lost bytes. Closers reuse the last event's time, so the
same log always gives the same closers; after they are appended there is nothing left to close, so doing it twice is
doing it once.

Order: a result for every call without one (in call order, nested calls before their parent), then `step/end`, then
`turn/end` with the reason `interrupted`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from fencepost.core import events as ev
from fencepost.core.lifecycle import State
from fencepost.core.log import CallRecord, Fold
from fencepost.core.verdict import (
    NO_EVIDENCE,
    TOOL_NOT_STARTED,
    Evidence,
    not_started_text,
    unknown_text,
    verdict_of,
)

STARTED = "fencepost was interrupted after this call was let go and before its result was recorded"
UNGATED = "fencepost was interrupted, and no tool gate was in force that would tell whether this call had started"
LOST = "fencepost was interrupted, and a part of its log that may have recorded the start of this call is missing"
NOT_LET_GO = "fencepost was interrupted before this call was let go"


class Closer(msgspec.Struct, frozen=True):
    """One event to append: its type and fields. Its time is the last event's."""

    cls: type[ev.Event]
    fields: dict[str, Any]


def closers(fold: Fold, evidence: Evidence = NO_EVIDENCE) -> list[Closer]:
    """What has to be appended so that nothing is open; empty for a clean log."""
    if fold.state is State.IDLE or fold.turn is None:
        return []
    turn, step = fold.turn.number, fold.turn.step
    out = [result_of(fold.calls[name], fold.turn.gates, evidence) for name in inner_first(fold)]
    if fold.state in {State.STEP, State.ANSWERED}:
        out.append(Closer(ev.StepEnd, {"turn": turn, "step": step, "synthetic": True}))
    out.append(Closer(ev.TurnEnd, {"turn": turn, "reason": "interrupted", "synthetic": True}))
    return out


def inner_first(fold: Fold) -> list[str]:
    """The owed calls in call order, but each nested one before the call that it belongs to."""
    ordered: list[str] = []

    def place(name: str) -> None:
        for child in fold.owed:
            if fold.calls[child].parent == name:
                place(child)
        ordered.append(name)

    for name in fold.owed:
        parent = fold.calls[name].parent
        if parent is None or parent not in fold.owed:
            place(name)
    return ordered


def result_of(call: CallRecord, gates: tuple[ev.Gate, ...], evidence: Evidence) -> Closer:
    """The result of one call that has none."""
    verdict = verdict_of(call, gates, evidence)
    if verdict.code == TOOL_NOT_STARTED:
        text = not_started_text(NOT_LET_GO)
    elif call.admitted is not None:
        text = unknown_text(STARTED)
    else:
        text = unknown_text(LOST if "tool" in gates else UNGATED)
    return Closer(
        ev.ToolResult,
        {
            "turn": call.turn,
            "step": call.step,
            "call_id": call.call_id,
            "content": (ev.Text(text),),
            "is_error": True,
            "code": verdict.code,
            "synthetic": True,
        },
    )
