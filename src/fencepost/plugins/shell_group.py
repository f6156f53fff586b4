"""A command with all that it starts, from the agent's side: start, read, end, collect.

The other side is `shell_parent`, which says what it does when. From here it is driven by one pipe, the lifeline:
a `T` asks for SIGTERM, closing it for SIGKILL; and when this process dies, the kernel closes it for us.

Rules:
    1. `start` is called on the loop's thread: on Linux the death signal is bound to the thread that forked.
    2. Whoever started a group ends it: `kill` never waits and may be called at any time; `gone` waits for its effect.
       The end of the output says nothing about the command, which may have closed it and go on.
    3. A task of the group's own collects the process and closes the pipes to it, even when nobody waits any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import msgspec

PIECE = 65_536
"""Bytes that are read at a time."""
LAST_PIECES = 16
"""Pieces that are still read after the end, where something that could not be killed goes on writing."""
STUCK_AFTER = 5.0
"""Seconds after which a parent that does not end on SIGKILL's way is killed itself (a process in disk sleep)."""

_SCRIPT = Path(__file__).with_name("shell_parent.py")


class Exit(msgspec.Struct, frozen=True):
    """How a command ended by itself.

    Attributes:
        code: its exit code, or minus the number of the signal that ended it.
        left: whether something that it started still lived.
    """

    code: int
    left: bool


class Broken(msgspec.Struct, frozen=True):
    """It cannot be said how a command ended: why, as half a sentence, and whether it had started."""

    why: str
    started: bool


class CommandGroup:
    """One command in a session of its own that dies with this process. Made by `start`."""

    def __init__(self, process: subprocess.Popen[bytes], lifeline: int, output: int, status: int) -> None:
        self._process = process
        self._lifeline: int | None = lifeline
        self._output = output
        self._status = status
        self._pid: int | None = None
        loop = asyncio.get_running_loop()
        self.exited: asyncio.Future[Exit | Broken] = loop.create_future()
        """How the command ended. What it started may live on."""
        self._collected = loop.create_task(self._collect(), name="shell group")

    @classmethod
    def start(cls, argv: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> CommandGroup:
        """Start a command; stdin is empty, stdout and stderr are one stream.

        Args:
            argv: absolute path of the program, and its arguments.
            cwd: its working directory.
            environment: all of it.

        Raises:
            OSError: the process could not be made.
            ValueError: an argument holds what no command line can (a NUL, a lone surrogate).
        """
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            lifeline_end, lifeline = _pipe(theirs, ours)
            output, output_end = _pipe(ours, theirs)
            status, status_end = _pipe(ours, theirs)
            process = subprocess.Popen(  # noqa: S603 - running a command is what it is for
                [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid()), *argv],
                stdin=lifeline_end,
                stdout=output_end,
                stderr=status_end,
                cwd=cwd,
                env=dict(environment),
                start_new_session=True,
            )
            for end in (output, status, lifeline):
                os.set_blocking(end, False)
            group = cls(process, lifeline, output, status)
            ours.pop_all()
        return group

    # --- what it says -------------------------------------------------------------------------------------------

    async def pieces(self) -> AsyncIterator[bytes]:
        """The output as it comes, until nobody can write any more, or the group is gone."""
        late = 0
        while late < LAST_PIECES:
            try:
                piece = os.read(self._output, PIECE)
            except BlockingIOError:
                if self._collected.done():
                    return
                await _readable(self._output, self._collected)
                continue
            if not piece:
                return
            late += self._collected.done()
            yield piece

    # --- its end ------------------------------------------------------------------------------------------------

    def terminate(self) -> None:
        """Ask everything in it to end (SIGTERM)."""
        if self._lifeline is not None:
            with contextlib.suppress(OSError):  # the parent is gone already
                os.write(self._lifeline, b"T")

    def kill(self) -> None:
        """Have everything in it ended (SIGKILL). Idempotent; does not wait."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None

    async def gone(self, seconds: float) -> bool:
        """Whether nothing of it is left, waiting up to `seconds` for that."""
        await asyncio.wait({self._collected}, timeout=seconds)
        return self._collected.done()

    async def end(self, grace: float) -> None:
        """SIGTERM, up to `grace` seconds to comply, SIGKILL; returns when nothing is left."""
        if grace > 0 and not self._collected.done():
            self.terminate()
            await self.gone(grace)
        self.kill()
        if not await self.gone(STUCK_AFTER):
            self._process.kill()
            await self.gone(STUCK_AFTER)

    def close_output(self) -> None:
        """Give back the reading end. Idempotent. A command that goes on writing then gets SIGPIPE."""
        if self._output >= 0:
            os.close(self._output)
            self._output = -1

    # --- collecting ---------------------------------------------------------------------------------------------

    async def _collect(self) -> None:
        """Read the parent's report to its end, then collect the parent itself."""
        report = b""
        try:
            while True:
                try:
                    piece = os.read(self._status, PIECE)
                except BlockingIOError:
                    await _readable(self._status, None)
                    continue
                if not piece:
                    break
                report += piece
                self._understand(report)
            # Its last descriptor is closed, so it is past its last act and there is nothing left to be told by.
            while self._process.poll() is None:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        finally:
            self.kill()
            os.close(self._status)
            self._bury(report)

    def _understand(self, report: bytes) -> None:
        for line in report.decode("utf-8", "replace").split("\n")[:-1]:
            match line.split():
                case ["pid", pid]:
                    self._pid = int(pid)
                case ["exit", code, *left] if not self.exited.done():
                    self.exited.set_result(Exit(int(code), bool(left)))

    def _bury(self, report: bytes) -> None:
        """The parent is gone, or the loop is closing. Leave no zombie, and nothing of the command."""
        if self._process.returncode is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STUCK_AFTER)
        if self.exited.done():
            return
        if self._pid is None:
            last = report.decode("utf-8", "replace").strip().rpartition("\n")[2]
            self.exited.set_result(Broken(last or "no reason given", started=False))
            return
        with contextlib.suppress(OSError):  # it is as it should be: nobody is left
            os.killpg(self._pid, signal.SIGKILL)
        self.exited.set_result(Broken("the process that watched over the command was killed", started=True))


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose ends are closed with the stacks that own them."""
    read, write = os.pipe()
    reader.callback(os.close, read)
    writer.callback(os.close, write)
    return read, write


async def _readable(descriptor: int, over: asyncio.Task[None] | None) -> None:
    """Return when there is something to read, or the other end is closed, or `over` is done."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def wake(*_: object) -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, wake)
    if over is not None:
        over.add_done_callback(wake)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
        if over is not None:
            over.remove_done_callback(wake)
