"""A live journal to measure with."""

from __future__ import annotations

from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.journal.session import Journal
from fencepost.runtime.runtime import system_identity
from fencepost.stores.base import Store

STEP_GATES: tuple[ev.Gate, ...] = ("step", "request", "tool", "closing")


async def in_a_step(store: Store, session: str) -> Journal:
    """A new journal in its first step, all of it durable."""
    journal = await Journal.create(store, session, "/", system_identity(), CORE)
    journal.append(ev.TurnStart, turn=1, gates=STEP_GATES, policy="checkpoint")
    journal.append(ev.StepStart, turn=1, step=1)
    await journal.flush()
    return journal
