"""What a tool can say after a crash about a call whose outcome the log does not know.

    Completed       the call finished, with this reply
    DidNotRun       its body had no effect
    StillRunning    something that the call started is at it still
    Unknown         nothing more than the log says; the note is for whoever has to find out

A tool says so from evidence that it left (a receipt) or that the world has (a payment under the call's key). It looks
and changes nothing: `fencepost inspect --settle` asks too.

What this module refuses to be: the asking (`settle`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from fencepost.core.events import Effect


class UnsettledCall(msgspec.Struct, frozen=True):
    """A call that has no result, as a tool's `settle` gets it.

    Attributes:
        call_id: the key that the body was given.
        session_id: the session.
        name: of the tool.
        arguments: as the body got them, or would have.
        effect: as it was declared when the call was let go.
        let_go: when its `tool/call` was written, in epoch milliseconds; None: the log has none.
        cwd: the session's working directory.
        files: the session's directory for receipts and large output; it may be missing.
        owner: who let it go, as PID@HOST; empty where that is not known. Elsewhere `files` may be another directory.
        vouched: whether `files` is certain to hold every receipt that its body left there. False: perhaps they are
            elsewhere, or gone (a fork, a copy, a backup that was put back), and that there is none says nothing.
    """

    call_id: str
    session_id: str
    name: str
    arguments: dict[str, Any]
    effect: Effect
    let_go: int | None
    cwd: Path
    files: Path
    owner: str = ""
    vouched: bool = False


class Completed(msgspec.Struct, frozen=True):
    """It finished.

    Attributes:
        result: what the body would have given: text, what JSON can show as text, or a `ToolReply`.
        evidence: what says so, in short.
    """

    result: Any
    evidence: str


class DidNotRun(msgspec.Struct, frozen=True):
    """It had no effect. `why` is half a sentence, and the evidence."""

    why: str


class Survivor(Protocol):
    """What a call started, and what lives on."""

    async def wait(self) -> Settlement:
        """Wait for its end, and say how it ended. Cancelling leaves it alone."""
        ...

    async def end(self) -> Settlement:
        """End it with all that it started, and say what is known then."""
        ...


class StillRunning(msgspec.Struct, frozen=True):
    """It is at it still.

    Attributes:
        handle: to wait for it or to end it.
        evidence: what lives (process, since when), in short.
    """

    handle: Survivor
    evidence: str


class Unknown(msgspec.Struct, frozen=True):
    """It cannot be said. `note` is what is known, in short; empty for nothing."""

    note: str = ""


Settlement: TypeAlias = Completed | DidNotRun | StillRunning | Unknown

Settle: TypeAlias = Callable[[UnsettledCall], Settlement | Awaitable[Settlement]]
"""What a tool gives. A plain function runs in a thread."""

Tidy: TypeAlias = Callable[[UnsettledCall], None]
"""Removes what a call of an interrupted turn left behind, where it is provably its own and nothing uses it any more.

Called at `resume`, in a thread, under the lock, once the call's result is durable; again at each resume until the next
turn, for one may have been killed.
"""
