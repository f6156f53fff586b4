"""The launcher: one tiny process beside an agent that forks a supervisor for each of its commands.

It exists because a Python that is executed takes fifteen milliseconds to start, and one that is forked in advance none.
There is always one supervisor that stands by, with the process that will be its command. It waits on the socket that
the launcher was started with. Each message there is one byte and one descriptor: the socket to the agent on which the
supervisor gets its order. With that it leaves, and the launcher forks the next. The launcher itself understands nothing
of orders, so nothing that an agent sends can break it. It ends when the agent does; supervisors with an order live on.

    python -I -S -c START DIRECTORY AGENT_PID, with the socket as descriptor 3
"""

# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import gc
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
from fencepost.plugins.shell_supervisor import Supervisor

if TYPE_CHECKING:
    from typing import NoReturn

SOCKET = 3
TAKEN = b"+"
GONE = b"-"
"""What a supervisor that stood by says to its launcher: it has an order; there is no agent any more."""
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
    gc.disable()  # and never look at what they share with this process, which would be to copy it
    with socket.socket(fileno=SOCKET) as asks:
        while _next(asks, home):
            pass


def _next(asks: socket.socket, home: Home) -> bool:
    """Fork a supervisor, and wait until it has its order. False if there will be no more."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(told)
        _stand_by(asks, tell, home)
    os.close(tell)
    word = os.read(told, 1)  # nothing, if it was killed
    os.close(told)
    return word != GONE


def _stand_by(asks: socket.socket, tell: int, home: Home) -> NoReturn:
    code = 1
    try:
        os.setsid()
        supervisor = Supervisor(home)
        descriptor = _taken(asks, home)
        asks.close()  # what else is asked for is the next one's
        _tell(tell, GONE if descriptor is None else TAKEN)
        if descriptor is not None:
            supervisor.supervise(socket.socket(fileno=descriptor))
        code = 0
    finally:
        os._exit(code)


def _tell(launcher: int, word: bytes) -> None:
    try:
        os.write(launcher, word)
    except BrokenPipeError:
        return  # it was killed, which is nothing to a supervisor with an order
    finally:
        os.close(launcher)


def _taken(asks: socket.socket, home: Home) -> int | None:
    """The socket to the agent that comes with an order; None if the agent is gone.

    What it asked for before its death is still taken: the supervisor finds out.
    """
    poll = select.poll()
    for descriptor in (SOCKET, home.agent):
        if descriptor >= 0:
            poll.register(descriptor, select.POLLIN)
    if SOCKET not in {descriptor for descriptor, _ in poll.poll()}:
        return None
    _, descriptors, _, _ = socket.recv_fds(asks, 1, 1)
    if not descriptors:
        return None
    os.set_inheritable(descriptors[0], False)
    return descriptors[0]


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
