"""Which calls have left: the line between `not_started` and `outcome_unknown`, at the very edge of the process.

Each request of a call carries the call's id. Whoever is about to put bytes on the wire asks which calls stand in
them, and says when the first byte is gone. So a call of which nobody said so has certainly not left (law 2); if in
doubt, it has.
"""

from __future__ import annotations


class Trail:
    """The calls of one connection."""

    def __init__(self) -> None:
        self._open: dict[str, bytes] = {}
        self._left: set[str] = set()
        self.refusals: dict[str, str] = {}
        """How the other side said no to a call, as half a sentence, by call id."""
        self.doubts: dict[str, str] = {}
        """What stands between us and the other side's own word on a call, as half a sentence, by call id."""
        self.suspect = False
        """Whether the other side may have forgotten who we are: better to begin anew when nothing is under way."""

    def follow(self, call_id: str) -> None:
        """A call is about to be sent on this connection."""
        self._open[call_id] = f'"{call_id}"'.encode()

    def forget(self, call_id: str) -> None:
        """It has ended."""
        self._open.pop(call_id, None)
        self._left.discard(call_id)
        self.refusals.pop(call_id, None)
        self.doubts.pop(call_id, None)

    def named(self, data: bytes) -> frozenset[str]:
        """The calls that stand in some bytes and have not left yet."""
        return frozenset(name for name, mark in self._open.items() if name not in self._left and mark in data)

    def leave(self, calls: frozenset[str]) -> None:
        """The first byte of these is gone, or about to be gone where that cannot be told apart."""
        self._left |= calls

    def came_back(self, calls: frozenset[str]) -> None:
        """After all nothing of these was taken in: nobody was there."""
        self._left -= calls

    @property
    def idle(self) -> bool:
        """Whether no call is under way."""
        return not self._open

    def has_left(self, call_id: str) -> bool:
        """Whether the other side may have heard of a call."""
        return call_id in self._left
