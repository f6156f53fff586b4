"""Where sessions are: names, paths, locks and causes under one root directory.

A session is a directory whose name is the segment of its id and in which there is a log, plain or compressed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from fencepost.errors import SessionExistsError
from fencepost.stores.causes import typed
from fencepost.stores.headers import read_header
from fencepost.stores.jsonl.causes import not_a_directory, not_found
from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.layout import LOGS, SessionPaths, side_file_seq
from fencepost.stores.lock import SessionLock
from fencepost.stores.names import is_shortened, segment, session_of

_LONGEST_HEADER = 1 << 16


class Root:
    """The directory of a store."""

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._rooted = False

    # --- all sessions -------------------------------------------------------------------------------------------

    def sessions(self) -> list[str]:
        """The ids of all sessions, damaged and unreadable ones included."""
        return list(self.revisions())

    def revisions(self) -> dict[str, str]:
        """For each session what tells one state of its log from another, without a look into it."""
        found = ((name, session_of(name)) for name in self._names())
        ours = ((name, session) for name, session in found if session is not None or is_shortened(name))
        known = ((name, session, self._revision(name)) for name, session in ours)
        return {session or self.id_in(self.path / name, name): token for name, session, token in known if token}

    def _names(self) -> list[str]:
        try:
            return self._disk.names(self.path)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise not_a_directory(self.path) from None
        except OSError as error:
            raise typed(error, "list", "reading", self.path) from error

    def _revision(self, name: str) -> str | None:
        """A token; None where there is no log."""
        for log in LOGS:
            try:
                stat = self._disk.stat(f"{self.path}/{name}/{log}")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                return (
                    f"error {error.errno}"  # it is there and cannot be looked at: listed, so that someone learns of it
                )
            return f"{stat.st_ino:x}.{stat.st_size:x}.{stat.st_mtime_ns:x}"
        return None

    def id_in(self, place: Path, name: str) -> str:
        """The id of a session with a shortened name, from its header; the name itself where that cannot be read."""
        try:
            start = self._start(place)
        except OSError:
            return name
        header = read_header(start.partition(b"\n")[0])
        return header.session if header is not None and segment(header.session) == name else name

    def _start(self, place: Path) -> bytes:
        plain, packed = (place / log for log in LOGS)
        with contextlib.suppress(FileNotFoundError):
            return self._disk.read(plain, limit=_LONGEST_HEADER)
        from fencepost.stores.jsonl.packing import unpack  # most stores have no such log

        return unpack(self._disk.read(packed, limit=_LONGEST_HEADER), _LONGEST_HEADER)[0]

    # --- one session --------------------------------------------------------------------------------------------

    def paths(self, session: str) -> SessionPaths:
        """The files of a session.

        Raises:
            UsageError: this cannot be a session's id.
        """
        paths = SessionPaths(self.path, segment(session))
        if is_shortened(session) and not paths.dir.exists():
            return SessionPaths(self.path, session)  # as `_shortened` lists it
        return paths

    def require(self, session: str, paths: SessionPaths) -> None:
        """Refuse a session that has no log here.

        Raises:
            SessionNotFoundError: it is so.
        """
        with self.causes(session, "reading", paths.log):
            self.stat(paths)

    @contextlib.contextmanager
    def causes(self, session: str, doing: str, path: Path) -> Iterator[None]:
        """Errors of the system as errors of the tree, for the time of a block."""
        try:
            yield
        except FileNotFoundError:
            raise not_found(session, self.path) from None
        except NotADirectoryError:
            raise not_a_directory(self.path) from None
        except OSError as error:
            raise typed(error, session, doing, path) from error

    def stat(self, paths: SessionPaths) -> os.stat_result:
        """What a session's log is now, plain or compressed.

        Raises:
            OSError: there is none, or it cannot be looked at.
        """
        try:
            return self._disk.stat(paths.log)
        except FileNotFoundError:
            return self._disk.stat(paths.packed)

    @contextlib.contextmanager
    def locked(self, session: str, paths: SessionPaths) -> Iterator[SessionLock]:
        """The lock of a session. It stays taken behind the block, unless that raises.

        Raises:
            HeldError: another owner lives.
        """
        lock = SessionLock(session, paths.lock)
        try:
            with self.causes(session, "locking", paths.lock):
                lock.take()
            with self.causes(session, "reading", paths.log):
                yield lock
        except BaseException:
            lock.release()
            raise

    def refuse_taken(self, session: str, paths: SessionPaths) -> None:
        """Refuse an id whose log is there, or what is left of one: its side files would be evidence for another.

        Raises:
            SessionExistsError: it is so.
        """
        try:
            names = self._disk.names(paths.dir)
        except FileNotFoundError:
            return
        for log in (paths.log, paths.packed):
            if log.name in names:
                raise SessionExistsError(f"session {session} is there already: {log}")
        if paths.watermark.name in names or any(side_file_seq(name) is not None for name in names):
            raise SessionExistsError(f"session {session} has left files behind, without its log, in {paths.dir}")

    def make(self) -> None:
        """Make what is missing of the root's path, and make every name in it durable.

        A directory that is there already may be as young as one that is made here: its maker may have died before
        syncing it. So all of them are synced, once for a store; those that others own, as far as we may.
        """
        if self._rooted:
            return
        ancestors = [self.path, *self.path.parents]
        made = [path for path in ancestors if not path.exists()]
        for path in reversed(made):
            with contextlib.suppress(FileExistsError):
                self._disk.mkdir(path)
        device = self._disk.stat(self.path).st_dev
        for path in self.path.parents:
            if self._disk.stat(path).st_dev != device:
                break
            try:
                self._disk.sync_dir(path)
            except OSError:
                if made and path in (*made, made[-1].parent):
                    raise
        self._rooted = True
