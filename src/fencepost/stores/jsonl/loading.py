"""A session as it stands on disk, read without changing a byte: the log, and what lies beside it as evidence.

Evidence comes from three places: torn bytes at the end of the log, side files into which such bytes were moved
earlier, and the watermark file, which is never ahead of what was durable: a log that ends before it was cut.
"""

from __future__ import annotations

import contextlib
import os
import re

import msgspec

from fencepost.core import codec
from fencepost.core.upgrades import CHAIN, Chain
from fencepost.core.verdict import NO_EVIDENCE, Evidence, lost_bytes
from fencepost.errors import DamagedError, StoreError, UnsupportedError
from fencepost.stores.base import Damage, Owner, StoredLog
from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.frame import Framed, read_log
from fencepost.stores.jsonl.layout import SessionPaths, side_file_seq
from fencepost.stores.jsonl.renewing import Outdated

HINT = b"%020d\n"
"""The form of the watermark file: one seq, always as long."""

_HINT = re.compile(rb"(\d{20})\n")


class Loaded(msgspec.Struct, frozen=True):
    """A session that was read, with what its next owner has to know beyond `StoredLog`.

    Attributes:
        missing: bytes of unknown content are gone at the end.
        length: bytes of the log in its plain form.
        packed: those bytes, where the log is compressed.
    """

    stored: StoredLog
    framed: Framed
    stat: os.stat_result
    missing: bool
    length: int
    packed: bytes | None = None

    def outdated(self) -> Outdated | None:
        """What has to be rewritten before this log is continued, or None."""
        number, header = self.framed.format, self.stored.header
        if number is None or number >= codec.FORMAT or header is None:
            return None
        return Outdated(number, header, self.stored.entries)

    def refusal(self) -> tuple[type[StoreError], str] | None:
        """The error that every append to this log raises, or None."""
        stored = self.stored
        if stored.refusal is not None:
            return UnsupportedError, f"session {stored.session} cannot be continued: {stored.refusal}"
        if stored.damage:
            first = stored.damage[0]
            return DamagedError, f"session {stored.session} is damaged at byte {first.offset}: {first.reason}"
        return None

    def owned_by(self, owner: Owner | None) -> StoredLog:
        """The log, with who holds it."""
        return msgspec.structs.replace(self.stored, owner=owner)


def load(
    disk: Disk, paths: SessionPaths, session: str, vocabulary: codec.Vocabulary | None, chain: Chain = CHAIN
) -> Loaded:
    """Read a session.

    Args:
        vocabulary: the declared event types; without one, types beyond the core's are kept and not judged.
        chain: the steps through which older formats are read.

    Raises:
        OSError: the log, or its directory, cannot be read.
    """
    hint = _hint(disk, paths)  # before the log: a living owner moves both forward
    stat, data, packed, flaw = _bytes(disk, paths)
    framed = read_log(data, vocabulary or codec.CORE, chain)
    last = framed.next_seq - 1
    evidence = framed.evidence.joined(_set_aside(disk, paths))
    cut = hint > last
    if (cut and not framed.missing) or flaw:
        evidence = evidence.joined(Evidence(blind_at=(framed.next_seq,)))
    refusal = f"{paths.packed if packed else paths.log}: {framed.refusal}" if framed.refusal else None
    if refusal is None and vocabulary is not None:
        refusal = codec.refusal(framed.entries)
    stored = StoredLog(
        session=session,
        header=framed.header,
        entries=framed.entries,
        beyond=framed.beyond,
        watermark=last,
        size=stat.st_size if packed else len(data),
        tail_bytes=0 if flaw else len(framed.torn),
        evidence=evidence,
        damage=(*framed.damage, *((Damage(len(data), flaw),) if flaw else ())),
        refusal=refusal,
        updated=stat.st_mtime_ns // 1_000_000,
    )
    return Loaded(stored, framed, stat, framed.missing or cut, len(data), data if packed else None)


def _bytes(disk: Disk, paths: SessionPaths) -> tuple[os.stat_result, bytes, bool, str | None]:
    """The log's file and its bytes in plain form; whether they were compressed, and what is wrong with that form."""
    with contextlib.suppress(FileNotFoundError):
        return disk.stat(paths.log), disk.read(paths.log), False, None
    with contextlib.suppress(FileNotFoundError):
        stat = disk.stat(paths.packed)
        return stat, *_unpacked(disk.read(paths.packed))
    return disk.stat(paths.log), disk.read(paths.log), False, None  # an owner unpacked it in between


def _unpacked(data: bytes) -> tuple[bytes, bool, str | None]:
    from fencepost.stores.jsonl.packing import unpack  # most stores have no such log

    plain, flaw = unpack(data)
    return plain, True, flaw


def _hint(disk: Disk, paths: SessionPaths) -> int:
    """The seq in the watermark file; -1 where there is none, or it is not one: the hint only ever adds doubt."""
    try:
        match = _HINT.fullmatch(disk.read(paths.watermark))
    except OSError:
        return -1
    return int(match[1]) if match else -1


def _set_aside(disk: Disk, paths: SessionPaths) -> Evidence:
    """The evidence in the side files. One that cannot be read still says that bytes went missing."""
    evidence = NO_EVIDENCE
    for name in sorted(disk.names(paths.dir)):
        seq = side_file_seq(name)
        if seq is None:
            continue
        try:
            fragment = disk.read(paths.dir / name)
        except OSError:
            fragment = b""
        evidence = evidence.joined(lost_bytes(fragment, seq))
    return evidence
