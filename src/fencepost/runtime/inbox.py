"""The inbox of one session: prompts for the next turns, steering for the running one.

What is pending is in the log (`input/queued` without a consumer). This keeps only which of it may run in this
process: inputs that an earlier process left behind are offered, never run by themselves (design.md, section 8).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TypeVar

from fencepost.core import events as ev
from fencepost.journal.session import Journal

T = TypeVar("T")


class SessionInbox:
    """Which pending inputs go where. Implements the loop's `Inbox`."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._turns: deque[str] = deque()
        self._steers: deque[str] = deque()
        self._opening: tuple[str, ...] = ()
        self.claimed: list[str] = []
        """Inputs that the running turn has claimed so far."""
        self.woken = asyncio.Event()

    def admit(self, queued: ev.InputQueued) -> None:
        """Let an input run in this process."""
        (self._turns if queued.target == "turn" else self._steers).append(queued.input_id)
        self.woken.set()

    def drop(self, input_id: str) -> None:
        """Never run it here."""
        for waiting in (self._turns, self._steers):
            if input_id in waiting:
                waiting.remove(input_id)

    def next_turn(self) -> bool:
        """Open a turn: move the next prompt, if there is one, to where the first step claims it."""
        self.claimed = []
        if self._turns:
            self._opening = (self._turns.popleft(),)
            return True
        return bool(self._steers)

    def claim(self) -> tuple[ev.InputQueued, ...]:
        """The inputs of the step that is being prepared: the turn's prompt first, then what steers it."""
        names = (*self._opening, *self._steers)
        self._opening = ()
        self._steers.clear()
        self.claimed.extend(names)
        pending = self._journal.log.fold.pending
        return tuple(pending[name] for name in names if name in pending)

    def steering(self) -> bool:
        """Whether input waits that wants into the running turn."""
        return bool(self._steers)

    def waiting(self) -> bool:
        """Whether there is something to run a turn for."""
        return bool(self._turns or self._steers)

    def unconsumed(self) -> list[str]:
        """Inputs that the running turn claimed, and that no `user/message` has consumed."""
        pending = self._journal.log.fold.pending
        return [name for name in (*self._opening, *self.claimed) if name in pending]
