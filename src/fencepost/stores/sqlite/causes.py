"""From SQLite's result code to the typed error: causes are told apart by code and errno, never by message text."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import apsw

from fencepost.errors import (
    DamagedError,
    EncodingRefusedError,
    LockedError,
    MediumError,
    NoSpaceError,
    PermissionDeniedError,
    ReadOnlyError,
    StoreError,
    UsageError,
)
from fencepost.stores.causes import kind_of, typed

_BY_RESULT: dict[int, type[StoreError]] = {
    apsw.SQLITE_FULL: NoSpaceError,
    apsw.SQLITE_BUSY: LockedError,
    apsw.SQLITE_LOCKED: LockedError,
    apsw.SQLITE_PROTOCOL: LockedError,
    apsw.SQLITE_PERM: PermissionDeniedError,
    apsw.SQLITE_AUTH: PermissionDeniedError,
    apsw.SQLITE_CONSTRAINT: DamagedError,  # a row stands where the counters say that none does
    apsw.SQLITE_TOOBIG: EncodingRefusedError,
}

_BY_ERRNO = frozenset({apsw.SQLITE_IOERR, apsw.SQLITE_CANTOPEN})

TRANSIENT = frozenset({apsw.SQLITE_BUSY, apsw.SQLITE_FULL, apsw.SQLITE_TOOBIG, apsw.SQLITE_CONSTRAINT})
"""After these a connection, rolled back, is as good as before. After any other it is not trusted any more."""


def result_of(error: apsw.Error) -> int:
    """The primary result code; -1 for an error of apsw's own."""
    return getattr(error, "result", -1)


_MALFORMED = frozenset({apsw.SQLITE_CORRUPT, apsw.SQLITE_NOTADB, apsw.SQLITE_ERROR})
_MISSING_PAGES = frozenset({apsw.SQLITE_IOERR_SHORT_READ, apsw.SQLITE_IOERR_CORRUPTFS})


def is_malformed(error: apsw.Error) -> bool:
    """Whether it says that the database is not what was written: a page, the list of its tables, or its length."""
    return result_of(error) in _MALFORMED or getattr(error, "extendedresult", -1) in _MISSING_PAGES


def cause(error: apsw.Error, connection: apsw.Connection | None, doing: str, file: Path) -> StoreError:
    """The error of the tree for one of SQLite's.

    Args:
        connection: that it happened on, for its errno; None where none could be opened.
        doing: as in "writing to".
    """
    result = result_of(error)
    if is_malformed(error):
        kind: type[StoreError] = DamagedError
    elif result == apsw.SQLITE_READONLY:
        kind = _read_only(file)
    elif result in _BY_ERRNO:
        kind = kind_of(connection.system_errno) if connection is not None else _unopened(file)
    else:
        kind = _BY_RESULT.get(result, MediumError)
    return kind(f"{doing} {file} failed: {error} ({_name(error)})")


@contextlib.contextmanager
def reading(session: str, file: Path) -> Iterator[None]:
    """Let whatever keeps a block from reading the database at `file` leave it as an error of the tree."""
    try:
        yield
    except apsw.Error as error:
        told = cause(error, None, "reading", file)
        raise type(told)(f"session {session}: {told}") from error
    except NotADirectoryError:
        raise UsageError(f"{file.parent} is not a directory") from None
    except OSError as error:
        raise typed(error, session, "opening", file) from error


def _name(error: apsw.Error) -> str:
    """SQLite's name of the code."""
    code = getattr(error, "extendedresult", -1)
    known = apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes.get(code)
    return str(known or type(error).__name__)


def _read_only(file: Path) -> type[StoreError]:
    """SQLite opens what it may not write as read-only, and says the same of both reasons."""
    try:
        medium = os.statvfs(file).f_flag & os.ST_RDONLY
    except OSError:
        return ReadOnlyError
    return ReadOnlyError if medium or os.access(file, os.W_OK) else PermissionDeniedError


def _unopened(file: Path) -> type[StoreError]:
    """Why a file cannot be opened, as far as it can be found out without opening it."""
    try:
        file.stat()
    except OSError as error:
        return kind_of(error.errno)
    return MediumError if os.access(file, os.R_OK) else PermissionDeniedError
