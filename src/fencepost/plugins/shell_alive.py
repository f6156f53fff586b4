"""Which processes of a command live, and ending them: for whoever has nothing but its started record.

A process id alone says little, for ids come back: on Linux its start time and the machine's boot have to agree too.
Elsewhere the id has to do, and what it names is only looked at, never ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path

import msgspec

from fencepost.plugins import shell_record
from fencepost.plugins.shell_receipts import Process, Started
from fencepost.runtime.whereabouts import answers

PROC = Path("/proc")
_ENDED = frozenset("ZXx")


class _Stat(msgspec.Struct, frozen=True):
    state: str
    session: int
    start: int


def same_machine(started: Started) -> bool:
    """Whether process ids of then mean the same now: the machine runs on, and this is no other container."""
    return (started.boot, started.space) == (shell_record.boot(), shell_record.space())


def runs(pid: int) -> bool:
    """Whether some process has this id."""
    if sys.platform != "linux":
        return answers(pid)
    stat = _stat(pid)
    return stat is not None and stat.state not in _ENDED


def lives(process: Process) -> bool:
    """Whether that very process does. Only asked on the same machine."""
    if sys.platform != "linux":
        return answers(process.pid)
    stat = _stat(process.pid)
    return stat is not None and stat.start == process.start and stat.state not in _ENDED


def members(started: Started) -> list[Process]:
    """What lives of the command: itself, what is in its session, and what carries its call in its environment."""
    if sys.platform != "linux":
        return [started.command] if answers(started.command.pid) else []
    command, mark = started.command, f"FENCEPOST_CALL_ID={started.call_id}".encode()
    leader = _stat(command.pid)
    ours = leader is None or leader.start == command.start  # else the id came back, as another's session
    found = []
    for pid in _pids():
        stat = _stat(pid)
        if stat is None or stat.state in _ENDED or stat.start < command.start:
            continue
        if (ours and stat.session == command.pid) or mark in _environment(pid):
            found.append(Process(pid, stat.start))
    return found


def signal_to(process: Process, number: int) -> None:
    """Signal that very process; nothing happens if it is gone."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(process.pid)
        try:
            if lives(process):  # now the descriptor is certain to be its own
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _pids() -> list[int]:
    return [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208 - a path for each costs more


def _stat(pid: int) -> _Stat | None:
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return _Stat(fields[0].decode(), int(fields[3]), int(fields[19]))
    except (OSError, IndexError):
        return None  # it is gone


def _environment(pid: int) -> list[bytes]:
    try:
        return (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []  # it is gone, or another user's
