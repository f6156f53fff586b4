"""The catalogue: rows of a listing, kept so that listing 10,000 sessions does not read 10,000 logs.

It lies in the user's cache directory, one file for each store, so that listing changes no byte of a store (law 7).

Rules:
    1. It may lag, and never leads. A row counts only under the revision token that its log had before it was read, and
       that the store still gives now; any other log is read anew.
    2. Nothing rests on it. Missing, unreadable, of another release or another vocabulary, it is made anew without a
       word; that it cannot be written costs the next listing its speed and nothing else.
    3. Whether a session is owned is never kept: the lock is asked for the rows that are shown.
    4. It is replaced whole, by a rename. Of two processes that write at once one wins, and both files were right.
    5. A store with fewer than `WORTH` sessions has none: reading them is as fast, and leaves nothing behind.

What it refuses to be: an index that anything but a listing asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from fencepost.core.codec import FORMAT, Vocabulary
from fencepost.errors import FencepostError, SessionNotFoundError
from fencepost.journal.inspect import SessionRow, SessionState, fold_stored, row_of, rows, unreadable
from fencepost.journal.session import off_loop
from fencepost.stores.base import Owner, Store, StoredLog, Upkeep

WORTH = 64
"""Sessions from which on a catalogue is kept."""

_AT_ONCE = 64
"""Locks that are asked for together."""

Progress = Callable[[int, int], None]
"""Called with the logs that were read and those that have to be, during a long listing."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """A row as it is without an owner, and under which token it was read.

    Attributes:
        revision: empty for a log that could not be read: it is tried again at the next listing.
        updated: of the row; listings are in this order.
        stored: the row, as JSON: a page needs few of them, and to decode all would take most of its time.
        state, unknown: of the row, while somebody owns the session.
    """

    revision: str
    updated: int
    stored: msgspec.Raw
    state: SessionState
    unknown: int

    def row(self, *, owned: bool) -> SessionRow:
        """The row of a session that somebody owns, or nobody."""
        row = _decode_row(self.stored)
        return msgspec.structs.replace(row, state=self.state, unknown=self.unknown) if owned else row


class _File(msgspec.Struct, frozen=True):
    """The catalogue's file. `made_by` is whatever else a row depends on."""

    made_by: str
    rows: dict[str, Kept]


_encode = msgspec.json.Encoder().encode
_decode_row = msgspec.json.Decoder(SessionRow).decode
_decode = msgspec.json.Decoder(_File).decode


class Catalogue:
    """The rows of one store.

    Args:
        store: what is listed.
        vocabulary: the declared event types.
        cache: the user's cache directory for fencepost; None keeps nothing.
    """

    def __init__(self, store: Store, vocabulary: Vocabulary, cache: Path | None) -> None:
        self._store = store
        self._vocabulary = vocabulary
        name = hashlib.sha256(store.url.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        self.path = cache / "catalogue" / f"{name}.json" if cache is not None and store.durable else None

    async def rows(self, limit: int | None = None, progress: Progress | None = None) -> list[SessionRow]:
        """The sessions of the store, the latest first, broken ones included.

        Args:
            limit: rows at most; all of them if left out.
        """
        store = self._store
        if not isinstance(store, Upkeep):
            return (await rows(store, self._vocabulary))[:limit]
        kept = await self._current(store, progress)
        ages = ((one.updated, name) for name, one in kept.items())
        page = sorted(ages, reverse=True) if limit is None else heapq.nlargest(limit, ages)
        out: list[SessionRow] = []
        for start in range(0, len(page), _AT_ONCE):
            names = [name for _, name in page[start : start + _AT_ONCE]]
            owners = await asyncio.gather(*map(store.owner, names))
            out += [kept[name].row(owned=owner is not None) for name, owner in zip(names, owners, strict=True)]
        return out

    async def _current(self, store: Upkeep, progress: Progress | None) -> dict[str, Kept]:
        """The rows of all sessions, each as its log is now."""
        revisions = await store.revisions()
        known = self._read() if len(revisions) >= WORTH else {}
        kept, stale = dict[str, Kept](), list[str]()
        for name, revision in revisions.items():
            one = known.get(name)
            if one is not None and one.revision == revision:
                kept[name] = one
            else:
                stale.append(name)
        for number, name in enumerate(stale, 1):
            with contextlib.suppress(SessionNotFoundError):  # gone since it was listed
                kept[name] = await self._look(name, revisions[name])
            if progress is not None:
                progress(number, len(stale))
        if len(revisions) >= WORTH and (stale or len(known) != len(kept)):
            self._write(kept)
        return kept

    async def _look(self, session: str, revision: str) -> Kept:
        """Read one log.

        Raises:
            SessionNotFoundError: there is none any more.
        """
        try:
            stored = await self._store.read(session)
        except SessionNotFoundError:
            raise
        except FencepostError as error:
            row = unreadable(session, error)
            return _keeping("", row, row)
        return await off_loop(len(stored.entries), lambda: _kept(stored, revision, self._vocabulary))

    # --- the file -----------------------------------------------------------------------------------------------

    def _made_by(self) -> str:
        from fencepost import __version__

        types = sorted(kind.type_name() for kind in self._vocabulary.types)
        return " ".join((__version__, "format", str(FORMAT), *SessionRow.__struct_fields__, *types))

    def _read(self) -> Mapping[str, Kept]:
        if self.path is None:
            return {}
        try:
            found = _decode(self.path.read_bytes())
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}  # not there, not to be read, or not what we wrote: it is made anew
        return found.rows if found.made_by == self._made_by() else {}

    def _write(self, kept: dict[str, Kept]) -> None:
        """Replace the file. Nothing is synced: what a power cut leaves is right, or no catalogue."""
        if self.path is None:
            return
        data = msgspec.json.encode(_File(self._made_by(), {name: one for name, one in kept.items() if one.revision}))
        with contextlib.suppress(OSError):  # a cache that cannot be written is no cache, and no fault
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd, draft = tempfile.mkstemp(dir=self.path.parent, prefix=".draft-")
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(data)
                Path(draft).replace(self.path)
            except OSError:
                Path(draft).unlink(missing_ok=True)
                raise


def _kept(stored: StoredLog, revision: str, vocabulary: Vocabulary) -> Kept:
    """The row with an owner, whoever that is, and without one."""
    free = fold_stored(msgspec.structs.replace(stored, owner=None), vocabulary)
    held = msgspec.structs.replace(free, stored=msgspec.structs.replace(stored, owner=Owner(0, "", 0)))
    return _keeping(revision, row_of(free), row_of(held))


def _keeping(revision: str, row: SessionRow, owned: SessionRow) -> Kept:
    return Kept(revision, row.updated, msgspec.Raw(_encode(row)), owned.state, owned.unknown)
