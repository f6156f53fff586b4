"""The default store: each session a directory of plain files under one root.

It names sessions, takes their locks and reads them; how a batch becomes durable stands in `logfile`, what the bytes
mean in `frame`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from fencepost.core.codec import Vocabulary
from fencepost.core.events import Header
from fencepost.errors import SessionExistsError
from fencepost.stores.base import StoredLog
from fencepost.stores.causes import typed
from fencepost.stores.jsonl.causes import not_a_directory, not_found
from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.frame import read_header
from fencepost.stores.jsonl.handle import FileHandle
from fencepost.stores.jsonl.layout import SessionPaths, side_file_seq
from fencepost.stores.jsonl.loading import load
from fencepost.stores.jsonl.logfile import LogFile
from fencepost.stores.lock import SessionLock, owner_of
from fencepost.stores.names import is_shortened, segment, session_of
from fencepost.stores.threads import Threads

_READERS = 4
_READ_AGAIN = 5
"""Times that a log is read anew because it grew while its owner came or went."""
_LONGEST_HEADER = 1 << 16


class JsonlStore:
    """Sessions under `root`. Nothing is made before the first `create`.

    Args:
        root: a directory; made, mode 0700, where it is missing.
        vocabulary: the declared event types. With one, a log that holds others is refused to its next owner; without
            one the store keeps them untouched and leaves the judgement to whoever folds the log.
        disk: the operating system's part.
        threads: writer threads at most; the kernel merges syncs of different files that run at the same time.
    """

    durable = True

    def __init__(
        self,
        root: Path | str,
        *,
        vocabulary: Vocabulary | None = None,
        disk: Disk | None = None,
        threads: int = 16,
    ) -> None:
        self.root = Path(root).absolute()
        self._vocabulary = vocabulary
        self._disk = disk or Disk()
        self._writers = Threads(threads, "fencepost-writer")
        self._readers = Threads(_READERS, "fencepost-reader")
        self._handles: set[FileHandle] = set()
        self._rooted = False

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
        return self._paths(session).dir / "files"

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
        return await self._readers.submit(self._sessions).outcome()

    async def close(self) -> None:
        """Release what is owned, and end the threads. Idempotent."""
        try:
            for handle in list(self._handles):
                await handle.release()
        finally:
            await self._readers.close()
            await self._writers.close()

    async def _taken(self, take: Callable[[], FileHandle]) -> FileHandle:
        return await self._readers.submit(take).outcome(undo=FileHandle.let_go)

    # --- taking -------------------------------------------------------------------------------------------------

    def _create(self, header: Header, paths: SessionPaths) -> FileHandle:
        session = header.session
        with self._causes(session, "making the directory of", paths.dir):
            self._make_root()
            self._refuse_taken(session, paths)
            with contextlib.suppress(FileExistsError):
                self._disk.mkdir(paths.dir)
        with self._locked(session, paths) as lock:
            self._refuse_taken(session, paths)
            stored = StoredLog(session=session, header=header, entries=())
            return self._handle(stored, LogFile.new(self._disk, paths, header), lock)

    def _own(self, session: str) -> FileHandle:
        paths = self._paths(session)
        self._require(session, paths)
        with self._locked(session, paths) as lock:
            self._require(session, paths)
            loaded = load(self._disk, paths, session, self._vocabulary)
            stored = loaded.owned_by(owner_of(paths.lock))
            return self._handle(stored, LogFile.existing(self._disk, paths, loaded), lock)

    @contextlib.contextmanager
    def _locked(self, session: str, paths: SessionPaths) -> Iterator[SessionLock]:
        lock = SessionLock(session, paths.lock)
        try:
            with self._causes(session, "locking", paths.lock):
                lock.take()
            with self._causes(session, "reading", paths.log):
                yield lock
        except BaseException:
            lock.release()
            raise

    def _handle(self, stored: StoredLog, log: LogFile, lock: SessionLock) -> FileHandle:
        handle = FileHandle(stored, log, lock, self._writers, self._handles.discard)
        self._handles.add(handle)
        return handle

    def _refuse_taken(self, session: str, paths: SessionPaths) -> None:
        """A log is there, or what is left of one: its side files would be taken for this session's evidence."""
        try:
            names = self._disk.names(paths.dir)
        except FileNotFoundError:
            return
        if paths.log.name in names:
            raise SessionExistsError(f"session {session} is there already: {paths.log}")
        if paths.watermark.name in names or any(side_file_seq(name) is not None for name in names):
            raise SessionExistsError(f"session {session} has left files behind, without its log, in {paths.dir}")

    def _make_root(self) -> None:
        """Make what is missing of the root's path, and make every name in it durable.

        A directory that is there already may be as young as one that is made here: its maker may have died before
        syncing it. So all of them are synced, once for a store; those that others own, as far as we may.
        """
        if self._rooted:
            return
        ancestors = [self.root, *self.root.parents]
        made = [path for path in ancestors if not path.exists()]
        for path in reversed(made):
            with contextlib.suppress(FileExistsError):
                self._disk.mkdir(path)
        device = self._disk.stat(self.root).st_dev
        for path in self.root.parents:
            if self._disk.stat(path).st_dev != device:
                break
            try:
                self._disk.sync_dir(path)
            except OSError:
                if made and path in (*made, made[-1].parent):
                    raise
        self._rooted = True

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self, session: str) -> StoredLog:
        paths = self._paths(session)
        self._require(session, paths)
        with self._causes(session, "reading", paths.log):
            for _ in range(_READ_AGAIN):
                loaded = load(self._disk, paths, session, self._vocabulary)
                owner = owner_of(paths.lock)
                # Nobody holds it now, and it is as it was read: so nobody wrote meanwhile.
                if owner is not None or _same(self._disk.stat(paths.log), loaded.stat):
                    break
            return loaded.owned_by(owner)

    def _sessions(self) -> list[str]:
        try:
            names = self._disk.names(self.root)
        except FileNotFoundError:
            return []
        except NotADirectoryError:
            raise not_a_directory(self.root) from None
        except OSError as error:
            raise typed(error, "list", "reading", self.root) from error
        found = ((name, session_of(name)) for name in names)
        return [session or self._shortened(name) for name, session in found if self._is_ours(name, session)]

    def _is_ours(self, name: str, session: str | None) -> bool:
        if session is None and not is_shortened(name):
            return False
        try:
            self._disk.stat(SessionPaths(self.root, name).log)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True  # it is there and cannot be looked at: listed, so that someone learns of it
        return True

    def _shortened(self, name: str) -> str:
        """The id of a session with a shortened name, from its header; the name itself where that cannot be read."""
        try:
            start = self._disk.read(SessionPaths(self.root, name).log, limit=_LONGEST_HEADER)
        except OSError:
            return name
        header = read_header(start.partition(b"\n")[0])
        return header.session if header is not None and segment(header.session) == name else name

    def _paths(self, session: str) -> SessionPaths:
        paths = SessionPaths(self.root, segment(session))
        if is_shortened(session) and not paths.dir.exists():
            return SessionPaths(self.root, session)  # as `_shortened` lists it
        return paths

    def _require(self, session: str, paths: SessionPaths) -> None:
        with self._causes(session, "reading", paths.log):
            self._disk.stat(paths.log)

    @contextlib.contextmanager
    def _causes(self, session: str, doing: str, path: Path) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise not_found(session, self.root) from None
        except NotADirectoryError:
            raise not_a_directory(self.root) from None
        except OSError as error:
            raise typed(error, session, doing, path) from error


def _same(now: os.stat_result, then: os.stat_result) -> bool:
    return (now.st_ino, now.st_size, now.st_mtime_ns) == (then.st_ino, then.st_size, then.st_mtime_ns)
