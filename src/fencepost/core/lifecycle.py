"""Which event may follow which state: one table, printed by `python -m fencepost.core.lifecycle`.

Two kinds of rules keep a log legal. This table is the first: the shape of turns and steps. The second, in `log.py`,
is the bookkeeping of names: turns and steps count up by one, a call has one `tool/call` and one `tool/result`, an
input is consumed once, and a step ends when every call has its result.

States:
    IDLE      no turn is open
    TURN      a turn is open, no step is
    STEP      a step is open and its request is being prepared, sent or answered
    ANSWERED  the step has its answer; its calls are admitted, run and finished

Rule 1: an event that is not in the row of the present state is refused at append.
Rule 2: events of plugins are legal in every state and change none.
"""

from __future__ import annotations

import enum

from fencepost.core import events as ev


class State(enum.Enum):
    """Where a session stands."""

    IDLE = "idle"
    TURN = "turn"
    STEP = "step"
    ANSWERED = "answered"

    __hash__ = object.__hash__  # members are single; an enum hashes names, in Python, and this is done at each append

    def __repr__(self) -> str:
        return f"State.{self.name}"


IDLE, TURN, STEP, ANSWERED = State

ANYWHERE: tuple[type[ev.Event], ...] = (
    ev.SessionOwner,
    ev.InputQueued,
    ev.InputDropped,
    ev.ToolNote,
    ev.Gap,
    ev.Salvaged,
)

TABLE: dict[State, dict[type[ev.Event], State]] = {
    IDLE: {
        ev.TurnStart: TURN,
        ev.ContextSummary: IDLE,
    },
    TURN: {
        ev.StepStart: STEP,
        ev.ContextSummary: TURN,
        ev.TurnEnd: IDLE,
    },
    STEP: {
        ev.UserMessage: STEP,
        ev.RequestHeader: STEP,
        ev.RequestRetry: STEP,
        ev.AssistantChunk: STEP,
        ev.AssistantMessage: ANSWERED,
        ev.StepEnd: TURN,
    },
    ANSWERED: {
        ev.ApprovalAsked: ANSWERED,
        ev.ApprovalDecided: ANSWERED,
        ev.ToolCall: ANSWERED,
        ev.ToolResult: ANSWERED,
        ev.StepEnd: TURN,
    },
}

for _state, _row in TABLE.items():
    _row.update(dict.fromkeys(ANYWHERE, _state))

_CORE = frozenset(ev.CORE_EVENTS)


def next_state(state: State, kind: type[ev.Event]) -> State | None:
    """The state after an event of `kind`, or None where the table refuses it."""
    after = TABLE[state].get(kind)
    if after is None and kind not in _CORE:
        return state
    return after


def table() -> str:
    """The table as text: a row for each event, a column for each state, the state after it in the cell."""
    width = max(len(kind.type_name()) for kind in ev.CORE_EVENTS) + 2
    lines = ["event".ljust(width) + "".join(state.value.ljust(10) for state in State)]
    for kind in ev.CORE_EVENTS:
        cells = [TABLE[state].get(kind) for state in State]
        lines.append(kind.type_name().ljust(width) + "".join((cell.value if cell else "·").ljust(10) for cell in cells))
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    print(table())
