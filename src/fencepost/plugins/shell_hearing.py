"""What a supervisor hears while it waits: the agent's orders, the agent's death, signals, and the command's output.

The agent is dead when its process is. The end of the socket alone does not say so: a living agent can close it (a loop
that is torn down), and a forked child of a dead one can keep it open. So both are looked at; where the system cannot
say which processes live (no pidfd), the socket's end has to do.
"""

from __future__ import annotations

import os
import select
import time
from typing import TYPE_CHECKING

try:
    import _signal as signal  # type: ignore[import-not-found]
except ImportError:
    import signal

if TYPE_CHECKING:
    import socket

DYING = 1.0
"""Seconds from the end of the socket within which the agent's process is gone, if that was why it ended."""
HUNG_UP = b"K"
"""What the end of the socket orders if the agent lives."""


class Hearing:
    """See the module.

    Args:
        agent: a descriptor that is readable when the agent has died; below 0 where there is none.
    """

    def __init__(self, agent: int) -> None:
        self.agent_died = False
        self._signals = b""
        self._control: socket.socket
        self._agent = agent
        self._hung_up: float | None = None
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        self._poll = select.poll()
        for descriptor in (self._woken, agent):
            if descriptor >= 0:
                self._poll.register(descriptor, select.POLLIN)

    def attend(self, control: socket.socket) -> None:
        """From here on this is the socket to the agent."""
        control.setblocking(False)
        self._control = control
        self._poll.register(control.fileno(), select.POLLIN)

    @property
    def listened_to(self) -> bool:
        """Whether the agent can still be told anything."""
        return self._hung_up is None and not self.agent_died

    def also(self, descriptor: int) -> None:
        """Wake up for this one too."""
        self._poll.register(descriptor, select.POLLIN)

    def not_any_more(self, descriptor: int) -> None:
        """Do not."""
        self._poll.unregister(descriptor)

    def take_signal(self, number: int) -> bool:
        """Whether this signal came since one last asked about any."""
        signals, self._signals = self._signals, b""
        return number in signals

    def wait(self, seconds: float | None, *, to_send: bool = False) -> tuple[bytes, list[int]]:
        """Wait until something comes: the agent's orders, and the descriptors that are ready."""
        if self.listened_to:
            self._poll.modify(self._control.fileno(), select.POLLIN | (select.POLLOUT if to_send else 0))
        elif not self.agent_died:
            seconds = DYING if seconds is None else min(seconds, DYING)
        ready = [fd for fd, _ in self._poll.poll(None if seconds is None else seconds * 1000)]
        if self._woken in ready:
            self._signals += os.read(self._woken, 4096)
        orders = self._read(64, ready)
        if not orders and self._hung_up is not None and not self.agent_died and time.monotonic() > self._hung_up:
            orders = HUNG_UP
        return orders, ready

    def exactly(self, size: int) -> bytes:
        """So many bytes of the agent's; nothing if they do not come any more."""
        got = bytearray()
        while len(got) < size and self.listened_to:
            got += self._read(size - len(got), [fd for fd, _ in self._poll.poll()])
        return bytes(got) if len(got) == size else b""

    def _read(self, size: int, ready: list[int]) -> bytes:
        """What the agent says. Its last words are heard before its death is noticed: they may be `go`."""
        said = None
        if self._control.fileno() in ready and self._hung_up is None:
            try:
                said = self._control.recv(size)
            except BlockingIOError:
                said = None
            except OSError:
                said = b""
        if said:
            return said
        if said is not None:
            self._hang_up()
        if self._agent in ready:
            self._bury()
        return b""

    def _hang_up(self) -> None:
        self._hung_up = time.monotonic() + DYING
        self._poll.unregister(self._control.fileno())
        if self._agent < 0:
            self._bury()

    def _bury(self) -> None:
        if self._hung_up is None:
            self._poll.unregister(self._control.fileno())
        if self._agent >= 0:
            self._poll.unregister(self._agent)
        self.agent_died = True
