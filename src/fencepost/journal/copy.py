"""Copying a session into another store: the same header and the same events, byte for byte in canonical form.

Rules:
    1. It moves nothing: the original stays as it is.
    2. The copy is one append to a new session, so it is there whole or not at all (the contract of `Store.create`);
       then it is read back and compared.
    3. Only events are carried over. What a store knows beside them (torn bytes that name a call, bytes that went
       missing) would be lost, and a call that has no result yet would look more innocent than it is (law 2). Such a
       session is refused until it was resumed: then every call has its result.

    4. Of a call that was let go and has no result, the files of the session may tell what happened. They are carried
       over with it, durable before the copy is: a receipt that is missing would read as "did not run" (law 2).

Else large outputs in `Store.files` stay where they are; results name them by their path.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterable
from itertools import chain, zip_longest
from pathlib import Path

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import CORE, Vocabulary, encode, expand
from fencepost.errors import DamagedError, HeldError, StoreError, UnsupportedError
from fencepost.journal.inspect import Reading, fold_stored, state_of
from fencepost.journal.session import off_loop
from fencepost.stores.base import Store, StoredLog

SALVAGE = "Write what is intact into a new session with `fencepost doctor ID --salvage NEW`, and copy that one"


class Copied(msgspec.Struct, frozen=True):
    """A copy that is durable and was compared."""

    session: str
    source: str
    target: str
    events: int


async def copy(source: Store, session: str, target: Store, vocabulary: Vocabulary = CORE) -> Copied:
    """Copy one session.

    Args:
        source, target: stores; the original is read from one and the copy made in the other.

    Raises:
        SessionNotFoundError: there is no such session.
        SessionExistsError: the target has one of that id; nothing was overwritten.
        HeldError: somebody works on it, or is about to create that id in the target.
        DamagedError, UnsupportedError: the original is not whole, or not of this release.
        StoreError: the copy could not be saved, and is not there; or it read back differently.
    """
    stored = await source.read(session)
    reading = await off_loop(len(stored.entries), lambda: fold_stored(stored, vocabulary))
    header = _copyable(reading, source.url)
    handle = await target.create(header)
    try:
        if any(reading.fold.calls[name].admitted for name in reading.fold.owed):
            await asyncio.to_thread(_carry, source.files(session), target.files(session))
        await handle.append(stored.entries, 0)
    finally:
        await handle.release()
    back = await target.read(session)
    if not await off_loop(len(stored.entries), lambda: _same(stored, back)):
        raise StoreError(f"session {session}: the copy in {target.url} does not read as the original in {source.url}")
    return Copied(session, source.url, target.url, reading.fold.next_seq)


def _copyable(reading: Reading, url: str) -> ev.Header:
    """The header of a session that may be copied.

    Raises:
        HeldError, DamagedError, UnsupportedError: it may not.
        StoreError: it has to be resumed first.
    """
    stored = reading.stored
    name, (state, problem) = stored.session, state_of(reading)
    if state == "unsupported":
        raise UnsupportedError(f"session {name} in {url} cannot be copied: {problem}")
    if state == "damaged" or stored.header is None:
        raise DamagedError(f"session {name} in {url} is damaged: {problem}", next_act=SALVAGE)
    if stored.owner is not None:
        who = f"{stored.owner.pid} on {stored.owner.host}"
        raise HeldError(f"session {name} is held by {who}, and what it does next would be missing in a copy")
    doubtful = [call for call in reading.fold.calls.values() if call.result is None and not call.admitted]
    if any(reading.evidence.covers(call) for call in doubtful):
        raise StoreError(
            f"session {name} in {url} has lost bytes that may name an open call, and a copy would not know of them",
            next_act=f"Close its calls first, with `fencepost resume {name}`",
        )
    return stored.header


def _carry(source: Path, target: Path) -> None:
    """Copy a directory, durably; what it has none of is not made.

    Raises:
        StoreError: it could not be copied.
    """
    if not source.is_dir():
        return
    try:
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        for path in (*target.rglob("*"), target, target.parent):
            if not path.is_symlink():
                _sync(path)
    except (OSError, shutil.Error) as error:
        raise StoreError(f"what belongs to the calls could not be copied to {target}: {error}") from error


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _same(one: StoredLog, other: StoredLog) -> bool:
    if other.damage or one.header != other.header:
        return False
    pairs = zip_longest(_lines(one.entries), _lines(other.entries))
    return all(ours == theirs for ours, theirs in pairs)


def _lines(entries: Iterable[ev.Entry]) -> Iterable[bytes]:
    return map(encode, chain.from_iterable(map(expand, entries)))
