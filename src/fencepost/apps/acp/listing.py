"""`session/list`: the sessions of the stores that are known here, the latest first, a page at a time.

A cursor names the last row of the page before it, so sessions that change meanwhile are listed on the first page again
and none is skipped.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeAlias

import msgspec
from acp import schema

from fencepost.core.codec import Vocabulary
from fencepost.errors import UsageError
from fencepost.journal.catalogue import Catalogue
from fencepost.journal.inspect import SessionRow
from fencepost.runtime.config import cache_home
from fencepost.stores.base import Store

PAGE = 100
"""Sessions on one page."""

Place: TypeAlias = tuple[int, str]
"""Where a row stands: when the session changed last, and its id."""


async def page(
    stores: Sequence[Store], vocabulary: Vocabulary, cwd: str | None, cursor: str | None
) -> schema.ListSessionsResponse:
    """One page.

    Args:
        stores: what is listed. It is only read.
        vocabulary: the declared event types.
        cwd: only sessions of this directory.
        cursor: of the page before it.

    Raises:
        UsageError: the cursor is none.
    """
    behind = None if cursor is None else _place(cursor)
    here = None if cwd is None else os.path.realpath(cwd)
    rows = [row for store in stores for row in await Catalogue(store, vocabulary, cache_home(os.environ)).rows()]
    wanted = sorted(
        (row for row in rows if row.cwd and (behind is None or (row.updated, row.session) < behind)),
        key=lambda row: (row.updated, row.session),
        reverse=True,
    )
    if here is not None:
        wanted = [row for row in wanted if os.path.realpath(row.cwd) == here]
    shown = wanted[:PAGE]
    return schema.ListSessionsResponse(
        sessions=[_info(row) for row in shown],
        next_cursor=_cursor(shown[-1]) if len(wanted) > len(shown) else None,
    )


def _info(row: SessionRow) -> schema.SessionInfo:
    about = {"state": row.state, "turns": row.turns, "unknown": row.unknown}
    return schema.SessionInfo(
        session_id=row.session,
        cwd=row.cwd,
        title=row.title or None,
        updated_at=timestamp(row.updated),
        field_meta={"fencepost": about},
    )


def timestamp(ms: int) -> str | None:
    """A time as the protocol writes it; None where it is not known.

    Args:
        ms: epoch milliseconds; 0 where it is not known.
    """
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds") if ms > 0 else None
    except (OverflowError, ValueError, OSError):
        return None  # a time that no calendar has


def _cursor(row: SessionRow) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode((row.updated, row.session))).decode()


def _place(cursor: str) -> Place:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(cursor.encode()), type=Place)
    except (ValueError, msgspec.DecodeError):
        raise UsageError("this cursor was not given here", next_act="List from the beginning") from None
