"""Receipts of commands, from the reading side: what was started, and how it ended.

The writing side is `shell_record`, which says where they are. Reading changes nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from fencepost.plugins.shell_output import Printed
from fencepost.runtime.whereabouts import RECEIPTS

DIRECTORY = RECEIPTS

T = TypeVar("T")

Outcome = Literal["exited", "ended", "withdrawn", "refused"]
OnCrash = Literal["finish", "end"]


class Process(msgspec.Struct, frozen=True):
    """A process, so that no other can be taken for it.

    Attributes:
        pid: its id.
        start: when it started, in the kernel's ticks since boot; 0 where nobody says.
    """

    pid: int
    start: int


class Started(msgspec.Struct, frozen=True):
    """A command was forked and held. Whether it was let go then, this does not say.

    Attributes:
        call_id: the call.
        boot: which run of the machine; empty where nobody says.
        space: in which space process ids mean these processes; empty where there is only one.
        command: the command.
        supervisor: who watches over it.
        time: epoch milliseconds.
        on_crash: what becomes of it when the agent dies.
        grace: seconds from SIGTERM to SIGKILL.
        offset: where in the output file its output begins.
    """

    call_id: str
    boot: str
    space: str
    command: Process
    supervisor: Process
    time: int
    on_crash: OnCrash
    grace: float
    offset: int


class Done(msgspec.Struct, frozen=True):
    """How it ended.

    Attributes:
        outcome: it `exited` by itself; it was `ended` by its supervisor, so that nobody can say how far it came; it was
            `withdrawn`, that is never let go; the system `refused` to run it.
        code: its exit code, or minus the number of the signal that ended it; None if it was not run.
        why: half a sentence, where it did not exit by itself.
        errno: why the system refused; 0 otherwise.
        left: whether something that it left in the background had to be ended.
        time: epoch milliseconds.
        total, kept, trouble, head, tail: what it printed; see `Printed`.
    """

    outcome: Outcome
    code: int | None
    why: str
    errno: int
    left: bool
    time: int
    total: int
    kept: int
    trouble: str
    head: bytes
    tail: bytes

    def printed(self, path: Path) -> Printed:
        """What it printed; `path` is the file with everything."""
        return Printed(path, self.total, self.kept, self.trouble, self.head, self.tail)


class Attempt(msgspec.Struct, frozen=True):
    """One run of a call.

    Attributes:
        number: from 1.
        started: how its command was started.
        done: how it ended, if that is known.
    """

    number: int
    started: Started
    done: Done | None


def output_of(files: Path, call_id: str) -> Path:
    """The file with all that the call's commands printed."""
    return files / f"{call_id}.log"


def attempts(files: Path, call_id: str) -> list[Attempt]:
    """What the receipts of a call say, the earliest run first.

    Raises:
        OSError: they cannot be read. `FileNotFoundError`: there are none, for their directory is missing.
        msgspec.DecodeError: one of them is no receipt.
    """
    directory = files / DIRECTORY
    directory.stat()
    found: list[Attempt] = []
    while (started := _read(directory / f"{call_id}.{len(found) + 1}.started", Started)) is not None:
        found.append(Attempt(len(found) + 1, started, done_of(files, call_id, len(found) + 1)))
    return found


def done_of(files: Path, call_id: str, number: int) -> Done | None:
    """The done receipt of one run, if there is one by now.

    Raises:
        OSError, msgspec.DecodeError: it cannot be read.
    """
    return _read(files / DIRECTORY / f"{call_id}.{number}.done", Done)


def _read(path: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except FileNotFoundError:
        return None
