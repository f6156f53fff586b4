"""A log of an older format, rewritten in this release's when it is continued; the original stays beside it.

Rules:
    1. The new form is written beside, whole, and synced before anything else changes.
    2. The original gets a second name, `log.formatN.jsonl`, and that is durable before it loses its first one.
    3. So at every moment `log.jsonl` is one whole log, of one format or the other.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Sequence

import msgspec

from fencepost.core.codec import encode
from fencepost.core.events import Entry, Header
from fencepost.stores.batches import batch_lines
from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.frame import commit_line
from fencepost.stores.jsonl.layout import SessionPaths
from fencepost.stores.jsonl.wholefile import write_file

BITE = 128
"""Entries behind one commit line where many are written at once: a rotten byte costs one bite, and who reads the log
takes it in as many.
"""


class Outdated(msgspec.Struct, frozen=True):
    """A log as it was read, and the format that it is stored in."""

    format: int
    header: Header
    entries: Sequence[Entry]


def in_bites(session: str, head: bytes, entries: Sequence[Entry]) -> tuple[bytes, int]:
    """The bytes of a log, from its header line on, and the seq that follows it.

    Raises:
        IllegalEventError, EncodingRefusedError: see `batch_lines`.
    """
    parts, crc, seq = [head], zlib.crc32(head), 0
    for start in range(0, len(entries), BITE):
        lines, seq = batch_lines(session, entries[start : start + BITE], seq)
        parts += (lines, commit_line(seq - 1, zlib.crc32(lines, crc)))
        crc = 0
    return b"".join(parts), seq


def renew_log(disk: Disk, paths: SessionPaths, outdated: Outdated) -> tuple[int, int]:
    """Put the new form of a log in the place of the old one; returns the inode of its file, and its length.

    Raises:
        OSError: the medium; `log.jsonl` is the one log or the other, and this may be done again.
    """
    data, _ = in_bites(outdated.header.session, encode(outdated.header) + b"\n", outdated.entries)
    write_file(disk, paths.draft, data)
    with contextlib.suppress(FileExistsError):  # kept by an owner that was killed before the rename
        disk.link(paths.log, paths.original(outdated.format))
    disk.sync_dir(paths.dir)
    disk.rename(paths.draft, paths.log)
    disk.sync_dir(paths.dir)
    return disk.stat(paths.log).st_ino, len(data)
