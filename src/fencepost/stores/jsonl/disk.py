"""The few calls to the operating system that a log's durability rests on, in one place.

Rules:
    1. Modes are exact, whatever the umask: 0600 for files, 0700 for directories.
    2. No descriptor survives an exec.
    3. `sync_data` returns when the bytes and the length of the file survive a power cut; `sync_dir` when the names
       in that directory do. On macOS only F_FULLFSYNC means that.
    4. Nothing is retried, buffered or explained here: errors leave as the `OSError` that they are.

What it refuses to be: a file system. It knows no sessions, and a store takes it as an argument, so that a test can
put one that fails, or one that remembers, in its place.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path

FILE_MODE = 0o600
DIR_MODE = 0o700

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


class Disk:
    """The disk of this machine."""

    def mkdir(self, path: Path) -> None:
        """Make one directory, mode 0700."""
        path.mkdir(DIR_MODE)
        path.chmod(DIR_MODE)

    def create(self, path: Path) -> int:
        """Make a file that does not exist, mode 0600, and open it for appending and reading back."""
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        os.fchmod(fd, FILE_MODE)
        return fd

    def open_log(self, path: Path) -> int:
        """Open an existing file for appending and reading back."""
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)

    def open_hint(self, path: Path) -> int:
        """Open a file for overwriting in place; make it, mode 0600, where it is missing."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        os.fchmod(fd, FILE_MODE)
        return fd

    def close(self, fd: int) -> None:
        """Close a descriptor; it is gone afterwards, whatever this raises."""
        os.close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Append; returns how many bytes were taken, which may be fewer than given."""
        return os.write(fd, data)

    def overwrite(self, fd: int, data: bytes, offset: int) -> int:
        """Write at a place; returns how many bytes were taken."""
        return os.pwrite(fd, data, offset)

    def sync_data(self, fd: int) -> None:
        """Make bytes and length of a file durable."""
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        else:
            os.fdatasync(fd)

    def truncate(self, fd: int, length: int) -> None:
        """Cut a file to `length` bytes."""
        os.ftruncate(fd, length)

    def date(self, fd: int, modified: int) -> None:
        """Set when a file was changed last, in epoch nanoseconds."""
        os.utime(fd, ns=(modified, modified))

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; raises FileExistsError rather than overwrite one."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of whatever has it now."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        """Take a name away."""
        path.unlink()

    def rmdir(self, path: Path) -> None:
        """Take an empty directory away."""
        path.rmdir()

    def remove_tree(self, path: Path) -> None:
        """Take a directory away with all that is in it; what is gone already is no fault."""
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_dir(self, path: Path) -> None:
        """Make the names in a directory durable."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _FULL_SYNC is not None:
                fcntl.fcntl(fd, _FULL_SYNC)
            else:
                os.fsync(fd)
        finally:
            os.close(fd)

    def stat(self, path: Path | str) -> os.stat_result:
        """What a path names now."""
        return os.stat(path)  # noqa: PTH116 - 10,000 of them are asked for in a row, and a `Path` costs more than the call

    def fstat(self, fd: int) -> os.stat_result:
        """What an open file is now."""
        return os.fstat(fd)

    def read(self, path: Path, start: int = 0, limit: int | None = None) -> bytes:
        """The bytes of a file from `start` on, as many as it has when it is opened, or `limit`."""
        with path.open("rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(start)
            count = max(size - start, 0)
            return _read_up_to(file.fileno(), count if limit is None else min(count, limit))

    def names(self, path: Path) -> list[str]:
        """The names in a directory."""
        return os.listdir(path)  # noqa: PTH208 - names are wanted, not paths


def _read_up_to(fd: int, size: int) -> bytes:
    first = os.read(fd, size) if size else b""
    if len(first) == size or not first:
        return first
    parts, missing = [first], size - len(first)
    while missing and (part := os.read(fd, missing)):  # one read gives 2 GiB at most
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)
