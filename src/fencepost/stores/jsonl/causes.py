"""From errno to the typed error: causes are told apart by number, never by message text."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fencepost.errors import (
    MediumError,
    NoSpaceError,
    PermissionDeniedError,
    ReadOnlyError,
    SessionNotFoundError,
    StoreError,
    UsageError,
)

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Full, over quota, or over the largest size that this process may write (RLIMIT_FSIZE)."""

REFUSED = frozenset({errno.EACCES, errno.EPERM})


def typed(error: OSError, session: str, doing: str, path: Path) -> StoreError:
    """The error of the tree for an `OSError`: `session`, what was being done, and the path it concerns."""
    kind = _kind(error.errno)
    cause = os.strerror(error.errno) if error.errno else str(error)
    return kind(f"session {session}: {doing} {path} failed: {cause}")


def _kind(number: int | None) -> type[StoreError]:
    if number in NO_SPACE:
        return NoSpaceError
    if number == errno.EROFS:
        return ReadOnlyError
    if number in REFUSED:
        return PermissionDeniedError
    return MediumError


def not_found(session: str, root: Path) -> SessionNotFoundError:
    """There is no such session under `root`."""
    return SessionNotFoundError(f"no session {session} in {root}")


def not_a_directory(root: Path) -> UsageError:
    """The store's root is something else than a directory."""
    return UsageError(f"{root} is not a directory", next_act="Name a directory with --store jsonl:DIR")
