"""What the exit status of the process says, and which error gives which (issue 2, section 4).

     0  done
     1  the turn ended otherwise; the medium failed the doctor
     2  usage: an argument, a configuration, an id
     3  could not be saved
     4  held by another process
     5  damaged, or unsupported here
    70  a fault of fencepost itself
    74  standard output could not be written
   129  hung up (SIGHUP), closed in order
   130  interrupted (SIGINT)
   141  nobody reads standard output any more
   143  told to end (SIGTERM), closed in order

A later row is not worse than an earlier one. Where two would fit, *could not be saved* comes first: it is the one that
costs something.
"""

from __future__ import annotations

from fencepost.errors import (
    CompositionError,
    DamagedError,
    FencepostError,
    HeldError,
    NotSavedError,
    SessionExistsError,
    SessionNotFoundError,
    StoreError,
    UnsupportedError,
    UsageError,
)

DONE = 0
OTHERWISE = 1
USAGE = 2
NOT_SAVED = 3
HELD = 4
DAMAGED = 5
INTERNAL = 70
OUTPUT = 74
HUNG_UP = 129
INTERRUPTED = 130
NO_READER = 141
TERMINATED = 143

_BY_ERROR: tuple[tuple[type[FencepostError], int], ...] = (
    (UsageError, USAGE),
    (CompositionError, USAGE),
    (SessionNotFoundError, USAGE),
    (SessionExistsError, USAGE),
    (HeldError, HELD),
    (DamagedError, DAMAGED),
    (UnsupportedError, DAMAGED),
    (NotSavedError, NOT_SAVED),
    (StoreError, NOT_SAVED),
)
"""The first row that fits decides."""


def status_of(error: FencepostError) -> int:
    """The exit status for an error that ended the command."""
    return next((status for kind, status in _BY_ERROR if isinstance(error, kind)), OTHERWISE)


def leaves(error: BaseException) -> list[BaseException]:
    """The errors that a group holds, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def worst(statuses: list[int]) -> int:
    """The status of several failures: *could not be saved* if one is that, else the first."""
    return NOT_SAVED if NOT_SAVED in statuses else statuses[0]
