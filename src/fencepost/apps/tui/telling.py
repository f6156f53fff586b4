"""Events to what a terminal shows: the same for a turn that runs and for a history that is read back.

    user/message        what was said
    assistant/chunk     a piece of an answer, or of what the model thinks, while it streams
    assistant/message   the answer, whole; then its calls
    tool/call           the call was let go
    tool/result         the end of the call, once it is durable (the transcript waits for that)
    turn/end            a line, where the turn did not simply end

Rules:
    1. Of a history, whole answers are shown; chunks only of an answer that never became one: somebody saw them.
    2. A history that is long is shown from a later event on, with a word on it: what is shown is bounded.

What it refuses to be: it knows no widget and waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

import msgspec

from fencepost.core import events as ev

SHOWN = 150
"""Messages and results of a history that are shown at most."""

Tone: TypeAlias = Literal["quiet", "warning", "bad"]


class Said(msgspec.Struct, frozen=True):
    """A person said this."""

    text: str


class Piece(msgspec.Struct, frozen=True):
    """The next piece of what the model says, or thinks."""

    kind: ev.Delta
    text: str


class Whole(msgspec.Struct, frozen=True):
    """All that the model said at once, and what of it was thinking. Replaces the pieces of it."""

    text: str
    reasoning: str
    interrupted: bool


class Failed(msgspec.Struct, frozen=True):
    """The pieces so far belong to an attempt that failed."""

    why: str


class Asked(msgspec.Struct, frozen=True):
    """The model asks for a call."""

    call_id: str


class LetGo(msgspec.Struct, frozen=True):
    """A call runs."""

    call_id: str


class Over(msgspec.Struct, frozen=True):
    """A call has its result, which event `seq` is."""

    call_id: str
    seq: int


class Line(msgspec.Struct, frozen=True):
    """A line of fencepost's own."""

    text: str
    tone: Tone = "quiet"


Item: TypeAlias = Said | Piece | Whole | Failed | Asked | LetGo | Over | Line


def tell(event: ev.Entry) -> Iterator[Item]:
    """What is shown of one event."""
    match event:
        case ev.UserMessage():
            yield Said(ev.text_of(event.content))
        case ev.AssistantChunk():
            yield Piece(event.kind, event.delta)
        case ev.ChunkRun():
            yield Piece(event.kind, "".join(event.deltas))
        case ev.AssistantMessage():
            reasoning = "".join(block.text for block in event.content if isinstance(block, ev.Reasoning))
            yield Whole(ev.text_of(event.content), reasoning, event.interrupted)
            yield from (Asked(call.call_id) for call in ev.calls_of(event))
        case ev.RequestRetry():
            seconds = event.delay_ms / 1000
            yield Failed(f"the request failed ({event.message}); it is tried again in {seconds:g} s")
        case ev.ToolCall():
            yield LetGo(event.call_id)
        case ev.ToolResult():
            yield Over(event.call_id, event.seq)
        case _:
            yield from _aside(event)


def _aside(event: ev.Entry) -> Iterator[Item]:
    """What stands beside the conversation."""
    match event:
        case ev.TurnEnd(reason="interrupted"):
            yield Line("this turn was interrupted: its process ended in the middle of it", "warning")
        case ev.TurnEnd(reason="aborted"):
            yield Line("cancelled" if event.message in {"", "user"} else f"cancelled: {event.message}", "warning")
        case ev.TurnEnd(reason="error" | "blocked" | "max_tokens"):
            why = ": ".join(part for part in (event.code, event.message) if part)
            yield Line(f"the turn ended, {event.reason}" + (f" ({why})" if why else ""), "bad")
        case ev.InputDropped():
            yield Line("a prompt was taken back before the model saw it")
        case ev.ToolNote():
            yield Line(event.text)
        case ev.ContextSummary():
            yield Line("what was said until here is summed up for the model; the session keeps all of it")
        case ev.Gap():
            yield Line("a part of this session's log is missing here", "bad")


def history(entries: Sequence[ev.Entry], limit: int = SHOWN) -> Iterator[Item]:
    """What is shown of a log that was written before.

    Args:
        entries: of the log.
        limit: messages and results at most.
    """
    start = _start(entries, limit)
    if start:
        yield Line("… what was said before is not shown here: /show draws all of it")
    pieces: list[Piece] = []
    for entry in entries[start:]:
        for item in tell(entry):
            if isinstance(item, Piece):
                pieces.append(item)
                continue
            if isinstance(item, Whole | Failed):
                pieces.clear()
            elif pieces and not isinstance(item, Said):
                yield _half(pieces)
            yield item
    if pieces:
        yield _half(pieces)


def _half(pieces: list[Piece]) -> Whole:
    """The visible part of an answer that never became one."""
    text = "".join(piece.text for piece in pieces if piece.kind == "text")
    reasoning = "".join(piece.text for piece in pieces if piece.kind == "reasoning")
    pieces.clear()
    return Whole(text, reasoning, interrupted=True)


def _start(entries: Sequence[ev.Entry], limit: int) -> int:
    """Where the part of a log begins that is shown: at a message, so that no call stands without its answer."""
    seen = 0
    for index in range(len(entries) - 1, -1, -1):
        entry = entries[index]
        seen += isinstance(entry, ev.UserMessage | ev.AssistantMessage | ev.ToolResult)
        if seen >= limit and isinstance(entry, ev.UserMessage | ev.AssistantMessage):
            return index
    return 0
