"""Whether the receipts that a session's directory has are all that there ever were.

A receipt that is missing says "it did not run" only where it would be seen. A copy of a session, a fork, a backup that
was put back: each has the call in its log, and a directory in which the receipt never was, or is not any more. So the
directory of the receipts is made before the first call is let go that may leave one, with a mark in it:

    receipts/here       where the directory is, since when by the session's clock, and when the mark was made

Rules:
    1. The mark is believed where it stands at the path that it names, and where the system says that it was last
       changed when it says that it was made: that time nobody can copy, or put back.
    2. It speaks for calls that were let go since. It goes with the directory: who removed that removed evidence.
    3. It speaks for this host, and for calls whose owner is dead: one that was only taken over from may be paused, and
       leave its receipt later.
    4. Of a single receipt that somebody took out it knows nothing.
    5. It is not synced, only the directory is. Where a power cut took it, nothing is claimed.

What it refuses to be: a receipt.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from fencepost.runtime.aside import in_thread

RECEIPTS = "receipts"
"""The directory below a session's that tools leave receipts in."""

TOLERANCE = 2_000
"""Milliseconds between making a mark and the time that the system gives it; some file systems keep whole seconds."""


_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Mark(msgspec.Struct, frozen=True):
    """What is said of a directory.

    Attributes:
        place: its path.
        since: the session's clock then, in epoch milliseconds.
        made: the machine's clock then, in epoch milliseconds.
    """

    place: str
    since: int
    made: int


def mark_of(files: Path) -> Path:
    """Where the mark of a session's directory is."""
    return files / RECEIPTS / "here"


async def mark(files: Path, clock: Callable[[], int]) -> None:
    """Say that receipts are left below `files` from now on, unless that is said already.

    Args:
        files: the session's directory.
        clock: the session's.
    """
    await in_thread("mark the place of receipts", lambda: _mark(files, clock))


def _mark(files: Path, clock: Callable[[], int]) -> None:
    if _believed(files) is not None:
        return
    place = mark_of(files)
    said = msgspec.json.encode(Mark(_named(place.parent), clock(), time.time_ns() // 1_000_000))
    # What cannot be marked is not vouched for; whether a call may run is for its gate and its receipt to say.
    with contextlib.suppress(OSError):
        _make(place.parent)
        place.unlink(missing_ok=True)
        descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, said)
        finally:
            os.close(descriptor)


def _make(directory: Path) -> None:
    """The directory of receipts, durably, whoever was killed while making it: nobody after this looks at its name."""
    directory.mkdir(0o700, parents=True, exist_ok=True)
    for above in (directory.parent, directory.parent.parent):
        descriptor = os.open(above, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.fcntl(descriptor, _FULL_SYNC) if _FULL_SYNC is not None else os.fsync(descriptor)
        finally:
            os.close(descriptor)


def vouched_for(files: Path, let_go: int | None, owner: str) -> bool:
    """Whether a receipt that is not there was never left, and never will be (rules 1 to 3).

    Args:
        files: the session's directory.
        let_go: when the call was, by the session's clock, in epoch milliseconds; None: it is not known.
        owner: who let it go, as PID@HOST; empty where that is not known.
    """
    said = _believed(files)
    return said is not None and let_go is not None and let_go >= said.since and not unseen(owner, let_go)


def unseen(owner: str, let_go: int | None) -> str:
    """Why a receipt of a call may be somewhere else, or come still; empty if there is no reason.

    Args:
        owner: who let it go, as PID@HOST; what is not of that form says nothing.
        let_go: when, in epoch milliseconds, as far as it is known.
    """
    _, at, host = owner.partition("@")
    if at and host != socket.gethostname():
        return f"its receipts are on {host}, which had let it go"
    return may_act(owner, let_go)


def may_act(owner: str, let_go: int | None) -> str:
    """Why a call may still begin that has done nothing yet; empty if there is no reason that can be seen from here.

    A session is taken over from an owner that is paused as well as from one that is dead, and behind its gate nothing
    stops it any more.

    Args:
        owner, let_go: as for `unseen`.
    """
    pid, at, host = owner.partition("@")
    if not at or not pid.isdigit() or host != socket.gethostname():
        return ""
    if int(pid) == os.getpid():
        ours = let_go is not None and let_go >= _began()
        return "this process had let it go, and may still be at it" if ours else ""
    return f"the process {pid}, which had let it go, may still be alive" if _runs(int(pid)) else ""


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in {b"Z", b"X", b"x"}
    except (OSError, IndexError):
        pass  # it is gone; or there is no such place, or another user's processes are not shown there
    return answers(pid)


def answers(pid: int) -> bool:
    """Whether a process of this id can be signalled, or is there and may not be (another user's)."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _began() -> int:
    """When this process did, in epoch milliseconds, or a little earlier: ids come back, also our own (in containers).

    Where the system does not say it is taken to have been here for ever.
    """
    try:
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return 0
    return int((time.time() - age) * 1000) - TOLERANCE


def _believed(files: Path) -> Mark | None:
    """The mark, where it may be believed."""
    place = mark_of(files)
    try:
        said = msgspec.json.decode(place.read_bytes(), type=Mark)
        changed = place.lstat().st_ctime_ns // 1_000_000
    except (OSError, msgspec.DecodeError):
        return None
    return said if said.place == _named(place.parent) and abs(changed - said.made) < TOLERANCE else None


def _named(directory: Path) -> str:
    """Its path as text that JSON can carry: the names of files are bytes."""
    return os.fsencode(directory.absolute()).decode(errors="backslashreplace")
