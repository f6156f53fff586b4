"""What happens to sessions that nobody works on: into the trash and out of it, by one statement each.

A deleted session keeps its rows and changes its name, to `\\qDELETED:NAME`: when it was deleted in epoch milliseconds,
and the name that it had. No stored name begins like that (`claims.stored_name` writes a backslash as two), so neither a
listing nor an owner finds it, and the id is free.

Rules:
    1. Whoever moves a session takes its epoch along: an owner whose lease ran out, and who wakes, writes nowhere.
    2. Each statement can be sent again after its answer was lost, and then finds its work done.
    3. What is purged goes in one transaction: head, entries and name.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from psycopg import Connection, errors
from psycopg.rows import TupleRow

from fencepost.errors import HeldError, SessionExistsError, SessionNotFoundError
from fencepost.stores.base import Trashed
from fencepost.stores.lock import held_sentence
from fencepost.stores.postgres.claims import Claims, session_named, stored_name

Server: TypeAlias = "Connection[TupleRow]"

MARK = "\\q"
"""How the name of a deleted session begins."""

_PARTS = {
    "{free}": "(h.lease_until IS NULL OR h.lease_until < clock_timestamp())",
    "{durable}": """(SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)) AS durable""",
}

_PUT = """WITH moved AS (
        UPDATE {s}.head h
        SET epoch = h.epoch + 1, claim = NULL, pid = NULL, host = NULL, since = NULL, lease_until = NULL
        FROM {s}.session s WHERE s.id = h.session AND s.name = %(name)s AND h.next_seq > 0 AND {free}
        RETURNING h.session)
    UPDATE {s}.session s SET name = %(trashed)s FROM {durable}
    WHERE s.name = %(name)s AND (s.id IN (SELECT session FROM moved)
        OR NOT EXISTS (SELECT 1 FROM {s}.head h WHERE h.session = s.id))
    RETURNING s.id"""

_MAKE_WAY = """WITH gone AS (
        DELETE FROM {s}.head h USING {s}.session s
        WHERE s.id = h.session AND s.name = %(name)s AND h.next_seq = 0 AND {free} RETURNING h.session)
    DELETE FROM {s}.session s USING gone WHERE s.id = gone.session"""
"""Make an id free again that was taken and never written."""

_TAKE = "UPDATE {s}.session s SET name = %(name)s FROM {durable} WHERE s.name = %(trashed)s RETURNING s.id"

_PURGE = """WITH doomed AS (
        DELETE FROM {s}.session s USING {durable} WHERE s.name = ANY(%(names)s) RETURNING s.id),
    heads AS (DELETE FROM {s}.head h USING doomed WHERE h.session = doomed.id),
    entries AS (DELETE FROM {s}.entry e USING doomed WHERE e.session = doomed.id)
    SELECT count(*) FROM doomed"""

_NAMES = "SELECT name FROM {s}.session WHERE left(name, 2) = %(mark)s"
_THERE = "SELECT 1 FROM {s}.session WHERE name = %(name)s"
_REVISIONS = """SELECT s.name, s.id, h.next_seq FROM {s}.session s LEFT JOIN {s}.head h ON h.session = s.id
    WHERE coalesce(h.next_seq, 1) > 0 AND left(s.name, 2) <> %(mark)s"""


class Place(msgspec.Struct, frozen=True, order=True):
    """One deleted session: when it was deleted, in epoch milliseconds, and its stored name before that."""

    deleted: int
    name: str

    @property
    def trashed(self) -> str:
        """Its stored name now."""
        return f"{MARK}{self.deleted}:{self.name}"


class PostgresUpkeep:
    """Looks after the sessions of one schema; each method is a piece of work for a connection."""

    def __init__(self, schema: str, claims: Claims) -> None:
        self._schema = f'"{schema}"'
        self._claims = claims

    def _over(self, text: str) -> bytes:
        for name, part in _PARTS.items():
            text = text.replace(name, part)
        return text.replace("{s}", self._schema).encode()

    def revisions(self, server: Server) -> dict[str, str]:
        """A token for each session, from its key and its next seq."""
        found = server.execute(self._over(_REVISIONS), {"mark": MARK})
        return {session_named(name): f"{key}.{following}" for name, key, following in found}

    def put(self, server: Server, session: str, now: int) -> None:
        """Move a session into the trash, as deleted at `now`.

        Raises:
            SessionNotFoundError, HeldError: it is not there, or owned.
        """
        place = Place(now, stored_name(session))
        wanted = {"name": place.name, "trashed": place.trashed}
        try:
            moved = server.execute(self._over(_PUT), wanted).fetchone()
        except errors.UniqueViolation:
            return self.put(server, session, now + 1)  # one of that id was deleted in the same millisecond
        if moved is not None or server.execute(self._over(_THERE), {"name": place.trashed}).fetchone() is not None:
            return None  # by this attempt, or by an earlier one whose answer was lost
        found = self._claims.look(server, session)
        if found is None or found.next_seq == 0:
            raise self._claims.not_found(session)
        owner = found.owner
        raise HeldError(held_sentence(session, owner) if owner else f"session {session} is being taken by others")

    def places(self, server: Server) -> list[Place]:
        """What is in the trash, the latest first."""
        found = (
            name.removeprefix(MARK).partition(":") for (name,) in server.execute(self._over(_NAMES), {"mark": MARK})
        )
        return sorted((Place(int(deleted), name) for deleted, _, name in found), reverse=True)

    def trashed(self, server: Server) -> list[Trashed]:
        """What is in the trash, for people."""
        return [Trashed(session_named(place.name), place.deleted) for place in self.places(server)]

    def newest(self, server: Server, session: str) -> Place | None:
        """The session of that id that was deleted last; None where there is none."""
        name = stored_name(session)
        return next((place for place in self.places(server) if place.name == name), None)

    def take(self, server: Server, session: str, place: Place) -> None:
        """Give a deleted session its name back.

        Raises:
            SessionExistsError, HeldError: the name is taken.
            SessionNotFoundError: it is not there any more.
        """
        wanted = {"name": place.name, "trashed": place.trashed}
        server.execute(self._over(_MAKE_WAY), wanted)
        try:
            taken = server.execute(self._over(_TAKE), wanted).fetchone()
        except errors.UniqueViolation:
            found = self._claims.look(server, session)
            if found is not None and found.next_seq == 0:
                raise HeldError(f"session {session} is being created by another process") from None
            raise SessionExistsError(f"session {session} is there already") from None
        if taken is None and self._claims.look(server, session) is None:
            raise not_there(session)

    def purge(self, server: Server, before: int) -> int:
        """Destroy what was deleted before a time; how many sessions that were."""
        doomed = [place.trashed for place in self.places(server) if place.deleted < before]
        if not doomed:
            return 0
        row = server.execute(self._over(_PURGE), {"names": doomed}).fetchone()
        return int(row[0]) if row else 0


def not_there(session: str) -> SessionNotFoundError:
    """It is not in the trash."""
    return SessionNotFoundError(
        f"no session {session} in the trash", next_act="List the trash with `fencepost sessions --trash`"
    )
