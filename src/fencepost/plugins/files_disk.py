"""The few ways in which the file tools make something durable.

Each returns when what it did survives a power cut, or raises the `OSError` that the system gave.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def sync(descriptor: int) -> None:
    """Content and length of an open file; on macOS only F_FULLFSYNC means that."""
    if _FULL_SYNC is not None:
        fcntl.fcntl(descriptor, _FULL_SYNC)
    else:
        os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """The names in a directory."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def nearest(place: Path) -> Path:
    """The deepest directory on the way to `place` that is there.

    Raises:
        NotADirectoryError: what is there is something else.
        OSError: it cannot be looked at.
    """
    directory = place.parent
    while not directory.exists():
        directory = directory.parent
    os.stat(f"{directory}/.")  # noqa: PTH116 - a Path would drop the dot, which only a directory has
    return directory


def make_directories(directory: Path, mode: int = 0o777) -> None:
    """The directory and those on the way to it, each with its name."""
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for one in reversed(missing):
        one.mkdir(mode, exist_ok=True)
        sync_directory(one.parent)


def write_over(place: Path, data: bytes, mode: int) -> None:
    """A file's whole content, not its name; what was there is written over.

    Args:
        place: the file.
        data: its content.
        mode: if it has to be made.
    """
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        sync(descriptor)
