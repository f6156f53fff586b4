"""The URL of a PostgreSQL store: what libpq takes, and two parameters of our own.

    postgresql://USER@HOST/DATABASE?schema=fencepost&lease=30

Rules:
    1. All but `schema` and `lease` is libpq's: hosts, TLS, services, password files and PG* variables work as usual.
    2. What keeps a dead connection from being waited for is set here, unless the URL or the environment says otherwise.
    3. No secret leaves this module in text: `url` and `repr` are masked, and `scrubbed` masks what others say.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from fencepost.errors import UsageError

SCHEMA = "fencepost"
LEASE = 30.0
"""Seconds that an owner may stay silent before somebody else may take its session."""

SHORTEST_LEASE, LONGEST_LEASE = 1.0, 3600.0

_OURS = frozenset({"schema", "lease"})
_SCHEMA = re.compile(r"(?!pg_)[a-z_][a-z0-9_]{0,62}")
_SECRET = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")
_NEXT = "Write postgresql://USER@HOST/DATABASE, and keep the password in ~/.pgpass or PGPASSWORD"
_MASK = "***"

_PATIENCE = {
    "connect_timeout": "10",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
    "fallback_application_name": "fencepost",
}
"""What is set where the URL is silent and no service file speaks."""


class Address:
    """Where a store is, and under which name and lease.

    Args:
        url: as above, with `postgresql:` or `postgres:` in front.

    Raises:
        UsageError: libpq does not know this form, or `schema` or `lease` is not one.
    """

    def __init__(self, url: str) -> None:
        scheme, colon, rest = url.partition("://")
        if not colon or scheme not in {"postgresql", "postgres"}:
            raise UsageError("a PostgreSQL store is named by postgresql://…", next_act=_NEXT)
        where, _, query = rest.partition("?")
        pairs = [pair.partition("=")[::2] for pair in query.split("&") if pair]
        own = {name: unquote(value) for name, value in pairs if name in _OURS}
        theirs = [(name, value) for name, value in pairs if name not in _OURS]
        self.schema = _schema(own.get("schema", SCHEMA))
        self.lease = _lease(own.get("lease", str(LEASE)))
        params = _libpq(where, theirs)
        self.conninfo = make_conninfo("", **params)
        self._secrets = tuple(_forms(params[name] for name in _SECRET if params.get(name)))
        shown = [(name, _MASK if name in _SECRET else value) for name, value in pairs]
        self.url = f"postgresql://{_masked(where)}{_query(shown)}"

    def __repr__(self) -> str:
        return f"<Address {self.url}>"

    def scrubbed(self, text: str) -> str:
        """`text` with every secret of this address masked."""
        for secret in self._secrets:
            text = text.replace(secret, _MASK)
        return text


def _schema(name: str) -> str:
    if not _SCHEMA.fullmatch(name) or name == "information_schema":
        raise UsageError(
            f"{name!r} is not a schema name that a store takes",
            next_act="Use lower-case letters, digits and _, at most 63, not beginning with pg_",
        )
    return name


def _lease(text: str) -> float:
    try:
        lease = float(text)
    except ValueError:
        lease = 0.0
    if not SHORTEST_LEASE <= lease <= LONGEST_LEASE:
        raise UsageError(f"lease={text!r} is not a number of seconds from {SHORTEST_LEASE:g} to {LONGEST_LEASE:g}")
    return lease


def _libpq(where: str, theirs: list[tuple[str, str]]) -> dict[str, str]:
    """The parameters for libpq. Its own words about a bad URL repeat the URL, so they are not passed on."""
    known = {option.keyword.decode(): option.val for option in pq.Conninfo.get_defaults()}
    for name, _ in theirs:
        if name not in known and name != "ssl":
            raise UsageError(f"{name!r} is no parameter of a PostgreSQL URL", next_act=_NEXT)
    try:
        found = conninfo_to_dict(f"postgresql://{where}{_query(theirs)}")
    except psycopg.ProgrammingError:
        raise UsageError("libpq cannot read this postgresql:// URL", next_act=_NEXT) from None
    params = {name: str(value) for name, value in found.items() if value is not None}
    if "service" not in params and "PGSERVICE" not in os.environ:
        silent = {name: value for name, value in _PATIENCE.items() if name in known and known[name] is None}
        params = {**silent, **params}
    return {**params, "client_encoding": "utf8"}


def _query(pairs: list[tuple[str, str]]) -> str:
    return "?" + "&".join(f"{name}={value}" for name, value in pairs) if pairs else ""


def _masked(where: str) -> str:
    user, at, host = where.rpartition("@")
    name, colon, _ = user.partition(":")
    return f"{name}:{_MASK}@{host}" if colon else f"{user}{at}{host}"


def _forms(secrets: Iterator[str]) -> Iterator[str]:
    """The forms in which a secret may stand in a text: as it is, and as it is written in a URL."""
    for secret in secrets:
        yield from dict.fromkeys((secret, quote(secret), quote(secret, safe="")))
