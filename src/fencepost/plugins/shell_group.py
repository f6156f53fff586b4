"""A command with all that it starts, from the agent's side: order it, let it go, hear it, end it.

The other side is `shell_supervisor`, which says who tells whom what. Here is nothing that decides how a command ends:
the supervisor does, so that it ends in the same way when nobody is here any more.

Rules:
    1. The command starts after `go` and never before.
    2. Whoever opened a group closes it. `close` never waits, and has what still lives ended (SIGKILL).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.plugins.shell_launch import Launcher
from fencepost.plugins.shell_receipts import Done

STUCK_AFTER = 5.0
"""Seconds after which a supervisor that does not end on SIGKILL's way is killed itself (a process in disk sleep)."""
START_WITHIN = 30.0
"""Seconds within which a supervisor has to be ready to let its command go. A started record may meet a busy disk."""


class Ready(msgspec.Struct, frozen=True):
    """The command is held, and its started record is durable.

    Attributes:
        pid: the supervisor's.
        command: the command's.
        offset: where in the output file its output begins.
    """

    pid: int
    command: int
    offset: int


class Refused(msgspec.Struct, frozen=True):
    """The command was not even held, and nothing was started.

    Attributes:
        errno: the system's error number; 0 for none.
        why: in words.
        about: what failed: the `process`, or its `receipt`.
    """

    errno: int
    why: str
    about: str


class CommandGroup:
    """One command and its supervisor. Made by `order`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[bytes], None]
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._hear = hear
        self._closed = False
        loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[Ready | Refused | None] = loop.create_future()
        """Whether it can be let go; None if the supervisor is gone."""
        self.done: asyncio.Future[Done | None] = loop.create_future()
        """How it ended; None if the supervisor was killed. Then nobody knows, and something may live on."""
        self._listening = loop.create_task(self._listen(), name="shell group")

    @classmethod
    async def order(cls, launcher: Launcher, order: dict[str, Any], hear: Callable[[bytes], None]) -> CommandGroup:
        """Have a command held.

        Args:
            launcher: makes the supervisor.
            order: what `shell_supervisor` wants to know.
            hear: gets the output, piece by piece, on the loop. What it raises ends up in `done`.

        Raises:
            OSError: there is no supervisor to be had.
        """
        text = msgspec.json.encode(order)
        control = launcher.supervisor()
        try:
            reader, writer = await asyncio.open_unix_connection(sock=control)
        except BaseException:
            control.close()
            raise
        group = cls(reader, writer, hear)
        writer.write(len(text).to_bytes(4, "big") + text)
        return group

    # --- what it is told ----------------------------------------------------------------------------------------

    def go(self) -> None:
        """Let it start."""
        self._writer.write(b"G")

    def cancel(self) -> None:
        """Have everything in it ended: SIGTERM, an instant of grace, SIGKILL. Before `go`: nothing is started."""
        self._writer.write(b"C")

    def close(self) -> None:
        """Have everything in it ended (SIGKILL), and hear no more. Idempotent; does not wait."""
        self._closed = True
        if not self.done.done():
            self._writer.write(b"K")
            self._listening.cancel()
        self._writer.close()

    async def end(self) -> None:
        """Return when nothing of it lives any more."""
        if self.done.done():
            return
        self._writer.write(b"K")
        if not await self.over(STUCK_AFTER):
            self._kill_supervisor()
            await self.over(STUCK_AFTER)

    async def over(self, seconds: float | None) -> bool:
        """Whether it is over, waiting up to `seconds` for that."""
        await asyncio.wait({self.done}, timeout=seconds)
        return self.done.done()

    def _kill_supervisor(self) -> None:
        """As long as its end of the socket is open it lives, so the process id is its own."""
        ready = self.ready.result() if self.ready.done() and not self.ready.cancelled() else None
        if isinstance(ready, Ready) and not self._reader.at_eof():
            with contextlib.suppress(OSError):
                os.kill(ready.pid, signal.SIGKILL)

    # --- what it says -------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        try:
            await self._frames()
        except asyncio.CancelledError:
            if self._closed:
                raise
            # The loop is ending with all of its tasks. What this one hears decides whether the others may.
            self._writer.write(b"K")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * STUCK_AFTER):
                    await self._frames()
        except Exception as error:  # noqa: BLE001 - whoever hears the output broke; whoever waits is told
            self.done.set_exception(error)
        finally:
            for future in (self.ready, self.done):
                if not future.done():
                    future.set_result(None)

    async def _frames(self) -> None:
        """Hear the supervisor to its end."""
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):  # it is gone; the futures say how far it came
            while not self.done.done():
                kind = await self._reader.readexactly(1)
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                self._understand(kind, await self._reader.readexactly(size))

    def _understand(self, kind: bytes, text: bytes) -> None:
        match kind:
            case b"o":
                self._hear(text)
            case b"r":
                self.ready.set_result(msgspec.json.decode(text, type=Ready))
            case b"x":
                self.ready.set_result(msgspec.json.decode(text, type=Refused))
            case b"d":
                self.done.set_result(msgspec.json.decode(text, type=Done))
