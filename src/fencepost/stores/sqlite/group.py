"""Group commit: the batches of all sessions of this process that are pending go into one transaction, with one sync.

Rules:
    1. One thread, one connection. What comes while a commit is under way is the next group.
    2. A batch that fails its own checks fails alone. A group that fails as a whole, for a reason that one batch may
       have brought, is taken apart and tried one by one.
    3. Nobody is told that a batch is durable before the commit of its group returned.
    4. After an error of the medium the connection is dead: a failed sync may be reported as fine the next time, with
       the data gone. A fresh one is opened before the dead one is let go: the index of the write-ahead log, which knows
       nothing of the failed commit, lives as long as somebody has it open, and the next commit writes over what the
       failed one left.
    5. A database that was deleted or replaced is looked for again before anything is written; its sessions then say
       whether they are still there.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Sequence
from typing import TypeVar

import apsw

from fencepost.core.events import Entry
from fencepost.errors import FencepostError, StoreError
from fencepost.stores.causes import typed
from fencepost.stores.sqlite.causes import TRANSIENT, cause, result_of
from fencepost.stores.sqlite.connecting import close, open_writer, roll_back
from fencepost.stores.sqlite.place import Place
from fencepost.stores.sqlite.schema import given
from fencepost.stores.sqlite.sessionlog import Head, SessionLog
from fencepost.stores.sqlite.watermark import Noted, Watermark, noted
from fencepost.stores.threads import Job, Threads

T = TypeVar("T")

_GIVE = "UPDATE head SET batch = ? WHERE session = 0 AND batch = ?"

_SETTLED = 20_000_000
"""Nanoseconds after which a directory's time stamp tells of every change: the clock that stamps it is that coarse."""


class Append:
    """One batch on its way, and what came of it.

    Args:
        log: its session, as the owner sees it.
        entries: not empty.
    """

    __slots__ = ("data", "entries", "error", "expected", "following", "landing", "log")

    def __init__(self, log: SessionLog, entries: Sequence[Entry], expected: int) -> None:
        self.log = log
        self.entries = entries
        self.expected = expected
        self.data = b""
        self.following = 0
        self.landing: Head | None = None
        self.error: BaseException | None = None

    def encode(self) -> bool:
        """Make the bytes; whether that worked."""
        try:
            self.data, self.following = self.log.lines(self.entries, self.expected)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this batch's own and the others go on
            self.error = error
            return False
        return True

    def put(self, connection: apsw.Connection, batch: int, now: int) -> None:
        """Write it in the open transaction, if its session lets it.

        Raises:
            apsw.Error: the medium.
        """
        self.landing = None
        try:
            self.landing = self.log.put(connection, batch, self.data, self.following, now)
        except FencepostError as error:
            self.error = error


class GroupWriter:
    """The only writer of this process to one database.

    Args:
        vfs: SQLite's own way to the operating system, by name; None for the default.
        patience: seconds to wait for another process at most.
    """

    def __init__(self, place: Place, vfs: str | None, patience: float) -> None:
        self._place = place
        self._vfs = vfs
        self._patience = patience
        self._threads = Threads(1, "fencepost-sqlite")
        self._start_over()

    def _start_over(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._pending: list[Append] = []
        self._next: dict[AbstractEventLoop, Job[None]] = {}
        """The job of each event loop that has not begun: it takes along what comes until it does."""
        self._connection: apsw.Connection | None = None
        self._dead: list[apsw.Connection] = []
        self._watermark: Watermark | None = None
        self._files: tuple[tuple[int, int], ...] = ()
        self._directory = -1
        self._stamp = 0
        self._given = 0
        """The newest id that was given to a batch, unless another process gave one since."""
        self._newest = 0
        """The newest batch that was acknowledged, if that has not been noted yet."""

    # --- in the event loop --------------------------------------------------------------------------------------

    def submit(self, append: Append) -> Job[None]:
        """Let a batch go with the next group; the job has ended when the batch has landed or failed.

        Raises:
            ClosedError: after `close`.
        """
        self._leave_parent()
        loop = get_running_loop()
        with self._lock:
            job = self._next.get(loop)
            if job is None:
                job = self._threads.submit(lambda: self._run(loop), self._note)
                self._next[loop] = job
            self._pending.append(append)
            return job

    def apart(self, doing: str, work: Callable[[apsw.Connection], T]) -> Job[T]:
        """Have `work` done in a transaction of its own, between two groups.

        Args:
            doing: which session, and what: for errors.

        Raises:
            ClosedError: after `close`.
        """
        self._leave_parent()
        return self._threads.submit(lambda: self._apart(doing, work), self._note)

    def _leave_parent(self) -> None:
        if self._pid != os.getpid():
            _INHERITED.append((self._connection, self._dead))
            self._start_over()

    async def close(self) -> None:
        """Write what is pending, close the database, and take nothing more. Idempotent."""
        try:
            if self._pid == os.getpid() and (self._connection is not None or self._dead):
                await self._threads.submit(self._let_go).outcome()
        finally:
            await self._threads.close()

    # --- in the thread ------------------------------------------------------------------------------------------

    def _run(self, loop: AbstractEventLoop) -> None:
        with self._lock:
            self._next.pop(loop, None)
            pending, self._pending = self._pending, []
        group = [append for append in pending if append.encode()]
        if group:
            self._write(group)

    def _write(self, group: list[Append]) -> None:
        try:
            self._commit(group)
        except apsw.Error as error:
            if len(group) > 1 and result_of(error) in TRANSIENT - {apsw.SQLITE_BUSY}:
                for append in group:
                    if append.error is None:
                        self._write([append])
                return
            failure = cause(error, self._connection, "writing to", self._place.file)
            failure.__cause__ = error
            self._fail(group, failure)
            if result_of(error) not in TRANSIENT:
                self._replace()
        except OSError as error:
            self._fail(group, typed(error, group[0].log.session, "opening", self._place.file))
        except BaseException as error:  # noqa: BLE001 - whoever waits for this group must fail, not hang
            self._fail(group, error)

    def _commit(self, group: list[Append]) -> None:
        """One transaction for all of them."""
        connection = self._ready()
        connection.execute("BEGIN IMMEDIATE")
        committing = False
        try:
            batch = self._give(connection, len(group))
            now = time.time_ns() // 1_000_000
            for number, append in enumerate(group, batch + 1):
                append.put(connection, number, now)
            committing = any(append.landing for append in group)
            connection.execute("COMMIT" if committing else "ROLLBACK")
        except BaseException:
            if committing:
                for append in group:
                    if append.landing is not None:
                        append.log.doubted(append.landing.batch)
            roll_back(connection)
            raise
        for append in group:
            if append.landing is not None:
                append.log.landed(append.landing)
        if committing:
            self._newest = self._given = batch + len(group)

    def _give(self, connection: apsw.Connection, count: int) -> int:
        """Give ids to `count` batches; returns the one before them."""
        connection.execute(_GIVE, (self._given + count, self._given))
        if connection.changes():
            return self._given
        newest, _ = given(connection)
        connection.execute(_GIVE, (newest + count, newest))
        return newest

    def _apart(self, doing: str, work: Callable[[apsw.Connection], T]) -> T:
        try:
            connection = self._ready()
            connection.execute("BEGIN IMMEDIATE")
            try:
                found = work(connection)
                connection.execute("COMMIT")
            finally:
                roll_back(connection)
        except apsw.Error as error:
            told = cause(error, self._connection, doing, self._place.file)
            if result_of(error) not in TRANSIENT:
                self._replace()
            raise told from error
        except OSError as error:
            raise typed(error, doing, "opening", self._place.file) from error
        return found

    def _fail(self, group: list[Append], error: BaseException) -> None:
        for append in group:
            if append.error is None:
                append.error = _told(append, error)

    def _note(self) -> None:
        """What nobody waits for."""
        if self._watermark is not None and self._newest:
            self._watermark.note(self._newest)
            self._newest = 0

    # --- the connection -----------------------------------------------------------------------------------------

    def _ready(self) -> apsw.Connection:
        """The connection to the database that is in its place now."""
        if self._connection is not None and self._moved():
            self._let_go()
        return self._connection or self._opened()

    def _moved(self) -> bool:
        """Whether other files are in the place of the database and its log. As long as no name in their directory
        changes that is one cheap question."""
        stamp = os.fstat(self._directory).st_mtime_ns
        if stamp == self._stamp:
            return False
        self._stamp = stamp if time.time_ns() - stamp > _SETTLED else -1
        return self._found() != self._files

    def _found(self) -> tuple[tuple[int, int], ...]:
        """Which files are in the place of the database and of its log."""
        try:
            stats = (self._place.file.stat(), self._place.wal.stat())
        except FileNotFoundError:
            return ()
        return tuple((stat.st_dev, stat.st_ino) for stat in stats)

    def _opened(self) -> apsw.Connection:
        note = noted(self._place.watermark)  # before the database: others move both forward
        connection = open_writer(self._place, self._vfs, self._patience)
        try:
            _, database = given(connection)
            self._note_lost(connection, note, database)
            self._directory = os.open(self._place.file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except BaseException:
            close(connection)
            raise
        self._connection = connection
        self._watermark = Watermark(self._place.watermark, database)
        self._stamp = -1
        self._files = self._found()
        self._bury()
        return connection

    def _note_lost(self, connection: apsw.Connection, note: Noted, database: str) -> None:
        """Before the first commit makes the database look whole again: keep it that commits were lost."""
        if not note.ahead_of(given(connection)[0], database):
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            newest, _ = given(connection)
            if note.ahead_of(newest, database):
                connection.execute("INSERT OR IGNORE INTO lost VALUES (?, ?)", (newest, note.batch))
                connection.execute(_GIVE, (note.batch, newest))
            connection.execute("COMMIT")
        finally:
            roll_back(connection)

    def _replace(self) -> None:
        """Put the dead connection aside, and open a fresh one if that works already (rule 4)."""
        if self._connection is not None:
            self._dead.append(self._connection)
            self._forget()
        with contextlib.suppress(apsw.Error, FencepostError, OSError):  # the next group tries again, and says it
            self._opened()

    def _bury(self) -> None:
        while self._dead:
            close(self._dead.pop())

    def _forget(self) -> None:
        self._connection = None
        if self._watermark is not None:
            self._watermark.close()
            self._watermark = None
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1

    def _let_go(self) -> None:
        self._note()
        connection = self._connection
        self._forget()
        if connection is not None:
            close(connection)
        self._bury()


_INHERITED: list[object] = []
"""In a forked child, the connections of its parent: SQLite forbids both to use and to close them."""


def _told(append: Append, error: BaseException) -> BaseException:
    """The error of a group, for one of its sessions."""
    if isinstance(error, StoreError):
        told = type(error)(f"session {append.log.session}: {error}", next_act=error.next_act)
        told.__cause__ = error.__cause__
        return told
    return error
