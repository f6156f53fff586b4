"""The store of one SQLite file: it names sessions, takes their locks and reads them. How a batch becomes durable stands
in `group`, what the rows mean in `rows`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import apsw

from fencepost.core.codec import Vocabulary
from fencepost.core.events import Entry, Header
from fencepost.errors import DamagedError, SessionExistsError, SessionNotFoundError, StoreError, UsageError
from fencepost.stores.base import Compressed, Footing, Owner, StoredLog, Trashed
from fencepost.stores.causes import typed
from fencepost.stores.lock import SessionLock, owner_of
from fencepost.stores.sqlite import loading, salvage
from fencepost.stores.sqlite.causes import reading
from fencepost.stores.sqlite.connecting import refuse_surroundings
from fencepost.stores.sqlite.group import GroupWriter
from fencepost.stores.sqlite.handle import SqliteHandle
from fencepost.stores.sqlite.loading import Loaded
from fencepost.stores.sqlite.place import Place
from fencepost.stores.sqlite.readers import Readers
from fencepost.stores.sqlite.sessionlog import Head, SessionLog
from fencepost.stores.sqlite.upkeep import SqliteUpkeep
from fencepost.stores.threads import Threads

PATIENCE = 10.0
"""Seconds to wait at most while another process has the database for itself."""

_READERS = 4
_READ_AGAIN = 5
"""Times that a log is read anew because it grew while its owner came or went."""


class SqliteStore:
    """Sessions in one database file. Nothing is made before the first `create`.

    Reading needs FILE-shm and FILE-wal beside the database, and SQLite makes them where they are missing; the database
    itself is not touched by it.

    Args:
        file: the database; made, mode 0600, by the first append where it is missing.
        vocabulary: the declared event types. With one, a log that holds others is refused to its next owner; without
            one the store keeps them untouched and leaves the judgement to whoever folds the log.
        vfs: SQLite's own way to the operating system, by name; None for the default.
        patience: seconds to wait at most while another process has the database for itself.
    """

    durable = True

    def __init__(
        self,
        file: Path | str,
        *,
        vocabulary: Vocabulary | None = None,
        vfs: str | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._place = Place(Path(file))
        self._vocabulary = vocabulary
        self._readers = Readers(self._place, vfs, patience)
        self._writer = GroupWriter(self._place, vfs, patience)
        self._threads = Threads(_READERS, "fencepost-reader")
        self._upkeep = SqliteUpkeep(self._place, self._readers, self._threads, self._writer)
        self._handles: set[SqliteHandle] = set()

    @property
    def url(self) -> str:
        """`sqlite:` and the file."""
        return f"sqlite:{self._place.file}"

    @property
    def ownership(self) -> str:
        """What keeps a second writer out."""
        return "an OS lock on an open file beside the database, and an epoch that each append compares"

    def files(self, session: str) -> Path:
        """Where a session's large outputs go, beside the database; made by whoever first writes there."""
        return self._place.files(session)

    def __repr__(self) -> str:
        return f"<SqliteStore {self._place.file} | {len(self._handles)} owned>"

    # --- the contract -------------------------------------------------------------------------------------------

    async def create(self, header: Header) -> SqliteHandle:
        """Take ownership of a new session; see `Store.create`. Makes its lock, and nothing in the database yet."""
        lock = SessionLock(header.session, self._place.lock(header.session))
        return await self._taken(partial(self._create, header, lock))

    async def own(self, session: str) -> SqliteHandle:
        """Take ownership of a stored session, then read it; see `Store.own`."""
        return await self._taken(partial(self._own, session))

    async def read(self, session: str) -> StoredLog:
        """Read a session beside whoever owns it; see `Store.read`."""
        return await self._threads.submit(partial(self._read, session)).outcome()

    async def entries_from(self, session: str, start: int) -> list[Entry]:
        """The entries of a session from the one that holds seq `start` on, without reading what stands before it.

        Raises:
            SessionNotFoundError: no such session here.
            DamagedError: they are not whole; `read` says how.
        """
        return await self._threads.submit(partial(self._entries_from, session, start)).outcome()

    async def sessions(self) -> list[str]:
        """The ids of all sessions, damaged ones included."""
        return await self._threads.submit(self._sessions).outcome()

    async def revisions(self) -> dict[str, str]:
        """A token for each session; see `Upkeep.revisions`."""
        return await self._threads.submit(self._revisions).outcome()

    async def owner(self, session: str) -> Owner | None:
        """Who holds a session now; see `Upkeep.owner`."""
        return await self._threads.submit(partial(self._owner, session)).outcome()

    async def delete(self, session: str) -> None:
        """Move a session into the trash; see `Upkeep.delete`."""
        await self._upkeep.delete(session)

    async def trash(self) -> list[Trashed]:
        """What is in the trash; see `Upkeep.trash`."""
        return await self._upkeep.trash()

    async def restore(self, session: str) -> None:
        """Take a session out of the trash; see `Upkeep.restore`."""
        await self._upkeep.restore(session)

    async def purge(self, before: int) -> int:
        """Destroy what was deleted before a time; see `Upkeep.purge`."""
        return await self._upkeep.purge(before)

    async def compress(self, session: str) -> Compressed:
        """A database has no such form; see `Upkeep.compress`."""
        raise UsageError(f"session {session}: {self.url} keeps no compressed logs")

    async def footing(self) -> Footing:
        """The file system under the database, and the library; see `Footed.footing`.

        Whether the library takes WAL and full syncs there is found out by whoever first writes, before anything is.
        """
        return Footing(directory=self._place.file.parent, settings={"sqlite_version": apsw.sqlite_lib_version()})

    async def close(self) -> None:
        """Release what is owned, and end the threads. Idempotent."""
        try:
            for handle in list(self._handles):
                await handle.release()
        finally:
            await self._threads.close()
            self._readers.close()
            await self._writer.close()

    async def _taken(self, take: Callable[[], SqliteHandle]) -> SqliteHandle:
        return await self._threads.submit(take).outcome(undo=SqliteHandle.let_go)

    # --- taking -------------------------------------------------------------------------------------------------

    def _create(self, header: Header, lock: SessionLock) -> SqliteHandle:
        session = header.session
        with reading(session, self._place.file):
            refuse_surroundings(self._place)
            self._refuse_taken(session)
            self._place.make()
            with self._locked(lock):
                self._refuse_taken(session)
                stored = StoredLog(session=session, header=header, entries=())
                return self._handle(stored, SessionLog(session, header, None, None), lock)

    def _own(self, session: str) -> SqliteHandle:
        lock = SessionLock(session, self._place.lock(session))
        with reading(session, self._place.file):
            self._require(session)
            self._place.make()
            with self._locked(lock):
                with contextlib.suppress(DamagedError):
                    self._upkeep.take_back(session)
                loaded = self._loaded(session)
                log = SessionLog(session, loaded.stored.header, loaded.head, loaded.refusal())
                return self._handle(loaded.owned_by(owner_of(self._place.lock(session))), log, lock)

    @contextlib.contextmanager
    def _locked(self, lock: SessionLock) -> Iterator[None]:
        try:
            lock.take()
            yield
        except BaseException:
            lock.release()
            raise

    def _handle(self, stored: StoredLog, log: SessionLog, lock: SessionLock) -> SqliteHandle:
        handle = SqliteHandle(stored, log, lock, self._writer, self._handles.discard)
        self._handles.add(handle)
        return handle

    def _refuse_taken(self, session: str) -> None:
        if self._exists(session):
            raise SessionExistsError(f"session {session} is there already, in {self._place.file}")

    def _require(self, session: str) -> None:
        with contextlib.suppress(DamagedError):
            if not self._exists(session):
                raise self._not_found(session)

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self, session: str) -> StoredLog:
        path = self._place.lock(session)
        with reading(session, self._place.file):
            for _ in range(_READ_AGAIN):
                loaded = self._loaded(session)
                owner = owner_of(path)
                # Nobody holds it now, and its log ends where it ended: so nobody wrote meanwhile.
                if owner is not None or loaded.stored.damage or self._head(session) == loaded.head:
                    break
            return loaded.owned_by(owner)

    def _loaded(self, session: str) -> Loaded:
        try:
            with self._readers.lent() as connection:
                loaded = None
                if connection is not None:
                    loaded = loading.load(connection, self._place, session, self._vocabulary)
        except DamagedError as error:
            loaded = loading.nothing_left(self._place, session, str(error))
        if loaded is None:
            raise self._not_found(session)
        return loaded

    def _exists(self, session: str) -> bool:
        with self._readers.lent() as connection:
            return connection is not None and loading.exists(connection, session)

    def _head(self, session: str) -> Head | None:
        with self._readers.lent() as connection:
            return None if connection is None else loading.head_of(connection, session)

    def _entries_from(self, session: str, start: int) -> list[Entry]:
        with reading(session, self._place.file):
            with self._readers.lent() as connection:
                found = None
                if connection is not None:
                    found = loading.suffix(connection, session, start, self._vocabulary)
            if found is None:
                raise self._not_found(session)
            return found

    def _sessions(self) -> list[str]:
        with reading("list", self._place.file):
            try:
                with self._readers.lent() as connection:
                    return loading.names(connection) if connection is not None else []
            except DamagedError:
                return self._names_around()

    def _revisions(self) -> dict[str, str]:
        with reading("list", self._place.file):
            try:
                with self._readers.lent() as connection:
                    return loading.revisions(connection, self._place) if connection is not None else {}
            except DamagedError:
                stat = self._place.file.stat()
                return dict.fromkeys(self._names_around(), f"malformed-{stat.st_size}-{stat.st_mtime_ns}")

    def _owner(self, session: str) -> Owner | None:
        path = self._place.lock(session)
        try:
            return owner_of(path)
        except OSError as error:
            raise typed(error, session, "reading", path) from error

    def _names_around(self) -> list[str]:
        """What can be found of the names where the database is malformed: in it, and in the names of the locks."""
        found: list[str] = []
        with contextlib.suppress(StoreError, apsw.Error), self._readers.lent() as connection:
            found = salvage.names(connection) if connection is not None else []
        return list(dict.fromkeys((*found, *self._place.locked_once())))

    def _not_found(self, session: str) -> SessionNotFoundError:
        return SessionNotFoundError(f"no session {session} in {self._place.file}")
