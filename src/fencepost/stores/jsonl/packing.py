"""Compressed logs: the bytes of `log.jsonl`, as one Zstandard frame with a checksum, in `log.jsonl.zst`.

Rules:
    1. Where both files are there, the plain one counts: a crash left the other, before it was needed or after.
    2. The plain file goes only after the compressed one was synced, read back and compared, and its name synced.
    3. The compressed file goes only after the plain one, and its name, were synced; that happens at the first append.

So at every moment there is one whole log, and the events in it are the same.
"""

from __future__ import annotations

import sys

from fencepost.stores.jsonl.disk import Disk
from fencepost.stores.jsonl.layout import SessionPaths
from fencepost.stores.jsonl.wholefile import write_file

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LEVEL = 9
"""See docs/notes/0006-compressed-logs.md for what each level saves and costs."""

_PARAMETER = zstd.CompressionParameter
_PIECE = 1 << 17


class PackingError(Exception):
    """The compressed form, read back, was not what was written."""


def pack(data: bytes) -> bytes:
    """The compressed form of some bytes."""
    options: dict[int, int] = {_PARAMETER.compression_level: LEVEL, _PARAMETER.checksum_flag: 1}
    return zstd.compress(data, options=options)


def unpack(data: bytes, limit: int | None = None) -> tuple[bytes, str | None]:
    """The bytes of a compressed form, as many as can be had, or `limit`; and why that is not all of them, or None."""
    reading, parts = zstd.ZstdDecompressor(), list[bytes]()
    taken = size = 0
    try:
        for at in range(0, len(data), _PIECE):
            if reading.eof or (limit is not None and size >= limit):
                break
            piece = data[at : at + _PIECE]
            taken += len(piece)
            parts.append(reading.decompress(piece))
            size += len(parts[-1])
    except zstd.ZstdError as error:
        return b"".join(parts), f"the compressed log is not what was written: {error}"
    found = b"".join(parts)
    if limit is not None:
        return found[:limit], None
    if not reading.eof:
        return found, "the compressed log ends too early"
    behind = len(data) - taken + len(reading.unused_data)
    return found, f"{behind} bytes stand behind the end of the compressed log" if behind else None


def compress_log(disk: Disk, paths: SessionPaths, data: bytes, modified: int) -> int:
    """Put the compressed form of a log in the place of the plain one; returns its size.

    Args:
        data: what is in the plain one.
        modified: when that changed last, in epoch nanoseconds; the compressed form keeps it.

    Raises:
        OSError: the medium; the plain log is there as it was.
        PackingError: likewise.
    """
    packed = pack(data)
    if len(packed) >= len(data):
        return len(data)
    write_file(disk, paths.packed_draft, packed, modified=modified)
    if unpack(disk.read(paths.packed_draft)) != (data, None):
        disk.unlink(paths.packed_draft)
        raise PackingError(f"{paths.packed_draft} did not read back as it was written")
    disk.rename(paths.packed_draft, paths.packed)
    disk.sync_dir(paths.dir)
    disk.unlink(paths.log)
    disk.sync_dir(paths.dir)
    return len(packed)


def restore_log(disk: Disk, paths: SessionPaths, data: bytes) -> int:
    """Put the plain form of a log in the place of the compressed one; returns the inode of its file.

    Raises:
        OSError: the medium; the compressed log, or both, are there.
    """
    write_file(disk, paths.draft, data)
    disk.rename(paths.draft, paths.log)
    disk.sync_dir(paths.dir)
    disk.unlink(paths.packed)
    return disk.stat(paths.log).st_ino
