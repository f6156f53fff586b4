"""A process of its own that does what it is told, one line at a time: `python -m tests.stores.postgres.child URL`.

    create ID | own ID | takeover ID | append COUNT | fork COUNT | release | sessions | quit

Each line is answered by one: `ok …`, or `error CODE MESSAGE`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from typing import Self

from tests.stores.sample import header, notes

from fencepost.errors import FencepostError
from fencepost.stores.postgres import PostgresStore
from fencepost.stores.postgres.handle import PostgresHandle


class Actor:
    """Holds at most one session."""

    def __init__(self, url: str) -> None:
        self.store = PostgresStore(url)
        self.handle: PostgresHandle | None = None
        self.next_seq = 0

    async def act(self, word: str, argument: str) -> str:
        """Do one thing; returns what to say about it."""
        if word == "append":
            assert self.handle is not None
            for _ in range(int(argument)):
                await self.handle.append(notes(self.next_seq, 1, f"by {os.getpid()}"), self.next_seq)
                self.next_seq += 1
            return str(self.next_seq)
        if word == "fork":
            return await asyncio.to_thread(self.fork, int(argument))
        if word == "release":
            assert self.handle is not None
            await self.handle.release()
            return ""
        if word == "sessions":
            return " ".join(sorted(await self.store.sessions()))
        if word == "create":
            self.handle = await self.store.create(header(argument))
        else:
            take = self.store.take_over if word == "takeover" else self.store.own
            self.handle = await take(argument)
        self.next_seq = self.handle.stored.watermark + 1
        return str(self.next_seq)

    def fork(self, count: int) -> str:
        """Append in a forked child, and list there; returns what came of it."""
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.write(writer, asyncio.run(self._as_a_child(count)).encode())
            os._exit(0)
        os.waitpid(pid, 0)
        os.close(writer)
        with open(reader, encoding="utf-8") as answer:
            return answer.read()

    async def _as_a_child(self, count: int) -> str:
        handle, before = self.handle, self.next_seq
        assert handle is not None
        try:
            await handle.append(notes(before, count), before)
        except FencepostError as error:
            code = error.code
        else:
            code = "landed"
        stored = await self.store.read(handle.stored.session)
        await handle.release()
        await self.store.close()
        return f"{code} {stored.watermark + 1}"


async def serve(url: str) -> None:
    """Answer each line until `quit`."""
    actor = Actor(url)
    while (line := await asyncio.to_thread(sys.stdin.readline)).strip() not in {"", "quit"}:
        word, _, argument = line.strip().partition(" ")
        try:
            print("ok", await actor.act(word, argument), flush=True)
        except FencepostError as error:
            print("error", error.code, error, flush=True)
    await actor.store.close()


class Child:
    """Such a process, seen from the test."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "tests.stores.postgres.child", url]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    def tell(self, line: str) -> None:
        """Say something, and do not wait."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        """Wait for an answer."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        """Say something, and wait for the answer."""
        self.tell(line)
        return self.hear()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal; after a stop, wait until it has stopped."""
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            os.waitpid(self.pid, os.WUNTRACED)

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
