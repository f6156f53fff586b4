"""Sessions that many hosts share, in one schema of a PostgreSQL database.

It takes sessions and reads them; how a batch becomes durable stands in `rounds`, who may write in `claims`, what the
rows mean in `rows`.

Nothing is made before the first `create`: a database without the schema is an empty store.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TypeAlias, TypeVar

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from fencepost.core.codec import Vocabulary
from fencepost.core.events import Entry, Header
from fencepost.errors import ClosedError, UsageError
from fencepost.stores.base import Compressed, Footing, Owner, StoredLog, Trashed
from fencepost.stores.names import segment
from fencepost.stores.postgres.address import Address
from fencepost.stores.postgres.causes import typed
from fencepost.stores.postgres.claims import Claim, Claims, session_named, stored_name
from fencepost.stores.postgres.handle import PostgresHandle
from fencepost.stores.postgres.keeper import Keeper
from fencepost.stores.postgres.link import Links, Reach, Work
from fencepost.stores.postgres.migrations import VERSION, migrate, refuse_newer, version_of
from fencepost.stores.postgres.reading import Reading
from fencepost.stores.postgres.rounds import Rounds
from fencepost.stores.postgres.statements import SETTINGS, Statements
from fencepost.stores.postgres.upkeep import MARK, PostgresUpkeep, not_there
from fencepost.stores.threads import Threads

T = TypeVar("T")
Server: TypeAlias = "Connection[TupleRow]"

_READERS = 4


VITAL = {
    "fsync": "what it acknowledges does not survive a power cut",
    "full_page_writes": "a page that a power cut tears cannot be put together again",
}
"""The settings that no client can turn on for itself."""

NOTE = (
    "appends turn synchronous_commit on for themselves; no child was killed here, for that would take tables of its own"
    " in this database"
)


class PostgresStore:
    """Sessions in PostgreSQL.

    Args:
        url: see `address`. Neither the server nor a file is touched before the first use.
        vocabulary: the declared event types. With one, a log that holds others is refused to its next owner; without
            one the store keeps them untouched and leaves the judgement to whoever folds the log.

    Raises:
        UsageError: the URL is wrong.
    """

    durable = True
    ownership = "a lease with an epoch"

    def __init__(self, url: str, *, vocabulary: Vocabulary | None = None) -> None:
        self._address = Address(url)
        self._statements = Statements(self._address.schema)
        self._reading = Reading(self._statements, vocabulary)
        self._claims = Claims(self._address, self._statements)
        self._upkeep = PostgresUpkeep(self._address.schema, self._claims)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        """What belongs to one process, and is left behind in a forked child."""
        self._pid = os.getpid()
        self._reach = Reach(self._address)
        self._links = Links(self._reach)
        self._rounds = Rounds(self._address, self._reach, self._statements, self._claims)
        self._readers = Threads(_READERS, "fencepost-postgres-reader")
        self._owned: set[Claim] = set()
        self._handles: set[PostgresHandle] = set()
        self._keeper = Keeper(self._rounds, self._address.lease, lambda: list(self._owned))
        self._current = False
        """Whether the schema is known to be of this release."""

    def __repr__(self) -> str:
        return f"<PostgresStore {self.url} | {len(self._owned)} owned>"

    @property
    def url(self) -> str:
        """The URL, its password masked."""
        return self._address.url

    def files(self, session: str) -> Path:
        """A directory on this host for what is too large for a session's log; made by whoever first writes there.

        The database carries the log only: another host that continues the session finds none of these files.
        """
        base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
        return Path(base) / "fencepost" / "files" / segment(session)

    # --- the contract -------------------------------------------------------------------------------------------

    async def create(self, header: Header) -> PostgresHandle:
        """Take ownership of a new session; see `Store.create`. Makes the schema where it is missing, or older."""
        stored_name(header.session)
        return await self._taken(partial(self._create, header))

    async def own(self, session: str) -> PostgresHandle:
        """Take ownership of a stored session, then read it; see `Store.own`.

        This writes who owns the session, in its head, and changes no byte of the log. It is granted if the session was
        given up, or if its owner's lease has run out by the server's clock.
        """
        stored_name(session)
        return await self._taken(partial(self._own, session, takeover=False))

    async def take_over(self, session: str) -> PostgresHandle:
        """Take a session from an owner whose lease still runs, too; see `Fenced.take_over`."""
        stored_name(session)
        return await self._taken(partial(self._own, session, takeover=True))

    async def read(self, session: str) -> StoredLog:
        """Read a session beside whoever owns it; see `Store.read`."""
        return await self._asked(session, "reading", partial(self._read, session))

    async def entries_from(self, session: str, seq: int) -> list[Entry]:
        """The entries of a session from the one on that holds `seq`, up to its end or the first damage.

        Raises:
            SessionNotFoundError: no such session here.
        """
        return await self._asked(session, "reading", partial(self._since, session, seq))

    async def sessions(self) -> list[str]:
        """The ids of all sessions, damaged ones included."""
        return await self._asked(None, "listing", self._sessions)

    async def revisions(self) -> dict[str, str]:
        """A token for each session; see `Upkeep.revisions`."""
        return await self._asked(None, "listing", self._kept(self._upkeep.revisions, {}))

    async def owner(self, session: str) -> Owner | None:
        """Who holds a session now; see `Upkeep.owner`."""
        look = await self._asked(
            session, "reading", self._kept(lambda server: self._claims.look(server, session), None)
        )
        return look.owner if look is not None else None

    async def delete(self, session: str) -> None:
        """Move a session into the trash; see `Upkeep.delete`. Its files on this host stay where they are."""
        now = time.time_ns() // 1_000_000
        await self._asked(session, "deleting", partial(self._put, session, now))

    async def trash(self) -> list[Trashed]:
        """What is in the trash; see `Upkeep.trash`."""
        return await self._asked(None, "listing", self._kept(self._upkeep.trashed, []))

    async def restore(self, session: str) -> None:
        """Take a session out of the trash; see `Upkeep.restore`."""
        newest = self._kept(lambda server: self._upkeep.newest(server, session), None)
        place = await self._asked(session, "restoring", newest)
        if place is None:
            raise not_there(session)
        await self._asked(session, "restoring", lambda server: self._upkeep.take(server, session, place))

    async def purge(self, before: int) -> int:
        """Destroy what was deleted before a time, all of it or nothing; see `Upkeep.purge`."""
        return await self._asked(None, "purging", self._kept(lambda server: self._upkeep.purge(server, before), 0))

    async def compress(self, session: str) -> Compressed:
        """The server compresses by itself what is worth it; see `Upkeep.compress`."""
        raise UsageError(f"session {session}: {self.url} has no compressed form of its own; the server sees to that")

    async def settings(self) -> dict[str, str]:
        """What the server says of itself: `server_version`, `fsync`, `full_page_writes`, `synchronous_commit`.

        With `fsync` or `full_page_writes` off nothing survives a power cut. `synchronous_commit` is what role and
        database set; appends turn it on for themselves.
        """
        return await self._asked(None, "asking for settings", lambda server: dict(server.execute(SETTINGS).fetchall()))

    async def footing(self) -> Footing:
        """The settings of the server on which a commit rests; see `Footed.footing`."""
        settings = await self.settings()
        off = [name for name in VITAL if settings.get(name) != "on"]
        problems = tuple(f"the server runs with {name} = {settings.get(name)}: {VITAL[name]}" for name in off)
        return Footing(settings=settings, problems=problems, note=NOTE)

    async def close(self) -> None:
        """Finish the appends in flight, and release what is still owned. Idempotent."""
        if self._closed or self._pid != os.getpid():
            self._closed = True
            return
        self._closed = True
        self._keeper.stop()
        self._reach.hurry.set()
        for handle in self._handles:
            handle.close()
        try:
            for handle in self._handles:
                await handle.settle()
            await self._rounds.close()
            await self._readers.submit(self._leave).outcome()
        finally:
            await self._readers.close()
            self._links.close()

    # --- from the event loop into a thread ----------------------------------------------------------------------

    async def _asked(self, session: str | None, doing: str, work: Work[T]) -> T:
        self._here()
        return await self._readers.submit(partial(self._run, session, doing, work)).outcome()

    async def _taken(self, take: Callable[[], PostgresHandle]) -> PostgresHandle:
        self._here()
        self._keeper.start()
        handle = await self._readers.submit(take).outcome(undo=self._undo)
        self._handles.add(handle)
        return handle

    def _undo(self, handle: PostgresHandle) -> None:
        """Whoever asked for it has gone."""
        handle.close()
        self._readers.submit(partial(self._let_go, [handle.claim]))

    async def _released(self, handle: PostgresHandle) -> None:
        self._handles.discard(handle)
        await self._readers.submit(partial(self._let_go, [handle.claim])).outcome()

    def _here(self) -> None:
        """Make sure that the store is open, in this very process."""
        if self._closed:
            raise ClosedError("the store is closed")
        if self._pid != os.getpid():
            self._parents = (self._links, self._rounds, self._handles)  # connections that are not ours to close
            self._begin()

    # --- in a reader's thread -----------------------------------------------------------------------------------

    def _run(self, session: str | None, doing: str, work: Work[T]) -> T:
        with self._causes(session, doing):
            return self._links.run(work)

    @contextlib.contextmanager
    def _causes(self, session: str | None, doing: str) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise typed(error, f"session {session}: {doing}" if session else doing, self._address) from error

    def _create(self, header: Header) -> PostgresHandle:
        token = uuid.uuid4()

        def reserve(server: Server) -> Claim:
            if self._version(server) < VERSION:
                migrate(server, self._address.schema)
            return self._claims.reserve(server, header, token)

        claim = self._run(header.session, "taking", reserve)
        self._owned.add(claim)
        stored = StoredLog(session=header.session, header=header, entries=())
        return PostgresHandle(stored, claim, self._rounds, self._released)

    def _own(self, session: str, *, takeover: bool) -> PostgresHandle:
        token = uuid.uuid4()

        def own(server: Server) -> Claim:
            version = self._version(server)
            if version == 0:
                raise self._claims.not_found(session)
            if version < VERSION:
                migrate(server, self._address.schema)
            return self._claims.own(server, session, token, takeover=takeover)

        claim = self._run(session, "taking", own)
        self._owned.add(claim)
        try:
            stored = self._run(session, "reading", partial(self._read, session))
        except BaseException:
            self._let_go([claim])
            raise
        return PostgresHandle(stored, claim, self._rounds, self._released)

    def _let_go(self, claims: list[Claim]) -> None:
        self._owned.difference_update(claims)
        # A server that is away, or lost the tables, keeps nobody from leaving: the lease runs out.
        with contextlib.suppress(psycopg.Error):
            self._links.run(lambda server: self._claims.give_up(server, claims))

    def _leave(self) -> None:
        self._let_go(list(self._owned))
        self._rounds.hang_up()

    def _read(self, session: str, server: Server) -> StoredLog:
        stored = self._reading.whole(server, session) if self._version(server) else None
        if stored is None:
            raise self._claims.not_found(session)
        return stored

    def _since(self, session: str, seq: int, server: Server) -> list[Entry]:
        entries = self._reading.since(server, session, seq) if self._version(server) else None
        if entries is None:
            raise self._claims.not_found(session)
        return entries

    def _sessions(self, server: Server) -> list[str]:
        if not self._version(server):
            return []
        names = (name for (name,) in server.execute(self._statements.names))
        return [session_named(name) for name in names if not name.startswith(MARK)]

    def _kept(self, work: Work[T], nothing: T) -> Work[T]:
        """The same work; what it gives where there is no schema yet."""
        return lambda server: work(server) if self._version(server) else nothing

    def _put(self, session: str, now: int, server: Server) -> None:
        if not self._version(server):
            raise self._claims.not_found(session)
        self._upkeep.put(server, session, now)

    def _version(self, server: Server) -> int:
        """The version of the schema, 0 where there is none. Asked for until it is this release's.

        Raises:
            UnsupportedError: it is a newer release's.
        """
        if self._current:
            return VERSION
        version = version_of(server, self._address.schema)
        refuse_newer(version, self._address.schema)
        self._current = version == VERSION
        return version
