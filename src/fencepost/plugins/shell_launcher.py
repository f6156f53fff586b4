"""The launcher: one tiny process beside an agent that forks a supervisor for each of its commands.

It exists because a Python that is forked starts in a millisecond and one that is executed in fifteen. It waits on the
socket that it was started with. Each message is one byte and one descriptor: the socket to the agent on which the new
supervisor gets its order. It understands nothing of orders, so nothing that an agent sends can break it, and it ends
when the agent does. Its supervisors live on.

    python -I -S -c START DIRECTORY AGENT_PID, with the socket as descriptor 3
"""

# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import os
import select
import socket
import sys
from typing import TYPE_CHECKING

try:
    import _signal as signal  # type: ignore[import-not-found]
except ImportError:
    import signal

from fencepost.plugins import shell_record
from fencepost.plugins.shell_supervisor import supervise

if TYPE_CHECKING:
    from typing import NoReturn

SOCKET = 3
NAME = "fencepost-shell"
"""What people see in a list of processes; 15 characters at most."""


class Home:
    """What all supervisors of an agent have in common.

    Attributes:
        agent: a descriptor that is readable when the agent has died; -1 where there is none.
        boot: see `shell_record.boot`.
        space: see `shell_record.space`.
        dispositions: by signal, what a command does about it: what it would, had the agent started it itself.
    """

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.boot = shell_record.boot()
        self.space = shell_record.space()
        usual = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1)
        self.dispositions: dict[int, object] = dict.fromkeys(usual, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            self.dispositions[number] = signal.signal(number, signal.SIG_IGN)


def main() -> None:
    """Fork supervisors until the agent is gone."""
    _close_others()
    os.set_inheritable(SOCKET, False)
    os.chdir("/")
    _take_name()
    agent = _watch(int(sys.argv[2]))
    if agent is None:
        return
    home = Home(agent)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # supervisors are collected by the kernel
    with socket.socket(fileno=SOCKET) as asks:
        poll = select.poll()
        for descriptor in (SOCKET, agent):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        # What the agent asked for before its death gets its supervisor, which finds out about that.
        while any(descriptor == SOCKET for descriptor, _ in poll.poll()):
            message, descriptors, _, _ = socket.recv_fds(asks, 1, 1)
            if not message:
                return
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
                _fork(asks, descriptor, home)
                os.close(descriptor)


def _watch(agent: int) -> int | None:
    """A descriptor that is readable when the agent has died; -1 where there is none, None if it has died already."""
    try:
        descriptor = os.pidfd_open(agent) if sys.platform == "linux" else -1
    except ProcessLookupError:
        return None
    except OSError:
        descriptor = -1
    # A process id is only certain to be the agent's while this is the agent's child.
    return descriptor if os.getppid() == agent else None


def _close_others() -> None:
    """Keep nothing of the agent's: a descriptor that a library of its left inheritable would end in every command."""
    try:
        found = [int(name) for name in os.listdir("/proc/self/fd")]
    except OSError:
        found = list(range(256))
    for descriptor in found:
        if descriptor > SOCKET:
            try:
                os.close(descriptor)
            except OSError:
                continue


def _take_name() -> None:
    try:
        with open("/proc/self/comm", "w") as file:
            file.write(NAME)
    except OSError:
        return


def _fork(asks: socket.socket, descriptor: int, home: Home) -> None:
    try:
        pid = os.fork()
    except OSError:
        return  # the agent sees that nobody listens at the other end
    if pid == 0:
        _be_supervisor(asks, descriptor, home)


def _be_supervisor(asks: socket.socket, descriptor: int, home: Home) -> NoReturn:
    code = 1
    try:
        os.setsid()
        asks.close()
        supervise(socket.socket(fileno=descriptor), home)
        code = 0
    finally:
        os._exit(code)
