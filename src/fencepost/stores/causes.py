"""From errno to the typed error: causes are told apart by number, never by message text."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from fencepost.errors import MediumError, NoSpaceError, PermissionDeniedError, ReadOnlyError, StoreError

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Full, over quota, or over the largest size that this process may write (RLIMIT_FSIZE)."""

REFUSED = frozenset({errno.EACCES, errno.EPERM})


def typed(error: OSError, session: str, doing: str, path: Path) -> StoreError:
    """The error of the tree for an `OSError`: `session`, what was being done, and the path it concerns."""
    cause = os.strerror(error.errno) if error.errno else str(error)
    return kind_of(error.errno)(f"session {session}: {doing} {path} failed: {cause}")


def kind_of(number: int | None) -> type[StoreError]:
    """The class of the tree for an errno."""
    if number in NO_SPACE:
        return NoSpaceError
    if number == errno.EROFS:
        return ReadOnlyError
    if number in REFUSED:
        return PermissionDeniedError
    return MediumError
