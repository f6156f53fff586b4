"""What a live session is seen through: an opening, events as they come, notices, an outcome.

`JsonView` is for programs: every line is JSON, events are printed when they are durable. Its first line is

    {"type":"session","session","store","cwd","model","guarantees","recovery"}

before any model request; then come the events that this process appends, closers included, as they are in the log; the
last line is the `Outcome`. `textview` is for people.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from fencepost.apps.cli.outlet import Outlet
from fencepost.client.wire import RecoveredCall, recovered
from fencepost.core.codec import encode
from fencepost.journal.inspect import PendingInput
from fencepost.journal.session import Recovery
from fencepost.runtime.guarantees import Guarantees
from fencepost.runtime.session import Session
from fencepost.runtime.subjects import Notice


class RecoveryView(msgspec.Struct, frozen=True):
    """What resuming found and did; all empty for a new session or a clean one.

    `half_answer` is what people saw of an answer that was cut.
    """

    interrupted: int | None = None
    set_aside: int = 0
    closed: int = 0
    calls: tuple[RecoveredCall, ...] = ()
    pending_inputs: tuple[PendingInput, ...] = ()
    half_answer: str = ""


class Opening(msgspec.Struct, frozen=True, tag_field="type", tag="session"):
    """The first line: which session, where, with which model (null where nothing will run), under which guarantees."""

    session: str
    store: str
    cwd: str
    model: str | None
    guarantees: Guarantees
    recovery: RecoveryView


class Outcome(msgspec.Struct, frozen=True, tag_field="type", tag="outcome"):
    """The last line.

    Attributes:
        session: its id; None where none came to be.
        reason: as in `turn/end`; `resumed` where no turn ran.
        text: the last whole answer's text.
        saved: whether all that happened survives this process.
        code: of what went wrong, if something did.
        message: the sentence that belongs to it.
        turn: the number of the last turn that ran.
    """

    session: str | None
    reason: str
    text: str = ""
    saved: bool = False
    code: str = ""
    message: str = ""
    turn: int | None = None


class View(Protocol):
    """How a live session is shown."""

    def opened(self, opening: Opening) -> None:
        """The session is open; nothing was asked of a model yet."""
        ...

    async def follow(self, session: Session, start: int) -> None:
        """Show the events from seq `start` on; returns behind the last one, when the session is closed."""
        ...

    def notice(self, notice: Notice) -> None:
        """Show what people should see now and the log does not keep."""
        ...

    def say(self, sentence: str) -> None:
        """Tell people something."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """It is over, and closed."""
        ...


class JsonView:
    """See the module.

    Args:
        out: where records go.
        err: where sentences for people go.
    """

    def __init__(self, out: Outlet, err: Outlet) -> None:
        self._out = out
        self._err = err

    def _line(self, record: msgspec.Struct) -> None:
        self._out.put(msgspec.json.encode(record) + b"\n")

    def opened(self, opening: Opening) -> None:
        """Print the first line."""
        self._line(opening)

    async def follow(self, session: Session, start: int) -> None:
        """Print each event once it is durable (law 9), in the bytes of the log."""
        async for event in session.events(start, durable=True):
            self._out.put(encode(event) + b"\n")
            await self._out.room()

    def notice(self, notice: Notice) -> None:
        """Sentences about saving go to standard error; the rest is for people who watch."""
        if notice.kind in {"saved", "not_saved"}:
            self.say(f"{'SAVED AGAIN' if notice.kind == 'saved' else 'NOT SAVED'}: {notice.text}")

    def say(self, sentence: str) -> None:
        """To standard error, so that standard output stays JSON."""
        self._err.put(f"fencepost: {sentence}\n".encode(errors="replace"))

    def ended(self, outcome: Outcome) -> None:
        """Print the last line."""
        self._line(outcome)


def recovery_view(recovery: Recovery, pending: tuple[PendingInput, ...], half: str = "") -> RecoveryView:
    """A recovery as it is printed."""
    found = recovered(recovery)
    return RecoveryView(found.interrupted, found.set_aside, found.closed, found.calls, pending, half)
