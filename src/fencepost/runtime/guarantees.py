"""What is in force for a session."""

from __future__ import annotations

import msgspec

from fencepost.core import events as ev


class Guarantees(msgspec.Struct, frozen=True):
    """What is in force for a session.

    Attributes:
        store: its URL.
        durable: whether the store survives the process at all.
        gates: those that some plugin holds, and the closing one.
        policy: which plugins hold them.
        ownership: what keeps a second writer out.
    """

    store: str
    durable: bool
    gates: tuple[ev.Gate, ...]
    policy: str
    ownership: str
