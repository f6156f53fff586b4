"""What happens to sessions that nobody works on: into the trash and out of it, and into fewer bytes.

Rule: each of these holds the session's lock while it moves anything, so no owner ever sees its files go.
"""

from __future__ import annotations

import contextlib
import time

from fencepost.core.upgrades import CHAIN, Chain
from fencepost.errors import HeldError, MediumError, SessionExistsError, SessionNotFoundError
from fencepost.stores.base import Compressed, Trashed
from fencepost.stores.causes import typed
from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.layout import SessionPaths
from fencepost.stores.jsonl.loading import load
from fencepost.stores.jsonl.root import Root
from fencepost.stores.jsonl.trash import Entry, Trash
from fencepost.stores.names import is_shortened, segment, session_of


class FileUpkeep:
    """Looks after the sessions of one root. Synchronous; threads are the store's business."""

    def __init__(self, disk: Disk, root: Root, chain: Chain = CHAIN) -> None:
        self._disk = disk
        self._chain = chain
        self._root = root
        self._trash = Trash(disk, root.path)

    def delete(self, session: str) -> None:
        """Move a session into the trash; see `Upkeep.delete`."""
        paths = self._root.paths(session)
        self._root.require(session, paths)
        with self._root.locked(session, paths) as lock:
            try:
                self._root.require(session, paths)
                with self._root.causes(session, "moving", paths.dir):
                    self._trash.put(paths.dir.name, time.time_ns() // 1_000_000)
            finally:
                lock.release()

    def trashed(self) -> list[Trashed]:
        """What is in the trash; see `Upkeep.trash`."""
        try:
            return [Trashed(self._id(entry), entry.deleted) for entry in self._trash.entries()]
        except OSError as error:
            raise typed(error, "list", "reading", self._trash.dir) from error

    def _id(self, entry: Entry) -> str:
        return session_of(entry.name) or self._root.id_in(self._trash.path(entry), entry.name)

    def restore(self, session: str) -> None:
        """Take a session out of the trash; see `Upkeep.restore`."""
        entry = self._found(session)
        paths = SessionPaths(self._root.path, entry.name)
        if paths.dir.exists():
            self._make_way(session, paths)
        with self._root.causes(session, "restoring", self._trash.path(entry)):
            try:
                self._trash.take_back(entry)
            except FileExistsError:
                raise HeldError(f"session {session} is being created by another process") from None

    def _found(self, session: str) -> Entry:
        names = {segment(session)} | ({session} if is_shortened(session) else set())
        with self._root.causes(session, "reading", self._trash.dir):
            entry = next((entry for entry in self._trash.entries() if entry.name in names), None)
        if entry is None:
            raise SessionNotFoundError(
                f"no session {session} in the trash of {self._root.path}",
                next_act="List the trash with `fencepost sessions --trash`",
            )
        return entry

    def _make_way(self, session: str, paths: SessionPaths) -> None:
        """Take away what an id leaves that was taken and never written: a directory with a lock, perhaps a draft.

        Raises:
            SessionExistsError: a log is there, or anything else that could be somebody's.
            HeldError: somebody is about to create the session.
        """
        self._root.refuse_taken(session, paths)
        with self._root.locked(session, paths) as lock:
            try:
                self._root.refuse_taken(session, paths)
                with self._root.causes(session, "making way in", paths.dir):
                    self._empty(session, paths)
            finally:
                lock.release()

    def _empty(self, session: str, paths: SessionPaths) -> None:
        left = set(self._disk.names(paths.dir)) - {paths.lock.name, paths.draft.name}
        if left:
            raise SessionExistsError(f"session {session}: {paths.dir} holds {', '.join(sorted(left))}")
        with contextlib.suppress(FileNotFoundError):
            self._disk.unlink(paths.draft)
        self._disk.unlink(paths.lock)
        self._disk.rmdir(paths.dir)

    def compress(self, session: str) -> Compressed:
        """Store a log in fewer bytes; see `Upkeep.compress`."""
        paths = self._root.paths(session)
        self._root.require(session, paths)
        with self._root.locked(session, paths) as lock:
            try:
                self._root.require(session, paths)
                return self._compressed(session, paths)
            finally:
                lock.release()

    def _compressed(self, session: str, paths: SessionPaths) -> Compressed:
        from fencepost.stores.jsonl.packing import PackingError, compress_log  # needs a library that most never load

        loaded = load(self._disk, paths, session, None, self._chain)
        refusal = loaded.refusal()
        if refusal is not None:
            kind, why = refusal
            raise kind(why)
        if loaded.packed is not None:
            return Compressed(loaded.length, loaded.stored.size)
        try:
            size = compress_log(self._disk, paths, self._disk.read(paths.log), loaded.stat.st_mtime_ns)
        except PackingError as error:
            raise MediumError(f"session {session}: {error}; its log is as it was") from None
        except OSError as error:
            raise typed(error, session, "compressing", paths.log) from error
        return Compressed(loaded.length, size)

    def purge(self, before: int) -> int:
        """Destroy what was deleted before a time; see `Upkeep.purge`."""
        try:
            return self._trash.purge(before)
        except OSError as error:
            raise typed(error, "purge", "purging", self._trash.dir) from error
