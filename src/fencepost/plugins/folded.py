"""What a plugin folds out of a session's log, kept up to date without reading the log again and again.

A fold takes the entries of one log in their order, each once, and says what it wants to say. It holds nothing that
the log does not say: made again from the same log it is the same, after a resume too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from fencepost.core import events as ev
from fencepost.core.log import Log


class LogFold(Protocol):
    """Takes entries in."""

    def take(self, entry: ev.Entry) -> None:
        """Take the next entry of the log in."""
        ...


F = TypeVar("F", bound=LogFold)


class _Known(msgspec.Struct, Generic[F]):
    fold: F
    taken: int = 0


class Folded(Generic[F]):
    """A fold over each log that it is asked about; forgotten with the log.

    Args:
        make: makes the fold of an empty log.
    """

    def __init__(self, make: Callable[[], F]) -> None:
        self._make = make
        self._known: WeakKeyDictionary[Log, _Known[F]] = WeakKeyDictionary()

    def of(self, log: Log) -> F:
        """The fold over all that `log` holds now."""
        known = self._known.get(log)
        if known is None:
            known = self._known[log] = _Known(self._make())
        for entry in log.entries[known.taken :]:
            known.fold.take(entry)
        known.taken = len(log.entries)
        return known.fold
