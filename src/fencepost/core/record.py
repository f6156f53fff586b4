"""What all events have in common. The vocabulary itself is `events`, which gives this on."""

from __future__ import annotations

import msgspec


class Marks(msgspec.Struct, frozen=True, gc=False, kw_only=True, tag_field="type", omit_defaults=True):
    """Marks that any event may carry, written last and only when set."""

    normalised: tuple[str, ...] = ()
    """JSON pointers of the values that were replaced when the event was made."""
    ignorable: bool = False
    """Set on a plugin's event that a reader without that plugin may step over."""


class Event(Marks, frozen=True, tag_field="type", omit_defaults=True):
    """What all events have: `seq`, dense from 0, and `time` in epoch milliseconds."""

    seq: int
    time: int

    @classmethod
    def type_name(cls) -> str:
        """The value of `type` on disk."""
        return str(cls.__struct_config__.tag)
