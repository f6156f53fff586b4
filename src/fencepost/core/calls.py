"""What the fold keeps of calls and turns. Written by `log.Fold` only."""

from __future__ import annotations

import msgspec

from fencepost.core import events as ev


class CallRecord(msgspec.Struct, gc=False):
    """What the log says about one call so far."""

    call_id: str
    name: str
    arguments: str
    turn: int
    step: int
    asked_seq: int
    provider_id: str = ""
    parent: str | None = None
    admitted: ev.ToolCall | None = None
    result: ev.ToolResult | None = None
    owner: str = ""
    """Who let it go, or asked for it if nobody did: the writer of the log at that time."""
    doubtful: bool = False
    """It was open at a gap, or an event on the far side of one speaks of it: what is missing may have been about it."""
    let_go: int | None = None
    """When it was let go first, in epoch milliseconds."""
    again: bool = False
    """It was let go twice: that the second time came to nothing says nothing of the first."""


class Turn(msgspec.Struct):
    """The newest turn, open or closed."""

    number: int
    gates: tuple[ev.Gate, ...]
    policy: str
    step: int = 0
    ended: ev.TurnEndReason | None = None
