"""Which calls of one answer may run side by side.

    ALONE       with nothing else
    SHARED      with others that are shared: reads, and what says so of itself (`parallel=True`)
    Lane(key)   with others that have a key, and another one: what a tool's `lock` names

A keyed call is not beside a shared one, whatever it changes: nobody knows what that one reads, and a read that the
model put behind a write has to see it.

What it refuses to be: the waiting (`toolrun`).
"""

from __future__ import annotations

from pathlib import PurePath

import msgspec

from fencepost.runtime.subjects import Candidate


class Lane(msgspec.Struct, frozen=True):
    """How one call stands to others.

    Attributes:
        key: what it changes, by name; None if it has no name.
        shared: whether it overlaps with others without a name.
    """

    key: str | None = None
    shared: bool = False

    def beside(self, other: Lane) -> bool:
        """Whether both may run at the same time."""
        if self.key is None or other.key is None:
            return self.shared and other.shared
        return self.key != other.key


ALONE = Lane()
SHARED = Lane(shared=True)


def lane_of(call: Candidate) -> Lane:
    """The lane of one call.

    Raises:
        TypeError: its `lock` gave something that names nothing.
        Exception: whatever the tool's own functions raise.
    """
    tool = call.tool
    if tool.lock is not None:
        # A copy: what the policies saw is what will be recorded and run.
        key = tool.lock(msgspec.to_builtins(call.arguments), call.cwd)
        if key is not None:
            return Lane(key=_name(key))
    return SHARED if tool.overlaps(call.arguments) else ALONE


def _name(key: object) -> str:
    if isinstance(key, str | int | PurePath):
        return str(key)
    raise TypeError(f"the lock gave a {type(key).__name__}, which names nothing")
