"""What the log says of the processes of MCP servers, and the end of those that outlived their agent.

A server is recorded before it starts and carries the token of that record in its environment, as does whatever it
starts. So after a crash everything of it can be found, even if the agent died between the start and the next word.

What this module refuses to be: part of recovery. A server is no call; its processes say nothing about calls.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
from collections.abc import Iterator
from pathlib import Path

from fencepost.core import events as ev
from fencepost.errors import UsageError
from fencepost.journal.session import Journal

TOKEN = "FENCEPOST_MCP_TOKEN"  # noqa: S105 - the name of a variable
"""The variable of a server's environment that holds the token of its record."""

ROUNDS = 5
"""How often to look again for what was forked while its parent was ended."""


class ServerStarting(ev.Event, frozen=True, tag="mcp/server"):
    """The process of an MCP server is about to be started. From here on processes with `token` may be alive.

    Absent: none was started. `command` is as configured: no variable is put in, and what looks secret is left out.
    """

    server: str
    session: str
    command: str
    token: str


class ServerProcess(ev.Event, frozen=True, tag="mcp/process"):
    """It was started, as this process. Absent, after `mcp/server`: it may have been started all the same.

    `started` is its start time in clock ticks since boot, 0 where the system does not tell.
    """

    token: str
    pid: int
    started: int


EVENTS = (ServerStarting, ServerProcess)


class Record:
    """Puts the starts of one session's servers on record.

    Raises:
        UsageError: the session's composition does not declare the events.
    """

    def __init__(self, journal: Journal) -> None:
        if ServerStarting not in journal.log.vocabulary:
            raise UsageError(
                "MCP servers need the plugin `mcp`, which is not composed",
                next_act='Add it: `plugins = [..., "mcp"]` in fencepost.toml, or plugins=[Mcp()] of fencepost.open',
            )
        self._journal = journal

    async def starting(self, server: str, command: str) -> str:
        """Record durably that a server is about to be started; gives the token for its environment.

        Raises:
            NotSavedError: it could not be made durable, so it may not be started (law 4).
        """
        token = secrets.token_hex(16)
        journal = self._journal
        journal.append(
            ServerStarting, server=server, session=journal.session, command=command, token=token, ignorable=True
        )
        await journal.flush()
        return token

    def started(self, token: str, pid: int) -> None:
        """Record what process it became."""
        self._journal.append(ServerProcess, token=token, pid=pid, started=start_time(pid), ignorable=True)

    def tokens(self) -> frozenset[str]:
        """Of all servers that were ever recorded for this session; what a fork took over is another session's."""
        entries, session = self._journal.log.entries, self._journal.session
        return frozenset(one.token for one in entries if isinstance(one, ServerStarting) and one.session == session)


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 where that cannot be known."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return 0


def end_survivors(tokens: frozenset[str]) -> list[int]:
    """End what an agent that is gone left of these servers; gives the process ids.

    What runs below this very process is no survivor. Only Linux tells the environment of processes; elsewhere the
    servers' own parents have to do.
    """
    ended: list[int] = []
    marks = [f"{TOKEN}={token}".encode() for token in tokens]
    for _ in range(ROUNDS if marks else 0):
        found = [pid for pid in _carriers(marks) if _end(pid, marks)]
        if not found:
            break
        ended += [pid for pid in found if pid not in ended]
    return sorted(ended)


def _carriers(marks: list[bytes]) -> Iterator[int]:
    """Processes with one of the tokens that do not descend from this one."""
    if not Path("/proc/self/environ").exists():
        return
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and _carries(int(entry.name), marks) and not _ours(int(entry.name)):
            yield int(entry.name)


def _carries(pid: int, marks: list[bytes]) -> bool:
    try:
        return not {*Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")}.isdisjoint(marks)
    except OSError:
        return False  # it ended meanwhile, or belongs to another user


def _ours(pid: int) -> bool:
    while pid > 1 and pid != os.getpid():
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
        except (OSError, IndexError, ValueError):
            return False
    return pid == os.getpid()


def _end(pid: int, marks: list[bytes]) -> bool:
    """SIGKILL to exactly the process that carries a token, not to one that got its number meanwhile."""
    try:
        exact = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _carries(pid, marks):
            return False
        signal.pidfd_send_signal(exact, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(exact)
    return True
