"""The inbox of one session: prompts for the next turns, steering for the running one.

What is pending is in the log (`input/queued` without a consumer). This keeps only which of it may run in this
process: inputs that an earlier process left behind, or that a failed turn did not use up, are offered, never run by
themselves (design.md, section 8).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from fencepost.core import events as ev
from fencepost.journal.session import Journal


class SessionInbox:
    """Which pending inputs go where. Implements the loop's `Inbox`.

    Attributes:
        claimed: inputs that the running turn, or the last one, has taken; its prompt first.
        woken: set when there may be something to run.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._turns: deque[str] = deque()
        self._steers: deque[str] = deque()
        self._opening: tuple[str, ...] = ()
        self.claimed: list[str] = []
        self.woken = asyncio.Event()

    def __repr__(self) -> str:
        return f"<SessionInbox {len(self._turns)} queued, {len(self._steers)} steering, {len(self.claimed)} claimed>"

    def admit(self, queued: ev.InputQueued) -> None:
        """Let an input run in this process."""
        (self._turns if queued.target == "turn" else self._steers).append(queued.input_id)
        self.woken.set()

    def drop(self, input_id: str) -> None:
        """Do not run it here. One that the running turn has taken is dropped by its `input/dropped` alone."""
        for waiting in (self._turns, self._steers):
            if input_id in waiting:
                waiting.remove(input_id)

    def holds(self, input_id: str) -> bool:
        """Whether the input waits here for a turn."""
        return input_id in self._turns or input_id in self._steers

    def waiting(self) -> bool:
        """Whether there is something to run a turn for."""
        return bool(self._turns or self._steers)

    def open_turn(self, continues: int | None) -> None:
        """Begin a turn: with the next prompt if there is one, else with what steers it.

        One that goes on with an interrupted turn has no use for a prompt if that one had its own.
        """
        prompt = continues is None or not had_input(self._journal.log.entries, continues)
        self.claimed = []
        self._opening = (self._turns.popleft(),) if prompt and self._turns else ()
        self.claimed.extend(self._opening)

    def claim(self) -> tuple[ev.InputQueued, ...]:
        """The inputs of the step that is being prepared: the turn's prompt first, then what steers it."""
        names = (*self._opening, *self._take_steers())
        self._opening = ()
        pending = self._journal.log.fold.pending
        return tuple(pending[name] for name in names if name in pending)

    def steering(self) -> bool:
        """Whether input waits that wants into the running turn."""
        return bool(self._steers)

    def unconsumed(self) -> list[str]:
        """Inputs that the turn has taken, and that no `user/message` has consumed."""
        pending = self._journal.log.fold.pending
        return [name for name in self.claimed if name in pending]

    def unseen(self) -> list[str]:
        """The same, with what was to steer the turn and came too late: all that ends with it if a person ends it."""
        self._take_steers()
        return self.unconsumed()

    def _take_steers(self) -> tuple[str, ...]:
        names = tuple(self._steers)
        self._steers.clear()
        self.claimed.extend(names)
        return names


def had_input(entries: Sequence[ev.Entry], turn: int) -> bool:
    """Whether a turn, or one that it went on with, was given its input: a message that the model saw."""
    for entry in reversed(entries):
        if isinstance(entry, ev.UserMessage):
            return True
        if isinstance(entry, ev.TurnStart) and entry.turn == turn:
            if entry.continues is None:
                return False
            turn = entry.continues
    return False
