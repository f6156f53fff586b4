"""The process of one MCP server, from the agent's side: start, pipes, end. The other side is `mcp_parent`.

Rules:
    1. `start` is called on the loop's thread: on Linux the death signal is bound to the thread that forked.
    2. Whoever started a child ends it; `end` may be called more than once, and leaves nothing of it.
    3. What it says on stderr is read all the time, or it would stand still, and only its last words are kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

GRACE = 2.0
"""Seconds that a server gets to exit by itself once its stdin is closed."""
TERM_GRACE = 1.0
"""Seconds from SIGTERM to SIGKILL."""
STUCK_AFTER = 5.0
"""Seconds after which a parent that does not end on SIGKILL's way is killed itself (a process in disk sleep)."""
LAST_WORDS = 2_000
"""Bytes of stderr that are kept."""
PIECE = 65_536

_SCRIPT = Path(__file__).with_name("mcp_parent.py")


class Child:
    """See the module. Made by `start`.

    Attributes:
        pid: of the server itself.
        stdin: the writing end, which does not block; -1 once it is closed.
        stdout: what it says.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        lifeline: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        stdout: tuple[asyncio.StreamReader, asyncio.ReadTransport],
        stderr: tuple[asyncio.StreamReader, asyncio.ReadTransport],
    ) -> None:
        assert process.stdin is not None
        self.pid = 0
        self.stdin = process.stdin.fileno()
        self.stdout = stdout[0]
        self._process = process
        self._heard, self._lifeline = lifeline
        self._pipes = (stdout[1], stderr[1])
        self._words = b""
        self._end = ""
        loop = asyncio.get_running_loop()
        self._known = loop.create_future()
        self._tasks = (
            loop.create_task(self._listen(), name="mcp server"),
            loop.create_task(self._overhear(stderr[0]), name="mcp server's stderr"),
        )

    @classmethod
    async def start(cls, argv: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Child:
        """Start a server; returns when it runs.

        Args:
            argv: its command line; the program is looked for in the PATH of `environment`.
            cwd: its working directory.
            environment: all of it.

        Raises:
            OSError: it could not be started.
            ValueError: its command line holds what none can (a NUL).
        """
        ours, theirs = socket.socketpair()
        with contextlib.ExitStack() as undo, theirs:
            undo.callback(ours.close)
            process = subprocess.Popen(  # noqa: ASYNC220, S603 - rule 1; and starting a server is what it is for
                [sys.executable, "-I", "-S", str(_SCRIPT), str(os.getpid()), str(theirs.fileno()), *argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=cwd,
                env=dict(environment),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
            undo.callback(process.wait)
            undo.callback(process.kill)
            child = await cls._connected(process, ours)
            undo.pop_all()
        try:
            await child.running()
        except BaseException:
            await child.end(0)
            raise
        return child

    @classmethod
    async def _connected(cls, process: subprocess.Popen[bytes], ours: socket.socket) -> Child:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stdin.fileno(), False)
        lifeline = await asyncio.open_connection(sock=ours)
        return cls(process, lifeline, await _reader(process.stdout), await _reader(process.stderr))

    async def running(self) -> None:
        """Return when it runs.

        Raises:
            OSError: it could not be started.
        """
        await asyncio.shield(self._known)

    # --- what it says -------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Hear the parent to its end, then collect it."""
        try:
            while line := await self._heard.readline():
                self._understand(line.decode("utf-8", "replace").split(maxsplit=1))
        except ConnectionError:
            pass  # it was killed with something unread: the same as its end
        finally:
            await self._bury()

    def _understand(self, words: list[str]) -> None:
        match words:
            case ["pid", pid]:
                self.pid = int(pid)
                if not self._known.done():
                    self._known.set_result(None)
            case ["failed", why]:
                self._end = f"it could not be started: {why.strip()}"
                if not self._known.done():
                    self._known.set_exception(OSError(why.strip()))
            case ["exit", code] if not self._end:
                self._end = _named(code.strip())

    async def _bury(self) -> None:
        self._lifeline.close()
        # The parent's last descriptor is closed, so it is past its last act; nothing tells us when it is gone.
        while self._process.poll() is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        self._end = self._end or "the process that watched over it was killed"
        if not self._known.done():
            self._known.set_exception(OSError(self._end))
        self._known.exception()  # looked at: perhaps nobody waits

    async def _overhear(self, stderr: asyncio.StreamReader) -> None:
        while piece := await stderr.read(PIECE):
            self._words = (self._words + piece)[-LAST_WORDS:]

    @property
    def story(self) -> str:
        """How it ended and what it said last, as half a sentence; empty while it lives."""
        last = self._words.decode("utf-8", "replace").strip()
        return f"{self._end}; it said: {last}" if self._end and last else self._end

    # --- its end ------------------------------------------------------------------------------------------------

    def close_stdin(self) -> None:
        """Tell it that nothing more comes. Idempotent."""
        if self.stdin >= 0:
            assert self._process.stdin is not None
            self._process.stdin.close()
            self.stdin = -1

    async def end(self, grace: float = GRACE) -> None:
        """Close its stdin, wait `grace` seconds for it to exit, then SIGTERM, then SIGKILL."""
        try:
            self.close_stdin()
            if not await self._gone(grace) and grace:
                with contextlib.suppress(ConnectionError):
                    self._lifeline.write(b"T")
                await self._gone(TERM_GRACE)
        finally:
            self._lifeline.close()
            if not await self._gone(STUCK_AFTER):
                self._process.kill()
                await self._gone(STUCK_AFTER)
            # What says something after its end is out of reach (it belongs to somebody else) and not waited for.
            for pipe in self._pipes:
                pipe.close()
            self._tasks[1].cancel()

    async def _gone(self, seconds: float) -> bool:
        await asyncio.wait({self._tasks[0]}, timeout=seconds)
        return self._tasks[0].done()


async def _reader(pipe: IO[bytes]) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


def _named(code: str) -> str:
    """How a process ended, by its exit code or minus the signal's number."""
    if not code.startswith("-"):
        return f"it exited with code {code}" if code != "None" else "it was ended"
    try:
        return f"it was killed by {signal.Signals(-int(code)).name}"
    except ValueError:
        return f"it was killed by signal {code[1:]}"
