"""From SQLSTATE to the typed error: causes are told apart by code, never by message text.

A connection that could not be made, or that is gone, has no code: that is trouble with the medium.
"""

from __future__ import annotations

import psycopg

from fencepost.errors import (
    DamagedError,
    EncodingRefusedError,
    MediumError,
    NoSpaceError,
    PermissionDeniedError,
    ReadOnlyError,
    StoreError,
    UnsupportedError,
)
from fencepost.stores.postgres.address import Address

READ_ONLY = "25006"
"""A standby, or a server, database or role that takes no writes."""

AGAIN = frozenset({"40001", "40P01"})
"""Rolled back in favour of another transaction: the same one may be tried at once."""

_BY_CODE: dict[str, type[StoreError]] = {
    "53100": NoSpaceError,
    READ_ONLY: ReadOnlyError,
    "42501": PermissionDeniedError,
    "23505": DamagedError,  # a row stands where the head says that the log ends
    "XX001": DamagedError,  # a page that is not what was written
    "XX002": DamagedError,  # an index that is not
    "42P01": UnsupportedError,  # a table or function of this release is not there
    "42883": UnsupportedError,
    "42703": UnsupportedError,
}

_BY_CLASS: dict[str, type[StoreError]] = {
    "28": PermissionDeniedError,
    "22": EncodingRefusedError,
    "54": EncodingRefusedError,
}

_NEXT: dict[type[StoreError], str] = {
    ReadOnlyError: "Name the primary server, or a database and role that may write",
    PermissionDeniedError: "Check the role, its password, and what it may do in that schema",
    MediumError: "Check that the server runs and can be reached; nothing that is pending is lost",
    UnsupportedError: "Check the schema, and that all hosts run the same release",
}


def typed(error: psycopg.Error, doing: str, address: Address) -> StoreError:
    """The error of the tree for one of psycopg's: what was being done, where, and the server's first sentence."""
    said = error.diag.message_primary or str(error).strip().partition("\n")[0] or type(error).__name__
    kind = kind_of(error.sqlstate)
    sentence = f"{doing} in {address.url} failed: {address.scrubbed(said)}"
    return kind(sentence, next_act=_NEXT.get(kind))


def kind_of(code: str | None) -> type[StoreError]:
    """The class of the tree for an SQLSTATE."""
    if code is None:
        return MediumError
    return _BY_CODE.get(code) or _BY_CLASS.get(code[:2], MediumError)
