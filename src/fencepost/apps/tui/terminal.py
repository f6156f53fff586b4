"""The terminal that the screen is drawn on: one that stands still, or is gone, must not stop the agent.

Rules:
    1. Nothing waits for the terminal: a thread of its own writes to it. What a slow one has no room for is left out,
       and drawn anew when there is room again.
    2. A terminal that is gone is noticed by whichever comes first: the signal, a write or read that fails, or a look
       at it once a second. It ends the agent in order, as the signal does.
    3. Whoever leaves at once leaves a terminal behind that can be used.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import termios
from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from fencepost.apps.cli.outlet import BOUND, Outlet

PATIENCE = 1.0
"""Seconds that the last bytes have to get out."""

LEAVE = b"\x1b[<u\x1b[?1000l\x1b[?1003l\x1b[?1006l\x1b[?1015l\x1b[?2004l\x1b[?1004l\x1b[?7h\x1b[?1049l\x1b[?25h"
"""Keyboard protocol, mouse, paste and focus reports off; lines wrap; the first screen; a cursor."""


class Terminal:
    """What is known of the terminal before the screen takes it over.

    Args:
        gone: called on the loop when it is not there any more.
    """

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone = gone
        self._told = False
        self._mode: list[Any] | None = None
        with contextlib.suppress(OSError, termios.error):  # not a terminal, for instance in a test
            self._mode = termios.tcgetattr(0)
        self.outlet: Outlet | None = None

    def restore(self) -> None:
        """Make it usable again, whatever state it is in. Never waits."""
        if self._mode is None:
            return
        with contextlib.suppress(OSError, termios.error):  # it is gone: there is nothing to restore
            os.set_blocking(2, False)
            os.write(2, LEAVE)
            os.set_blocking(2, True)  # the shell has the same open terminal
            termios.tcsetattr(0, termios.TCSANOW, self._mode)

    def there(self) -> bool:
        """Whether it is still there; if not, that is told."""
        try:
            termios.tcgetattr(0)
        except (OSError, termios.error):
            self.lost()
            return False
        return True

    def lost(self) -> None:
        """It is not there any more."""
        if not self._told:
            self._told = True
            self._gone()

    async def drained(self) -> None:
        """Wait until what was drawn is out, but not for long."""
        if self.outlet is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.outlet.drained(), PATIENCE)


def driver_for(terminal: Terminal) -> type[LinuxDriver]:
    """The class of what draws on `terminal`."""

    class Driver(LinuxDriver):
        """Textual's own, but for how bytes go out and how an end is noticed."""

        def __init__(self, app: App[Any], **options: Any) -> None:
            super().__init__(app, **options)
            self._loop_of_app = asyncio.get_running_loop()
            terminal.outlet = self._outlet = Outlet(sys.__stderr__.fileno() if sys.__stderr__ else 2, self._broken)
            self._behind = False

        def _broken(self, _error: OSError) -> None:
            terminal.lost()

        def write(self, data: str) -> None:
            """Draw. Never waits."""
            if self._behind:
                return
            if self._outlet.waiting > BOUND:
                self._behind = True
                self._loop_of_app.create_task(self._again(), name="draw anew")
                return
            self._outlet.put(data.encode(errors="replace"))

        async def _again(self) -> None:
            await self._outlet.drained()
            self._behind = False
            self._app.refresh(layout=True)

        def stop_application_mode(self) -> None:
            """Give the terminal back, whatever was left out before."""
            self._behind = False
            super().stop_application_mode()

        def _run_input_thread(self) -> None:
            try:
                self.run_input_thread()
            except OSError:  # a hung up terminal; anything else is a fault, and reported as one
                self._loop_of_app.call_soon_threadsafe(terminal.lost)

    return Driver
