"""The default store: each session a directory of plain files under one root.

It takes sessions and reads them. Where they are stands in `root`, how a batch becomes durable in `logfile`, what the
bytes mean in `frame`, what happens to sessions that nobody works on in `upkeep`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from fencepost.core.codec import Vocabulary
from fencepost.core.events import Header
from fencepost.core.upgrades import CHAIN, Chain
from fencepost.stores.base import Compressed, Footing, Owner, StoredLog, Trashed
from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.handle import FileHandle
from fencepost.stores.jsonl.layout import SessionPaths
from fencepost.stores.jsonl.loading import load
from fencepost.stores.jsonl.logfile import LogFile
from fencepost.stores.jsonl.root import Root
from fencepost.stores.jsonl.upkeep import FileUpkeep
from fencepost.stores.lock import SessionLock, owner_of
from fencepost.stores.names import segment
from fencepost.stores.threads import Threads

_READERS = 4
_READ_AGAIN = 5
"""Times that a log is read anew because it grew while its owner came or went."""


class JsonlStore:
    """Sessions under `root`. Nothing is made before the first `create`.

    Args:
        root: a directory; made, mode 0700, where it is missing.
        vocabulary: the declared event types. With one, a log that holds others is refused to its next owner; without
            one the store keeps them untouched and leaves the judgement to whoever folds the log.
        chain: the steps through which logs of older releases are read.
        disk: the operating system's part.
        threads: writer threads at most; the kernel merges syncs of different files that run at the same time.
    """

    durable = True

    def __init__(
        self,
        root: Path | str,
        *,
        vocabulary: Vocabulary | None = None,
        chain: Chain = CHAIN,
        disk: Disk | None = None,
        threads: int = 16,
    ) -> None:
        self._vocabulary = vocabulary
        self._chain = chain
        self._disk = disk or Disk()
        self._root = Root(self._disk, Path(root).absolute())
        self._upkeep = FileUpkeep(self._disk, self._root, chain)
        self._writers = Threads(threads, "fencepost-writer")
        self._readers = Threads(_READERS, "fencepost-reader")
        self._handles: set[FileHandle] = set()

    @property
    def root(self) -> Path:
        """The directory that the sessions are in."""
        return self._root.path

    @property
    def url(self) -> str:
        """`jsonl:` and the root."""
        return f"jsonl:{self.root}"

    @property
    def ownership(self) -> str:
        """What keeps a second writer out."""
        return "an OS lock on an open file"

    def files(self, session: str) -> Path:
        """Where a session's large outputs go, in its own directory; made by whoever first writes there."""
        return self._root.paths(session).dir / "files"

    def __repr__(self) -> str:
        return f"<JsonlStore {self.root} | {len(self._handles)} owned>"

    # --- the contract -------------------------------------------------------------------------------------------

    async def create(self, header: Header) -> FileHandle:
        """Take ownership of a new session; see `Store.create`. Makes its directory and lock, and no log yet."""
        name = segment(header.session)
        return await self._taken(partial(self._create, header, SessionPaths(self.root, name)))

    async def own(self, session: str) -> FileHandle:
        """Take ownership of a stored session, then read it; see `Store.own`."""
        return await self._taken(partial(self._own, session))

    async def read(self, session: str) -> StoredLog:
        """Read a session beside whoever owns it; see `Store.read`."""
        return await self._readers.submit(partial(self._read, session)).outcome()

    async def sessions(self) -> list[str]:
        """The ids of all sessions, damaged and unreadable ones included."""
        return await self._readers.submit(self._root.sessions).outcome()

    async def footing(self) -> Footing:
        """The file system under the root; see `Footed.footing`."""
        return Footing(directory=self.root)

    async def close(self) -> None:
        """Release what is owned, and end the threads. Idempotent."""
        try:
            for handle in list(self._handles):
                await handle.release()
        finally:
            await self._readers.close()
            await self._writers.close()

    # --- looking after them -------------------------------------------------------------------------------------

    async def revisions(self) -> dict[str, str]:
        """A token for each session, from its log's inode, size and time; see `Upkeep.revisions`."""
        return await self._readers.submit(self._root.revisions).outcome()

    async def owner(self, session: str) -> Owner | None:
        """Who holds a session now; see `Upkeep.owner`."""
        return await self._readers.submit(partial(self._owner, session)).outcome()

    async def delete(self, session: str) -> None:
        """Move a session into the trash; see `Upkeep.delete`."""
        await self._readers.submit(partial(self._upkeep.delete, session)).outcome()

    async def trash(self) -> list[Trashed]:
        """What is in the trash; see `Upkeep.trash`."""
        return await self._readers.submit(self._upkeep.trashed).outcome()

    async def restore(self, session: str) -> None:
        """Take a session out of the trash; see `Upkeep.restore`."""
        await self._readers.submit(partial(self._upkeep.restore, session)).outcome()

    async def purge(self, before: int) -> int:
        """Destroy what was deleted before a time; see `Upkeep.purge`."""
        return await self._readers.submit(partial(self._upkeep.purge, before)).outcome()

    async def compress(self, session: str) -> Compressed:
        """Store a log in fewer bytes; see `Upkeep.compress`."""
        return await self._readers.submit(partial(self._upkeep.compress, session)).outcome()

    async def _taken(self, take: Callable[[], FileHandle]) -> FileHandle:
        return await self._readers.submit(take).outcome(undo=FileHandle.let_go)

    # --- taking -------------------------------------------------------------------------------------------------

    def _create(self, header: Header, paths: SessionPaths) -> FileHandle:
        session = header.session
        with self._root.causes(session, "making the directory of", paths.dir):
            self._root.make()
            self._root.refuse_taken(session, paths)
            with contextlib.suppress(FileExistsError):
                self._disk.mkdir(paths.dir)
        with self._root.locked(session, paths) as lock:
            self._root.refuse_taken(session, paths)
            stored = StoredLog(session=session, header=header, entries=())
            return self._handle(stored, LogFile.new(self._disk, paths, header), lock)

    def _own(self, session: str) -> FileHandle:
        paths = self._root.paths(session)
        self._root.require(session, paths)
        with self._root.locked(session, paths) as lock:
            self._root.require(session, paths)
            loaded = load(self._disk, paths, session, self._vocabulary, self._chain)
            stored = loaded.owned_by(owner_of(paths.lock))
            return self._handle(stored, LogFile.existing(self._disk, paths, loaded), lock)

    def _handle(self, stored: StoredLog, log: LogFile, lock: SessionLock) -> FileHandle:
        handle = FileHandle(stored, log, lock, self._writers, self._handles.discard)
        self._handles.add(handle)
        return handle

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self, session: str) -> StoredLog:
        paths = self._root.paths(session)
        self._root.require(session, paths)
        with self._root.causes(session, "reading", paths.log):
            for _ in range(_READ_AGAIN):
                loaded = load(self._disk, paths, session, self._vocabulary, self._chain)
                owner = owner_of(paths.lock)
                # Nobody holds it now, and it is as it was read: so nobody wrote meanwhile.
                if owner is not None or _same(self._root.stat(paths), loaded.stat):
                    break
            return loaded.owned_by(owner)

    def _owner(self, session: str) -> Owner | None:
        lock = self._root.paths(session).lock
        with self._root.causes(session, "looking at the lock", lock):
            return owner_of(lock)


def _same(now: os.stat_result, then: os.stat_result) -> bool:
    return (now.st_ino, now.st_size, now.st_mtime_ns) == (then.st_ino, then.st_size, then.st_mtime_ns)
