"""How the turn of a prompt ended, from the log alone: for a client whose server, or connection, was lost meanwhile."""

from __future__ import annotations

from fencepost.core import events as ev
from fencepost.core.log import Log
from fencepost.errors import Cancelled, ClosedError, UsageError
from fencepost.runtime.loop import TurnResult


def outcome_of(log: Log, input_id: str) -> TurnResult:
    """The end of the turn that an input got.

    Raises:
        Cancelled: it was taken back.
        ClosedError: it has not run, and nothing runs it at present.
        UsageError: there is no such input.
    """
    if input_id not in log.fold.inputs:
        raise UsageError(f"there is no input {input_id} in this session")
    if input_id in log.fold.pending:
        act = "turn/continue runs it; prompt/drop takes it back"
        raise ClosedError(f"input {input_id} is kept and has not run", next_act=act)
    running, turn, text = 0, None, ""
    for event in log.events():
        if isinstance(event, ev.TurnStart):
            running = event.turn
        elif isinstance(event, ev.InputDropped) and event.input_id == input_id:
            raise Cancelled(f"input {input_id} was taken back: {event.reason}")
        elif isinstance(event, ev.UserMessage) and event.input_id == input_id:
            turn = running
        elif isinstance(event, ev.AssistantMessage) and event.turn == turn and not event.interrupted:
            text = ev.text_of(event.content)
        elif isinstance(event, ev.TurnEnd) and event.turn == turn:
            return TurnResult(event.turn, event.reason, text, event.code, event.message)
    raise ClosedError(f"the turn of input {input_id} has not ended")
