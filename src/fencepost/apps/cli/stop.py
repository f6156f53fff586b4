"""Why a command that owns a session was asked to end, and how it then ends.

    cause                          the turn's cancel says   then                           exit status
    SIGINT                         user                     close in order                 130
    SIGTERM, SIGHUP                closing                  close in order, within BOUND   143, 129
    standard input ended           end of input             close in order, within BOUND   1
    nobody reads standard output   closing                  close in order, within BOUND   141

Rules:
    1. The first cause wins. A second signal, whichever it is, leaves at once.
    2. Closing in order means: nothing new starts, the turn is cancelled and writes its real closers, all is flushed.
    3. The bound holds even where the loop stands still: it is kept by a thread.
    4. A signal that was ignored when the process started (`nohup`) stays ignored.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn

import msgspec

from fencepost.apps.cli import exits
from fencepost.runtime.cancel import CLOSING, USER
from fencepost.runtime.session import Session

BOUND = 4.5
"""Seconds until a bounded close is given up; with the start and end of a process it stays under 5."""


class Cause(msgspec.Struct, frozen=True):
    """Why the command ends early.

    Attributes:
        status: the exit status.
        reason: the reason of the turn's cancel.
        bounded: whether closing in order is given up after `BOUND`.
    """

    status: int
    reason: str
    bounded: bool = True


INTERRUPT = Cause(exits.INTERRUPTED, USER, bounded=False)
TERMINATE = Cause(exits.TERMINATED, CLOSING)
HANG_UP = Cause(exits.HUNG_UP, CLOSING)
END_OF_INPUT = Cause(exits.OTHERWISE, "end of input")
NO_READER = Cause(exits.NO_READER, CLOSING)
OUTPUT_FAILED = Cause(exits.OUTPUT, CLOSING)

SIGNALS = {signal.SIGINT: INTERRUPT, signal.SIGTERM: TERMINATE, signal.SIGHUP: HANG_UP}


class Stop:
    """See the module. Made inside a running event loop.

    Args:
        restore: called before the process is left at once, by whatever thread does it: the terminal's last chance.

    Attributes:
        cause: why, or None while nobody asked.
        asked: set when somebody did.
    """

    def __init__(self, restore: Callable[[], None] = lambda: None) -> None:
        self.cause: Cause | None = None
        self._restore = restore
        self.asked = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._session: Session | None = None
        self._closing: asyncio.Task[None] | None = None
        self._signalled = False

    def __repr__(self) -> str:
        return f"<Stop {self.cause.reason if self.cause else 'not asked'}>"

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals for the length of the block; a process that leaves it has closed in order."""
        before = {number: signal.getsignal(number) for number in SIGNALS}
        taken = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
        for number in taken:
            # The loop is woken by a byte that no wait can miss; the handler behind it runs even where the loop cannot.
            self._loop.add_signal_handler(number, self.request, SIGNALS[number])
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number in taken:
                self._loop.remove_signal_handler(number)
                signal.signal(number, before[number])

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the shape of a signal handler
        if self._signalled:
            self.at_once(128 + number)
        self._signalled = True
        self._keep_bound(SIGNALS[signal.Signals(number)])

    def at_once(self, status: int) -> NoReturn:
        """Leave without closing anything."""
        self._restore()
        os._exit(status)

    def request(self, cause: Cause) -> None:
        """End because of `cause`. Called on the loop; only the first cause counts."""
        if self.cause is not None:
            return
        self.cause = cause
        if cause not in SIGNALS.values():
            self._keep_bound(cause)
        self.asked.set()
        self._close()

    def output_failed(self, error: OSError) -> None:
        """Standard output cannot be written."""
        self.request(output_failure(error))

    def attach(self, session: Session) -> None:
        """Close this session when asked; at once if that was before."""
        self._session = session
        self._close()

    def _close(self) -> None:
        if self.cause is None or self._session is None:
            return
        self._session.cancel_soon(self.cause.reason)
        self._closing = asyncio.create_task(self._session.close(), name="close because asked to end")

    def _keep_bound(self, cause: Cause) -> None:
        if cause.bounded:
            timer = threading.Timer(BOUND, self._leave, (cause.status,))
            timer.daemon = True
            timer.start()

    def _leave(self, status: int) -> NoReturn:
        self._restore()
        with contextlib.suppress(OSError):  # nobody may be there to read it; leaving matters more
            os.set_blocking(2, False)
            os.write(2, b"fencepost: error: closing in order took too long; left as it is\n")
        os._exit(status)

    async def closed(self) -> None:
        """Return when somebody asked, and the attached session is closed. What failed then is the closer's to say."""
        await self.asked.wait()
        if self._closing is not None:
            await asyncio.wait({self._closing})
            self._closing.exception()  # looked at; whoever closes the runtime gets it again


def output_failure(error: OSError) -> Cause:
    """What it means that standard output cannot be written."""
    return NO_READER if error.errno in {errno.EPIPE, errno.EBADF} else OUTPUT_FAILED
