"""All that is said to the server, over one schema.

Rules:
    1. Whatever changes who may write, or what is written, is one statement in one transaction of its own: no client can
       be stopped in the middle of it with a lock in its hands.
    2. Nothing outlives a transaction: no prepared statement, no session lock, no setting. So a pooler in transaction
       mode may hand each one to another connection.
    3. The server's clock decides about leases; a client's is never asked.
    4. What has to last turns `synchronous_commit` on for its own transaction, whatever role and database say; only
       `remote_apply`, which promises more, is left as it is. Renewing a lease need not last: a lost one makes the
       lease shorter, and the epoch stays.
"""

from __future__ import annotations

from functools import partial

_PARTS = {
    "{renew}": """UPDATE {s}.head h SET lease_until = clock_timestamp() + %s
        FROM unnest(%s::bigint[], %s::bigint[]) AS p (session, epoch)""",
    "{mine}": """claim = %(claim)s, pid = %(pid)s, host = %(host)s, since = clock_timestamp(),
        lease_until = clock_timestamp() + %(lease)s""",
    "{free}": "(h.lease_until IS NULL OR h.lease_until < clock_timestamp() OR h.claim = %(claim)s)",
    "{next epoch}": "CASE WHEN h.claim = %(claim)s THEN h.epoch ELSE h.epoch + 1 END",
    "{durable}": """(SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true)) AS durable""",
    "{hasty}": "(SELECT set_config('synchronous_commit', 'off', true)) AS hasty",
}


_APPEND = "SELECT {s}.append_1($1, $2, $3, $4, $5, $6, $7, $8, $9)"
"""Compare and append, for many sessions at once; gives the sessions whose batch landed. For `wire`."""

_RENEW = "{renew}, {hasty} WHERE h.session = p.session AND h.epoch = p.epoch"
"""Give what is still ours a new lease."""

_SETTLE = """{renew}, {durable}
    WHERE h.session = p.session AND h.epoch = p.epoch RETURNING h.session, h.next_seq"""
"""Read back where the logs end that are still ours. It waits for a transaction of ours that lives on without its
client, and as a write it is durable only after all that it saw.
"""

_RESERVE = """WITH fresh AS (
        INSERT INTO {s}.session (name, header, header_crc) VALUES (%(name)s, %(header)s, %(crc)s)
        ON CONFLICT (name) DO NOTHING RETURNING id)
    INSERT INTO {s}.head (session, next_seq, epoch, claim, pid, host, since, lease_until)
    SELECT id, 0, 1, %(claim)s, %(pid)s, %(host)s, clock_timestamp(), clock_timestamp() + %(lease)s
    FROM fresh, {durable} RETURNING session, epoch"""
"""Take an id that nobody has."""

_RESERVE_LEFT = """WITH taken AS (
        UPDATE {s}.head h SET epoch = {next epoch}, {mine} FROM {s}.session s, {durable}
        WHERE s.id = h.session AND s.name = %(name)s AND h.next_seq = 0 AND {free}
        RETURNING h.session, h.epoch)
    UPDATE {s}.session s SET header = %(header)s, header_crc = %(crc)s FROM taken WHERE s.id = taken.session
    RETURNING taken.session, taken.epoch"""
"""Take an id that was reserved and never written."""

_OWN = """UPDATE {s}.head h SET epoch = {next epoch}, {mine}
    FROM {s}.session s, {durable}
    WHERE s.id = h.session AND s.name = %(name)s AND h.next_seq > 0 AND ({free} OR %(takeover)s)
    RETURNING h.session, h.epoch"""
"""Take a stored session."""

_GIVE_UP = """UPDATE {s}.head h
    SET claim = NULL, pid = NULL, host = NULL, since = NULL, lease_until = NULL
    FROM unnest(%s::bigint[], %s::bigint[]) AS p (session, epoch), {hasty}
    WHERE h.session = p.session AND h.epoch = p.epoch"""

_FORGET = """WITH gone AS (
        DELETE FROM {s}.head h USING unnest(%s::bigint[], %s::bigint[]) AS p (session, epoch)
        WHERE h.session = p.session AND h.epoch = p.epoch AND h.next_seq = 0 RETURNING h.session)
    DELETE FROM {s}.session s USING gone WHERE s.id = gone.session"""
"""Make reserved ids free again."""

_LOOK = """SELECT s.id, s.header, s.header_crc, h.next_seq, h.epoch,
        (extract(epoch FROM h.updated) * 1000)::bigint, h.pid, h.host,
        (extract(epoch FROM h.since) * 1000)::bigint,
        extract(epoch FROM h.lease_until - clock_timestamp())::float8
    FROM {s}.session s LEFT JOIN {s}.head h ON h.session = s.id WHERE s.name = %s"""
"""A session's header, where its log ends, and who holds it for how many seconds more."""

_ROWS = "SELECT seq, crc, body FROM {s}.entry WHERE session = %s ORDER BY seq"

_ROW_OF = "SELECT max(seq) FROM {s}.entry WHERE session = %s AND seq <= %s"
"""The row that holds a seq, which may be inside a run. Asked for by itself, so that the planner knows what follows."""

_ROWS_FROM = "SELECT seq, crc, body FROM {s}.entry WHERE session = %s AND seq >= %s ORDER BY seq"

_NAMES = """SELECT s.name FROM {s}.session s LEFT JOIN {s}.head h ON h.session = s.id
    WHERE coalesce(h.next_seq, 1) > 0"""

SETTINGS = b"""SELECT name, setting FROM pg_settings
    WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit', 'server_version')"""


class Statements:
    """The statements over `schema`, ready to be sent."""

    def __init__(self, schema: str) -> None:
        over = partial(_over, schema)
        self.append = over(_APPEND)
        self.renew = over(_RENEW)
        self.settle = over(_SETTLE)
        self.reserve = over(_RESERVE)
        self.reserve_left = over(_RESERVE_LEFT)
        self.own = over(_OWN)
        self.give_up = over(_GIVE_UP)
        self.forget = over(_FORGET)
        self.look = over(_LOOK)
        self.rows = over(_ROWS)
        self.row_of = over(_ROW_OF)
        self.rows_from = over(_ROWS_FROM)
        self.names = over(_NAMES)


def _over(schema: str, text: str) -> bytes:
    for name, part in _PARTS.items():
        text = text.replace(name, part)
    return text.replace("{s}", f'"{schema}"').encode()
