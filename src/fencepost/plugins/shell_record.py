"""Receipts of commands, from the writing side: who runs a command, and how it ended, durable and in place at once.

    receipts/CALL.N.started     before the command is let go: its process, its supervisor's, the machine's boot
    receipts/CALL.N.done        at its end: how it ended, and what it printed (the beginning and the end of it)

Rules:
    1. A receipt is written beside, synced, and put into place in one step; then its directory is synced. It is there
       whole, or not at all, also after a power cut.
    2. Nothing is overwritten: a call that is run again under its id gets the next N.
    3. Directories are made 0700, files 0600, and a new directory's name is synced in the one above it.

What it refuses to be: a reader (`shell_receipts`), or dependent on anything: the supervisor imports it, which runs
without the rest of the package and without most of the library.
"""

# The supervisor does without pathlib, contextlib and the rest of what they import.
# ruff: noqa: PTH102, PTH104, PTH108, PTH115, PTH120, PTH123, SIM105

import errno
import json
import os
import sys

HEAD = 8_192
"""Bytes of the beginning of an output that a receipt and the model get."""
TAIL = 24_576
"""Bytes of the end of it that they get."""

_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK)


def sync(descriptor: int) -> None:
    """Make a file or directory durable.

    Raises:
        OSError: it is not.
    """
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_directory(path: str) -> None:
    """Make the names in a directory durable.

    Raises:
        OSError: they are not.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str) -> None:
    """Make a directory, and those above it that are missing, durably.

    Raises:
        OSError: it cannot be made.
    """
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return
    except FileNotFoundError:
        make_directory(os.path.dirname(path))
        make_directory(path)
        return
    sync_directory(os.path.dirname(path))


def start_of(pid: int) -> int:
    """When a process started, in the kernel's ticks since boot; 0 where nobody says."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def boot() -> str:
    """What changes with every start of the machine; empty where nobody says."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            return file.read().strip()
    except OSError:
        return ""


def space() -> str:
    """The space in which process ids are unique (a container has its own); empty where there is only one."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


class Receipts:
    """The receipts of one run of a call.

    Args:
        directory: of the session's receipts; made if it is missing.
        call_id: the call.

    Raises:
        OSError: the directory cannot be made.
    """

    def __init__(self, directory: str, call_id: str) -> None:
        self._directory = directory
        self._call_id = call_id
        self.number = 1
        make_directory(directory)

    def begin(self, fields: dict[str, object]) -> None:
        """Write the started record, under the first number that is free.

        Raises:
            OSError: it is not durable. It may be in place all the same.
        """
        while os.path.lexists(self._path("started")):
            self.number += 1
        beside = self._beside(fields, "started")
        try:
            while not _placed(beside, self._path("started")):
                self.number += 1
        finally:
            _unlink(beside)
        self.sync()

    def end(self, fields: dict[str, object]) -> None:
        """Put the done receipt into place: whole, whoever is killed now. `sync` lets its name survive a power cut.

        Raises:
            OSError: it could not be.
        """
        beside = self._beside(fields, "done")
        try:
            os.rename(beside, self._path("done"))
        except OSError:
            _unlink(beside)
            raise

    def sync(self) -> None:
        """Make the names of the receipts durable.

        Raises:
            OSError: they are not.
        """
        sync_directory(self._directory)

    def _path(self, kind: str) -> str:
        return f"{self._directory}/{self._call_id}.{self.number}.{kind}"

    def _beside(self, fields: dict[str, object], kind: str) -> str:
        """A synced file beside its place, under a name that only this process uses."""
        path = f"{self._directory}/.{self._call_id}.{kind}.{os.getpid()}.tmp"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            rest = memoryview(json.dumps(fields).encode())
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            sync(descriptor)
        except OSError:
            _unlink(path)
            raise
        finally:
            os.close(descriptor)
        return path


def _placed(beside: str, path: str) -> bool:
    """Put a file into its place; False if that is taken."""
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.lexists(path):
            return False
        os.rename(beside, path)
    return True


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass  # it is in its place already, or stays as what it is: a name that nobody reads
