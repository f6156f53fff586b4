"""Which session is meant: an id, a unique beginning of one, or the last session of a directory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from fencepost.errors import SessionNotFoundError, StoreError, UsageError
from fencepost.stores.base import Store, StoredLog

SHOWN = 10
"""Candidates that are named at most."""


async def find(store: Store, text: str | None, cwd: Path) -> str:
    """The id of the session that is meant.

    Args:
        store: where to look.
        text: an id or a unique beginning; None means the last session of `cwd`.
        cwd: a working directory.

    Raises:
        SessionNotFoundError: there is none.
        UsageError: several begin like that; the message names them.
    """
    if text is None:
        return await last_of(store, cwd)
    return match(text, await store.sessions(), store.url)


def match(text: str, ids: Iterable[str], url: str) -> str:
    """The one id that is `text`, or begins with it.

    Raises:
        SessionNotFoundError, UsageError: as `find`.
    """
    known = sorted(ids)
    if text in known:
        return text
    found = [name for name in known if text and name.startswith(text)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise SessionNotFoundError(f"no session in {url} is {text!r} or begins like that")
    named = ", ".join(found[:SHOWN]) + (f" and {len(found) - SHOWN} more" if len(found) > SHOWN else "")
    raise UsageError(f"{len(found)} sessions begin with {text!r}: {named}", next_act="Give more of the id")


async def last_of(store: Store, cwd: Path) -> str:
    """The session of `cwd` that changed last.

    Raises:
        SessionNotFoundError: there is none.
    """
    here = os.path.realpath(cwd)
    best: StoredLog | None = None
    for name in await store.sessions():
        try:
            stored = await store.read(name)
        except StoreError:
            continue  # one that cannot be read must not keep the others from being found
        if stored.header is None or os.path.realpath(stored.header.cwd) != here:
            continue
        if best is None or (stored.updated, stored.session) > (best.updated, best.session):
            best = stored
    if best is None:
        raise SessionNotFoundError(f"no session of the directory {cwd} in {store.url}")
    return best.session
