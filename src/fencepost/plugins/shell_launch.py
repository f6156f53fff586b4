"""Supervisors for commands, from the agent's side: one launcher for the process, started when it is first needed.

A launcher that was killed is replaced at the next need; the supervisors that it had forked are not touched by its end.
A forked child of this process gets a launcher of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import sys
import threading
from pathlib import Path

ABOVE = 10
"""Descriptors from here on are free of the places that the launcher wants filled."""

_PACKAGE = Path(__file__).parent.parent
_START = (
    "import sys; package = type(sys)('fencepost'); package.__path__ = [sys.argv[1]]; "
    "sys.modules['fencepost'] = package; from fencepost.plugins.shell_launcher import main; main()"
)
"""Imports the launcher without what the package itself imports."""


class Launcher:
    """The launcher of this process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._pid = 0
        self._knows_forks = False

    def supervisor(self) -> socket.socket:
        """A socket to a new supervisor, which waits for its order. Whoever gets it closes it.

        Raises:
            OSError: no launcher can be started.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs, self._guard:
                if not self._hand_over(theirs):
                    self._start()
                    if not self._hand_over(theirs):
                        raise OSError("the process that starts commands does not answer")
        except BaseException:
            ours.close()
            raise
        return ours

    def _hand_over(self, descriptor: socket.socket) -> bool:
        """False if there is no launcher that would take it."""
        if self._socket is None:
            return False
        try:
            socket.send_fds(self._socket, [b"+"], [descriptor.fileno()])
        except OSError:  # it was killed, or stopped long ago and its queue is full
            self._bury()
            return False
        return True

    def _bury(self) -> None:
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        with contextlib.suppress(OSError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)

    def _start(self) -> None:
        if not self._knows_forks:  # at the first use and not at import, which has no effects
            self._knows_forks = True
            os.register_at_fork(after_in_child=self._forget)
        ours, theirs = socket.socketpair()
        with theirs:
            high = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, ABOVE)
        try:
            self._pid = _spawn(high)
        except BaseException:
            ours.close()
            raise
        finally:
            os.close(high)
        ours.setblocking(False)
        self._socket = ours

    def _forget(self) -> None:
        """In a forked child: the launcher is the parent's."""
        self._guard = threading.Lock()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _spawn(descriptor: int) -> int:
    """Start a launcher that has `descriptor` as 3 and nothing else; returns its process id."""
    command = [sys.executable, "-I", "-S", "-c", _START, str(_PACKAGE), str(os.getpid())]
    files = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in range(3)]
    places = (*files, (os.POSIX_SPAWN_DUP2, descriptor, 3))
    try:
        return os.posix_spawn(command[0], command, os.environ, file_actions=places, setsid=True, setsigmask=())
    except NotImplementedError:  # a system without it; then the launcher shares the agent's session
        return os.posix_spawn(command[0], command, os.environ, file_actions=places, setsigmask=())


LAUNCHER = Launcher()
"""One for the process: what it forks is fast because it is there already."""
