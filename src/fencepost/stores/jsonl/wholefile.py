"""Writing bytes out to the last one, whatever signals and short writes do."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from fencepost.stores.jsonl.disk import Disk

P = ParamSpec("P")
T = TypeVar("T")


def again(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call until no signal gets in between."""
    while True:
        try:
            return call(*args, **kwargs)
        except InterruptedError:
            continue


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Append all of `data` to an open file.

    Raises:
        OSError: the medium; a part of it may be there.
    """
    taken = again(disk.write, fd, data)
    if taken == len(data):
        return
    rest = memoryview(data)[taken:]
    while rest:
        taken = again(disk.write, fd, rest)
        if not taken:
            raise OSError(errno.EIO, "the medium takes no bytes")
        rest = rest[taken:]


def write_file(disk: Disk, path: Path, data: bytes, *, modified: int | None = None) -> None:
    """Make a file, whole and synced, in place of what a killed process may have left under its name.

    The name itself is not durable yet, and nothing refers to it: the caller gives the file its real name after that.

    Args:
        modified: the time of its last change, in epoch nanoseconds; now if left out.

    Raises:
        OSError: the medium; what is there under that name means nothing.
    """
    with contextlib.suppress(FileNotFoundError):
        disk.unlink(path)
    fd = disk.create(path)
    try:
        write_all(disk, fd, data)
        if modified is not None:
            disk.date(fd, modified)
        again(disk.sync_data, fd)
    finally:
        with contextlib.suppress(OSError):  # what mattered was synced, or is being raised
            disk.close(fd)
