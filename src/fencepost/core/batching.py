"""Write-behind as a pure machine: which events go into which write, and when.

It mutates its own few numbers and says what to do next; `journal/writer.py` does it. Times are seconds of any clock
that does not step back, handed in.

Rules (design.md, section 6):
    1. The first pending event opens a window that later ones do not move. At its end everything pending is written.
    2. At most one write is in flight. What is accepted meanwhile has a window of its own; if that has passed when
       the write ends, the next write starts right then.
    3. An urgent event, or a flush, ends the window now.
    4. A flush asks for a watermark. The write that covers it answers it, well or badly; a write in flight that does
       not cover it never does, and is then followed at once by one that does.
    5. A failed batch is pending again, in front of what came later. Nothing retries it by itself: the next event,
       the window of an event that came during the failed write, or the next flush takes it along.

Together they make law 6: every write begins right behind what is durable and ends with the newest event accepted,
so what is durable is always a prefix, and each event is in exactly one write that succeeded.

What it refuses to be: a queue. It knows seqs and sizes; the events stay in the log.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

WINDOW = 0.2
"""Seconds from the first pending event to its write."""

BOUND = 8 * 1024 * 1024
"""Bytes that may be pending before whoever appends should wait."""


class Write(msgspec.Struct, frozen=True):
    """Write the events from `first_seq` to `last_seq`, then call `wrote` or `failed`."""

    first_seq: int
    last_seq: int


class ArmTimer(msgspec.Struct, frozen=True):
    """Call `due` at this time. Replaces what was armed before; a time that has passed means now."""

    at: float


Action: TypeAlias = Write | ArmTimer | None


class Batching:
    """The state of one session's write-behind.

    Args:
        durable: seq of the last event that is stored already, -1 if none.
        window: seconds.
        bound: bytes.
    """

    __slots__ = ("_asked", "_bound", "_deadline", "_in_flight", "_window", "durable", "last", "pending", "writing")

    def __init__(self, durable: int = -1, *, window: float = WINDOW, bound: int = BOUND) -> None:
        self.durable = durable
        """Seq of the last acknowledged event."""
        self.last = durable
        """Seq of the last accepted event."""
        self.pending = 0
        """Bytes that are accepted and not acknowledged, those in flight included."""
        self.writing: Write | None = None
        """The write in flight."""
        self._window = window
        self._bound = bound
        self._deadline: float | None = None
        self._asked = -1
        self._in_flight = 0

    def __repr__(self) -> str:
        flight = f"writing {self.writing.first_seq}..{self.writing.last_seq}" if self.writing else "idle"
        due = "paused" if self._deadline is None else f"due {self._deadline:.3f}"
        return f"<Batching durable {self.durable} | {flight} | accepted {self.last}, {self.pending} bytes, {due}>"

    @property
    def over_bound(self) -> bool:
        """Whether more bytes are pending than should be."""
        return self.pending > self._bound

    def accept(self, seq: int, size: int, now: float, urgent: bool = False) -> ArmTimer | None:
        """Take in an event of `size` bytes. A packed run is taken in by its last seq.

        Raises:
            ValueError: the seq does not grow.
        """
        if seq <= self.last:
            raise ValueError(f"seq {seq} was accepted before (the last one is {self.last})")
        self.last = seq
        self.pending += size
        wanted = now if urgent else now + self._window
        if self._deadline is not None and self._deadline <= wanted:
            return None
        self._deadline = wanted
        return None if self.writing else ArmTimer(wanted)

    def flush(self, seq: int, now: float) -> ArmTimer | None:
        """Ask that everything up to `seq` becomes durable. Answered by the first write to end with `last_seq >= seq`.

        Raises:
            ValueError: `seq` was not accepted, so no write would ever answer.
        """
        if seq > self.last:
            raise ValueError(f"seq {seq} was never accepted (the last one is {self.last})")
        if seq <= self.durable:
            return None
        self._asked = max(self._asked, seq)
        if self.writing:
            return None
        self._deadline = now
        return ArmTimer(now)

    def due(self, now: float) -> Action:
        """The timer fired. Early, late and superfluous calls do no harm."""
        return None if self.writing else self._next(now)

    def wrote(self, now: float) -> Action:
        """The write in flight is durable."""
        write = self._landed()
        self.durable = write.last_seq
        self.pending -= self._in_flight
        return self._next(now)

    def failed(self, now: float) -> Action:
        """The write in flight left the store as it was."""
        self._landed()
        return self._next(now)

    def _landed(self) -> Write:
        write = self.writing
        if write is None:
            raise ValueError("no write is in flight")
        self.writing = None
        if self._asked <= write.last_seq:
            self._asked = -1
        return write

    def _next(self, now: float) -> Action:
        if self._asked < 0:
            if self._deadline is None:
                return None
            if now < self._deadline:
                return ArmTimer(self._deadline)
        self._deadline = None
        self._in_flight = self.pending
        self.writing = Write(self.durable + 1, self.last)
        return self.writing
