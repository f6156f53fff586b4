"""Which file system a path is on, and whether a write-ahead log can be kept there.

SQLite's WAL needs memory that all who use the database share, so all of them have to be on one machine. On a network
file system they need not be, and nothing would say so before the database is corrupt.

Where the system has no /proc/self/mounts (macOS), nothing is known and nothing refused.
"""

from __future__ import annotations

import re
from pathlib import Path

from fencepost.errors import UnsupportedError

_MOUNTS = Path("/proc/self/mounts")
_ESCAPED = re.compile(r"\\([0-7]{3})")

NETWORK = frozenset(
    {
        "9p",
        "afpfs",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "coda",
        "davfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "ncpfs",
        "nfs",
        "nfs4",
        "ocfs2",
        "prl_fs",
        "smb3",
        "smbfs",
        "vboxsf",
        "vmhgfs",
        "webdav",
    }
)
"""Kinds that other machines, or the host of this one, may write to at the same time."""

NETWORK_FUSE = frozenset(
    {
        "ceph",
        "davfs",
        "gcsfuse",
        "glusterfs",
        "grpcfuse",
        "osxfs",
        "rclone",
        "s3fs",
        "smbnetfs",
        "sshfs",
        "vmhgfs-fuse",
    }
)
"""The same behind `fuse.`."""


def kind_of(path: Path, mounts: str) -> str:
    """The kind of file system that `path`, absolute and without links, is on; empty where that cannot be said.

    Args:
        mounts: lines as in /proc/self/mounts; of two mounts on one place the later one counts.
    """
    longest, kind = -1, ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        place = _ESCAPED.sub(lambda match: chr(int(match[1], 8)), fields[1])
        if path.is_relative_to(place) and len(place) >= longest:
            longest, kind = len(place), fields[2]
    return kind


def is_network(kind: str) -> bool:
    """Whether machines may share this kind of file system."""
    family, _, member = kind.partition(".")
    return kind in NETWORK or (family == "fuse" and member in NETWORK_FUSE)


def refuse_network(file: Path, mounts: str | None = None) -> None:
    """Refuse a database on a network file system.

    Raises:
        UnsupportedError: it would be on one.
    """
    if mounts is None:
        try:
            mounts = _MOUNTS.read_text(errors="surrogateescape")
        except OSError:
            return
    kind = kind_of(file.resolve(), mounts)
    if is_network(kind):
        raise UnsupportedError(
            f"{file} is on a network file system ({kind}), where SQLite's write-ahead log cannot be kept",
            next_act="Choose a file on a local disk, or postgresql://… for sessions that many hosts share",
        )
