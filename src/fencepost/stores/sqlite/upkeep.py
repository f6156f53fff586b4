"""What happens to sessions that nobody works on: into the trash, out of it, and out of the database.

Rules:
    1. Each of these holds the session's lock while it moves anything, so no owner ever sees its session go.
    2. The database decides where a session is. Its large outputs follow: they go into the trash before it and come out
       after it, so a cut in between leaves them in the trash of a session that is not there, and its next owner takes
       them back. In the trash they are named by database and row, which no other session ever has.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import apsw

from fencepost.errors import SessionExistsError, SessionNotFoundError
from fencepost.stores.base import Trashed
from fencepost.stores.causes import typed
from fencepost.stores.lock import SessionLock
from fencepost.stores.sqlite import trash
from fencepost.stores.sqlite.causes import reading
from fencepost.stores.sqlite.group import GroupWriter
from fencepost.stores.sqlite.place import Place, sync_dir
from fencepost.stores.sqlite.readers import Readers
from fencepost.stores.threads import Threads

T = TypeVar("T")


class SqliteUpkeep:
    """Looks after the sessions of one database.

    Args:
        threads: for all that does not write to the database.
    """

    def __init__(self, place: Place, readers: Readers, threads: Threads, writer: GroupWriter) -> None:
        self._place = place
        self._readers = readers
        self._threads = threads
        self._writer = writer

    async def delete(self, session: str) -> None:
        """Move a session into the trash; see `Upkeep.delete`."""
        await self._asked(session, partial(self._require, session), None)
        async with self._locked(session):
            kept = await self._asked(session, partial(self._require, session), None)
            assert kept is not None
            await self._moved(session, self._place.files(session), kept)
            try:
                await self._writer.apart(f"session {session}: deleting it from", partial(_put, session)).outcome()
            except BaseException:
                await self._moved(session, kept, self._place.files(session))
                raise

    async def trash(self) -> list[Trashed]:
        """What is in the trash; see `Upkeep.trash`."""
        return await self._asked("list", trash.entries, [])

    async def restore(self, session: str) -> None:
        """Take a session out of the trash; see `Upkeep.restore`."""
        if await self._asked(session, partial(trash.newest, session=session), None) is None:
            raise trash.not_there(session)
        target = self._place.files(session)
        async with self._locked(session):
            if target.exists():
                raise SessionExistsError(f"session {session} has left files behind, in {target}")
            doing = f"session {session}: restoring it in"
            await self._writer.apart(doing, partial(trash.take, session=session)).outcome()
            await self._threads.submit(partial(self.take_back, session)).outcome()

    async def purge(self, before: int) -> int:
        """Destroy what was deleted before a time, each session for itself; see `Upkeep.purge`."""
        count = 0
        none: list[int] = []
        for key in await self._asked("purge", partial(trash.deleted_before, before=before), none):
            count += await self._writer.apart("purging the trash of", partial(trash.destroy, key=key)).outcome()
        await self._threads.submit(self._sweep).outcome()
        return count

    def take_back(self, session: str) -> None:
        """Under the lock of a session that is not in the trash: its outputs are not either."""
        with self._readers.lent() as connection:
            key = None if connection is None else trash.key_of(connection, session)
            kept = None if connection is None or key is None else self._kept(connection, key)
        target = self._place.files(session)
        if kept is not None and kept.exists() and not target.exists():
            self._move(session, kept, target)

    # --- parts --------------------------------------------------------------------------------------------------

    def _require(self, session: str, connection: apsw.Connection) -> Path:
        """Where the outputs of a session go with it."""
        key = trash.key_of(connection, session)
        if key is None:
            raise SessionNotFoundError(f"no session {session} in {self._place.file}")
        return self._kept(connection, key)

    def _kept(self, connection: apsw.Connection, key: int) -> Path:
        return self._place.trash / f"{trash.database(connection)}-{key}"

    async def _asked(self, session: str, question: Callable[[apsw.Connection], T], empty: T) -> T:
        def ask() -> T:
            with reading(session, self._place.file), self._readers.lent() as connection:
                return empty if connection is None else question(connection)

        return await self._threads.submit(ask).outcome()

    async def _moved(self, session: str, source: Path, target: Path) -> None:
        await self._threads.submit(partial(self._move, session, source, target)).outcome()

    def _move(self, session: str, source: Path, target: Path) -> None:
        try:
            self._place.move(source, target)
        except OSError as error:
            raise typed(error, session, "moving", source) from error

    def _sweep(self) -> None:
        """Remove the outputs of sessions that are neither here nor in the trash."""
        with reading("purge", self._place.file), self._readers.lent() as connection:
            if connection is None or not self._place.trash.exists():
                return
            own = f"{trash.database(connection)}-"
            alive = {f"{own}{key}" for key in trash.alive(connection)}
        gone = [path for path in self._place.trash.iterdir() if path.name.startswith(own) and path.name not in alive]
        for path in gone:
            try:
                shutil.rmtree(path)
                sync_dir(self._place.trash)
            except OSError as error:
                raise typed(error, "purge", "removing", path) from error

    @contextlib.asynccontextmanager
    async def _locked(self, session: str) -> AsyncIterator[None]:
        lock = SessionLock(session, self._place.lock(session))
        await self._threads.submit(partial(self._take, session, lock)).outcome(undo=lambda _: lock.release())
        try:
            yield
        finally:
            lock.release()

    def _take(self, session: str, lock: SessionLock) -> None:
        try:
            self._place.make()
            lock.take()
        except OSError as error:
            raise typed(error, session, "locking", self._place.lock(session)) from error


def _put(session: str, connection: apsw.Connection) -> None:
    trash.put(connection, session, time.time_ns() // 1_000_000)
