"""Ownership of a session between processes: an OS lock on an open handle of a file that is never deleted.

Rules:
    1. The lock decides. The text in the file (`{"pid":…,"host":…,"since":…}`) is for people and may be stale.
    2. The lock dies with its owner, however it dies; no child keeps it: the descriptor is closed on exec, and in
       forked children at once.
    3. Asking who owns a session changes no byte. The question takes a shared lock for an instant, so taking
       ownership tries for `PATIENCE` seconds before it believes that another owner lives.

What it refuses to be: a fence. A file system that grants one lock twice, and a lock file that someone deletes, are
caught where bytes are appended, by comparing first.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fencepost.errors import HeldError
from fencepost.stores.base import Owner

PATIENCE = 0.2
"""Seconds; a probe holds its shared lock for a few microseconds."""

_PAUSE = 0.01
_TEXT_LIMIT = 4096


class _Forks:
    """Keeps forked children out: no fork happens between opening a descriptor and knowing it."""

    def __init__(self) -> None:
        self.held: set[SessionLock] = set()
        self._guard = threading.Lock()
        self._registered = False

    @contextlib.contextmanager
    def held_off(self) -> Iterator[None]:
        with self._guard:
            if not self._registered:  # at the first use and not at import, which has no effects
                os.register_at_fork(
                    before=self._guard.acquire, after_in_parent=self._guard.release, after_in_child=self._in_child
                )
                self._registered = True
            yield

    def _in_child(self) -> None:
        for lock in self.held:
            lock.forget()
        self.held.clear()
        self._guard.release()


_FORKS = _Forks()


class SessionLock:
    """The right to write one session."""

    def __init__(self, session: str, path: Path) -> None:
        self._session = session
        self._path = path
        self._fd = -1

    @property
    def held(self) -> bool:
        """Whether this very process holds it; False in a forked child."""
        return self._fd >= 0

    def take(self) -> None:
        """Take the lock, or say who has it.

        Raises:
            HeldError: another owner lives, in this process or another one.
            OSError: the lock file cannot be opened, or this file system has no locks.
        """
        deadline = time.monotonic() + PATIENCE
        while not self._try():
            if time.monotonic() >= deadline:
                raise HeldError(held_sentence(self._session, _text(self._path)))
            time.sleep(_PAUSE)
        # For people only, so a full disk must not stop an owner who wants to free some of it.
        with contextlib.suppress(OSError):
            text = msgspec.json.encode(Owner(os.getpid(), os.uname().nodename, time.time_ns() // 1_000_000))
            os.pwrite(self._fd, text, 0)
            os.ftruncate(self._fd, len(text))

    def _try(self) -> bool:
        with _FORKS.held_off():
            fd = _open(self._path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(fd), self._path.stat()):  # deleted under us: a lock on nothing
                    raise BlockingIOError
            except (BlockingIOError, FileNotFoundError):
                os.close(fd)
                return False
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd
            _FORKS.held.add(self)
            return True

    def release(self) -> None:
        """Give the lock up. Idempotent."""
        if not self.held:
            return
        with _FORKS.held_off():
            fd, self._fd = self._fd, -1
            _FORKS.held.discard(self)
            try:
                fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough while a child is between fork and exec
            finally:
                os.close(fd)

    def forget(self) -> None:
        """In a forked child: close the descriptor and leave the parent's lock as it is."""
        fd, self._fd = self._fd, -1
        os.close(fd)


def owner_of(path: Path) -> Owner | None:
    """Who holds the lock file at `path`; None if nobody does, or there is no such file.

    Raises:
        OSError: the file is there and may not be read.
    """
    with _FORKS.held_off():
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(fd, fcntl.LOCK_UN)
            return None
        except BlockingIOError:
            return _text(path)
        finally:
            os.close(fd)


def held_sentence(session: str, owner: Owner) -> str:
    """Who holds the session since when, for people."""
    if not owner.pid:
        return f"session {session} is held by another process"
    since = datetime.fromtimestamp(owner.since / 1000, UTC).isoformat(timespec="seconds")
    return f"session {session} is held by {owner.pid} on {owner.host} since {since}"


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.fchmod(fd, 0o600)
        return fd


def _text(path: Path) -> Owner:
    """What the lock file says; an owner that has not written it yet is pid 0."""
    try:
        with path.open("rb") as file:
            return msgspec.json.decode(file.read(_TEXT_LIMIT), type=Owner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Owner(0, "", 0)
