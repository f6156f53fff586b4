"""Who may write a session: taking it, giving it up, and saying who has it.

A claim is an epoch in the session's head. Whoever takes the session makes the epoch one larger, so that an append under
an older one lands nowhere; that fence, not the lease, is what law 8 rests on. The lease only says when an owner that
fell silent may be replaced, by the server's clock.

Taking a session writes its head: who, since when, until when. It changes no byte of the log (law 7).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeAlias

import msgspec
from psycopg import Connection
from psycopg.rows import TupleRow

from fencepost.core import codec
from fencepost.core.events import Header
from fencepost.errors import DamagedError, HeldError, SessionExistsError, SessionNotFoundError, StoreError, UsageError
from fencepost.stores.base import Owner
from fencepost.stores.lock import held_sentence
from fencepost.stores.names import segment
from fencepost.stores.postgres.address import Address
from fencepost.stores.postgres.rows import checksum
from fencepost.stores.postgres.statements import Statements
from fencepost.stores.postgres.wire import numbers

Server: TypeAlias = "Connection[TupleRow]"

LONGEST_NAME = 2000
"""Characters of an escaped id; an index takes 2,704 bytes."""

_AGAIN = 5
"""Times that an id is tried for while others take it and give it up."""


class Claim(msgspec.Struct, frozen=True):
    """The right to write one session, as long as nobody took it over."""

    session: str
    row: int
    """The session's key in the database."""
    epoch: int


class Look(msgspec.Struct, frozen=True):
    """A session's head, as it is now. The fields are those of the statement `look`, in its order.

    Attributes:
        next_seq: None where the head is missing.
        left: seconds that the owner's lease has still to run; None where nobody holds the session.
    """

    row: int
    header: bytes
    header_crc: int
    next_seq: int | None
    epoch: int | None
    updated: int | None
    pid: int | None
    host: str | None
    since: int | None
    left: float | None

    @property
    def owner(self) -> Owner | None:
        """Who holds the session, if anybody does."""
        if self.left is None or self.left <= 0 or self.pid is None:
            return None
        return Owner(self.pid, self.host or "", self.since or 0)


def stored_name(session: str) -> str:
    """A session's id as it stands in the database: plain ASCII, since text there takes no NUL, and not every encoding
    takes every character.

    Raises:
        UsageError: the id is empty, too long, or not text that UTF-8 can carry.
    """
    segment(session)
    name = session.encode("unicode_escape").decode("ascii")
    if len(name) > LONGEST_NAME:
        raise UsageError(f"a session id of {len(name):,} characters is too long for PostgreSQL")
    return name


def session_named(name: str) -> str:
    """The session's id; the stored name itself where that is none of ours."""
    try:
        return name.encode("ascii").decode("unicode_escape")
    except UnicodeError:
        return name


class Claims:
    """Taking sessions and giving them up, over one schema."""

    def __init__(self, address: Address, statements: Statements) -> None:
        self._address = address
        self._say = statements
        self._lease = timedelta(seconds=address.lease)

    def reserve(self, server: Server, header: Header, claim: uuid.UUID) -> Claim:
        """Take a new id. Asking again with the same `claim` gives the same answer.

        Raises:
            SessionExistsError, HeldError: it is taken.
        """
        name, body = stored_name(header.session), codec.encode(header)
        wanted = {**self._wanted(name, claim), "header": body, "crc": checksum(body)}
        for _ in range(_AGAIN):
            for statement in (self._say.reserve, self._say.reserve_left):
                taken = server.execute(statement, wanted).fetchone()
                if taken is not None:
                    return Claim(header.session, *taken)
            found = self.look(server, header.session)
            if found is not None and found.next_seq != 0:
                raise SessionExistsError(f"session {header.session} is there already, in {self._address.url}")
            if found is not None and found.owner is not None:
                raise self._held(header.session, found)
        raise HeldError(f"session {header.session} is being taken by others")

    def own(self, server: Server, session: str, claim: uuid.UUID, *, takeover: bool) -> Claim:
        """Take a stored session. Asking again with the same `claim` gives the same answer.

        Args:
            takeover: take it from an owner whose lease still runs.

        Raises:
            SessionNotFoundError, HeldError.
            DamagedError: its head is missing, so nobody can own it.
        """
        wanted = {**self._wanted(stored_name(session), claim), "takeover": takeover}
        for _ in range(_AGAIN):
            taken = server.execute(self._say.own, wanted).fetchone()
            if taken is not None:
                return Claim(session, *taken)
            found = self.look(server, session)
            if found is None or found.next_seq == 0:
                raise self.not_found(session)
            if found.next_seq is None:
                raise DamagedError(f"session {session} has no head, in {self._address.url}")
            if found.owner is not None:
                raise self._held(session, found)
        raise HeldError(f"session {session} is being taken by others")

    def give_up(self, server: Server, claims: Iterable[Claim]) -> None:
        """Give sessions up that are still ours; an id that was never written is free again."""
        rows, epochs = as_arrays(claims)
        server.execute(self._say.forget, (rows, epochs))
        server.execute(self._say.give_up, (rows, epochs))

    def look(self, server: Server, session: str) -> Look | None:
        """The head of a session; None where there is no such id."""
        found = server.execute(self._say.look, (stored_name(session),)).fetchone()
        return None if found is None else Look(*found)

    def lost(self, server: Server, claim: Claim) -> str:
        """Why an append under `claim` did not land, a sentence."""
        session = claim.session
        found = self.look(server, session)
        if found is None or found.row != claim.row:
            return f"session {session} is not there any more"
        if found.epoch == claim.epoch:
            return f"session {session}: its log goes on at seq {found.next_seq}, not where this writer appends"
        if found.owner is None:
            return f"session {session} was taken over, and given up again"
        return f"{held_sentence(session, found.owner)}: it was taken over from this writer"

    def not_found(self, session: str) -> SessionNotFoundError:
        """There is no such session here."""
        return SessionNotFoundError(f"no session {session} in {self._address.url}")

    def _wanted(self, name: str, claim: uuid.UUID) -> dict[str, Any]:
        return {
            "name": name,
            "claim": claim,
            "pid": os.getpid(),
            "host": os.uname().nodename,
            "lease": self._lease,
        }

    def _held(self, session: str, found: Look) -> StoreError:
        assert found.owner is not None
        assert found.left is not None
        return HeldError(
            f"{held_sentence(session, found.owner)}; its lease runs for {max(found.left, 0):.0f} s more",
            next_act="Wait for it, end that process, read the session with `fencepost show`, or take it over with"
            " --takeover if you know that its owner is gone",
        )


def as_arrays(claims: Iterable[Claim]) -> tuple[str, str]:
    """The rows and epochs of some claims, as arrays in PostgreSQL's own text."""
    known = list(claims)
    rows, epochs = numbers(claim.row for claim in known), numbers(claim.epoch for claim in known)
    return rows.decode(), epochs.decode()
