"""The tables of a store, and how a schema grows from one release to the next.

    session     one row for each id: its name and header. Written when the id is taken, never changed after its first
                batch. Listed only once its head says that something was appended.
    head        where each log ends, and who may write behind that: the one row that appends and owners compete for.
    entry       the log: one row for each entry (a run of chunks is one entry), never updated.
    migration   which versions were applied.

Rules:
    1. Forward only, one transaction for all that is missing, behind a lock that dies with it: two hosts that start at
       once do it once, also behind a pooler.
    2. Reading never migrates. A schema that is not there is an empty store; one that is older is read as it is.
    3. A function's meaning never changes: a new one gets a new number, so that a host of the release before goes on
       writing while another one migrates.

Why an entry is `bytea`: its canonical bytes come back to the byte, whatever the encoding of the database. To look at
a log with psql: `select seq, convert_from(body, 'UTF8') from fencepost.entry where session = …`.

Why no foreign keys: they would cost a lookup for every row, to prove what `append_1` has compared already.
"""

from __future__ import annotations

import hashlib

from psycopg import Connection
from psycopg.rows import TupleRow

from fencepost.errors import UnsupportedError

_TABLES = """
CREATE TABLE {s}.session (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL UNIQUE,
    header      bytea NOT NULL,
    header_crc  integer NOT NULL
);
CREATE TABLE {s}.head (
    session     bigint PRIMARY KEY,
    next_seq    bigint NOT NULL,
    updated     timestamptz,
    epoch       bigint NOT NULL,
    claim       uuid,
    pid         integer,
    host        text,
    since       timestamptz,
    lease_until timestamptz
) WITH (fillfactor = 50);
CREATE TABLE {s}.entry (
    session     bigint NOT NULL,
    seq         bigint NOT NULL,
    crc         integer NOT NULL,
    body        bytea NOT NULL,
    PRIMARY KEY (session, seq)
);
"""

# One session is the commonest case, and takes half the server's time if it is no join.
_APPEND = """
CREATE FUNCTION {s}.append_1(
    p_session bigint[], p_epoch bigint[], p_expected bigint[], p_next bigint[], p_lease interval,
    r_session bigint[], r_seq bigint[], r_crc integer[], r_body bytea[]
) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    moment timestamptz := clock_timestamp();
    landed bigint[];
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
        IF current_setting('synchronous_commit') <> 'on' THEN
            RAISE EXCEPTION 'synchronous_commit cannot be turned on';
        END IF;
    END IF;
    IF cardinality(p_session) = 1 THEN
        UPDATE {s}.head h
        SET next_seq = p_next[1], updated = moment, lease_until = moment + p_lease
        WHERE h.session = p_session[1] AND h.epoch = p_epoch[1] AND h.next_seq = p_expected[1];
        IF NOT found THEN
            RETURN ARRAY[]::bigint[];
        END IF;
        IF cardinality(r_session) = 1 THEN
            INSERT INTO {s}.entry VALUES (r_session[1], r_seq[1], r_crc[1], r_body[1]);
        ELSE
            INSERT INTO {s}.entry SELECT * FROM unnest(r_session, r_seq, r_crc, r_body);
        END IF;
        RETURN p_session;
    END IF;
    WITH moved AS (
        UPDATE {s}.head h
        SET next_seq = p.next, updated = moment, lease_until = moment + p_lease
        FROM unnest(p_session, p_epoch, p_expected, p_next) AS p (session, epoch, expected, next)
        WHERE h.session = p.session AND h.epoch = p.epoch AND h.next_seq = p.expected
        RETURNING h.session
    )
    SELECT array_agg(moved.session) INTO landed FROM moved;
    IF cardinality(landed) = cardinality(p_session) THEN
        INSERT INTO {s}.entry SELECT * FROM unnest(r_session, r_seq, r_crc, r_body);
    ELSIF landed IS NOT NULL THEN
        INSERT INTO {s}.entry
        SELECT * FROM unnest(r_session, r_seq, r_crc, r_body) AS r (session, seq, crc, body)
        WHERE r.session = ANY (landed);
    END IF;
    RETURN coalesce(landed, ARRAY[]::bigint[]);
END $$;
"""

_THERE = b"""SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = 'migration'"""

MIGRATIONS: tuple[str, ...] = (_TABLES + _APPEND,)
"""What makes each version out of the one before; the first makes version 1."""

VERSION = len(MIGRATIONS)


def version_of(connection: Connection[TupleRow], schema: str) -> int:
    """The version of a schema; 0 where there is none.

    The catalogue is read as a table. Asked by name, the server may answer from a cache that still says "not there" when
    another host's migration has ended, for waiting on an advisory lock does not bring that cache up to date.
    """
    if connection.execute(_THERE, (schema,)).fetchone() is None:
        return 0
    row = connection.execute(_over(schema, "SELECT coalesce(max(version), 0) FROM {s}.migration")).fetchone()
    return int(row[0]) if row else 0


def refuse_newer(version: int, schema: str) -> None:
    """Refuse a schema that this release does not know.

    Raises:
        UnsupportedError: it was migrated by a newer release.
    """
    if version > VERSION:
        raise UnsupportedError(
            f"the schema {schema} was made by a newer fencepost (version {version}; this one knows {VERSION})",
            next_act="Upgrade fencepost, or name another schema in the URL: ?schema=NAME",
        )


def migrate(connection: Connection[TupleRow], schema: str) -> None:
    """Bring a schema to this release's version; nothing to do where it is there already.

    Raises:
        UnsupportedError: it was migrated by a newer release.
        psycopg.Error: the server refused; nothing was changed.
    """
    with connection.transaction():
        # The version is read in a snapshot taken after the lock was, whatever the role's default isolation is.
        connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        connection.execute("SET LOCAL synchronous_commit = on")
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_lock_key(schema),))
        have = version_of(connection, schema)
        refuse_newer(have, schema)
        if have == 0:
            _found(connection, schema)
        for version, script in enumerate(MIGRATIONS[have:], have + 1):
            connection.execute(_over(schema, script))
            connection.execute(_over(schema, "INSERT INTO {s}.migration (version) VALUES (%s)"), (version,))


def _found(connection: Connection[TupleRow], schema: str) -> None:
    """Make the schema, unless somebody made it for us, and the table of versions."""
    there = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (schema,)).fetchone()
    if there is None:
        connection.execute(_over(schema, "CREATE SCHEMA {s}"))
    connection.execute(
        _over(
            schema,
            "CREATE TABLE {s}.migration (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())",
        )
    )


def _over(schema: str, text: str) -> bytes:
    return text.replace("{s}", f'"{schema}"').encode()


def _lock_key(schema: str) -> int:
    digest = hashlib.sha256(f"fencepost migrations of {schema}".encode()).digest()
    return int.from_bytes(digest[:8], "big", signed=True)
