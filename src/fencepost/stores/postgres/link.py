"""Connections that come back: made when they are first needed, and made again after they broke.

Rules:
    1. A connection is used by one thread at a time, and by the process that made it.
    2. Work that met a broken connection is done again on a new one, after the pauses of `PAUSES`. So work begins by
       looking at what its earlier attempt left behind. A server that was never reached is not waited for.
    3. Nothing is left open behind a piece of work: each is whole transactions.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import psycopg
from psycopg import Connection
from psycopg.rows import TupleRow

from fencepost.errors import FencepostError
from fencepost.stores.postgres.address import Address
from fencepost.stores.postgres.causes import AGAIN, READ_ONLY

T = TypeVar("T")
Work: TypeAlias = "Callable[[Connection[TupleRow]], T]"

PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0)
"""Seconds between the attempts to get back to a server: a failover, or a restart after a crash, fits in."""

_GONE = frozenset({"FATAL", "PANIC"})


def is_gone(connection: Connection[TupleRow], error: psycopg.Error) -> bool:
    """Whether `error` took the connection along; then nobody knows what came of the statement that met it."""
    return connection.closed or error.diag.severity_nonlocalized in _GONE


class Reach:
    """What the connections of one store share."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self.hurry = threading.Event()
        """Set when the store closes: nobody waits for a server any more."""
        self.worked = False
        """Whether the server was ever reached."""


class Link:
    """One connection."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._connection: Connection[TupleRow] | None = None

    def run(self, work: Work[T], *, patient: bool = True) -> T:
        """What `work` gives.

        Args:
            work: whole transactions. It is called again after its connection broke, or after the server rolled it back
                in favour of somebody else.
            patient: whether to wait for a server that is away.

        Raises:
            psycopg.Error: the last attempt failed.
        """
        pauses = iter(PAUSES if patient else PAUSES[:1])
        while True:
            try:
                return work(self._ready())
            except psycopg.Error as error:
                again = self._after(error)
                pause = next(pauses, None)
                if not again or pause is None or self._reach.hurry.wait(pause):
                    raise
            except FencepostError:
                raise  # what the work found out, by whole transactions
            except BaseException:
                self.drop()  # nobody knows in which state it is
                raise

    def _ready(self) -> Connection[TupleRow]:
        if self._connection is None:
            self._connection = psycopg.connect(self._reach.address.conninfo, autocommit=True, prepare_threshold=None)
            self._reach.worked = True
        return self._connection

    def _after(self, error: psycopg.Error) -> bool:
        """Let go of a connection that is of no use any more; returns whether another attempt may go better."""
        connection = self._connection
        if connection is None:
            return self._reach.worked
        gone = is_gone(connection, error)
        if gone or error.sqlstate == READ_ONLY:  # the next attempt may reach the server that took over
            self.drop()
        return gone or error.sqlstate in AGAIN

    def drop(self) -> None:
        """Close the connection; the next piece of work makes a new one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Links:
    """Connections for work that needs one at a time: as many as there are threads that ask."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._idle: deque[Link] = deque()

    def run(self, work: Work[T]) -> T:
        """What `work` gives; see `Link.run`."""
        try:
            link = self._idle.pop()
        except IndexError:
            link = Link(self._reach)
        try:
            return link.run(work)
        finally:
            self._idle.append(link)

    def close(self) -> None:
        """Close those that nobody uses."""
        while self._idle:
            self._idle.pop().drop()
