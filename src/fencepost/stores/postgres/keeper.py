"""Keeps the leases of this process running, in a thread of its own.

In a thread, so that an event loop which is busy or blocked loses no session: like a lock on a file, ownership lasts as
long as the process lives. A process that is stopped renews nothing, and may be replaced when its lease has run out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg

from fencepost.stores.postgres.claims import Claim
from fencepost.stores.postgres.rounds import Rounds

BEATS = 3
"""Renewals in one lease, so that two in a row may fail."""

_AGAIN = 12
"""Attempts in one lease after a renewal that failed."""


class Keeper:
    """Renews what `claims` gives, three times in a lease.

    Args:
        rounds: who has the connection.
        lease: seconds.
        claims: what is owned now.
    """

    def __init__(self, rounds: Rounds, lease: float, claims: Callable[[], list[Claim]]) -> None:
        self._rounds = rounds
        self._lease = lease
        self._claims = claims
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, where it has not begun."""
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._keep, name="fencepost-postgres-keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Renew nothing more. A renewal under way is not waited for."""
        self._stopped.set()

    def _keep(self) -> None:
        beats = BEATS
        while not self._stopped.wait(self._lease / beats):
            beats = BEATS if self._renew() else _AGAIN

    def _renew(self) -> bool:
        claims = self._claims()
        try:
            if claims:
                self._rounds.renew(claims)
        except psycopg.Error:
            return False  # the lease still runs, and an append renews it too
        return True
