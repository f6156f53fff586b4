"""Asking a person about a call, on the terminal or through a pipe.

The question goes to standard error, the answer comes as a line from standard input:

    y              yes, this once
    c, p, d, a     yes, always: for this call, the words of a command, a directory, the tool; what is offered is shown
    n [REASON]     no; the reason is told to the model

While nobody is asked nothing is read, and the loop never waits for a read. On a terminal, what was typed before the
question does not answer it; through a pipe it does.

End of input is no: the call is denied, and the turn cancelled, for nobody is there any more.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import termios

from fencepost.apps.cli.outlet import Outlet
from fencepost.apps.cli.plain import plain
from fencepost.apps.cli.stop import END_OF_INPUT, Stop
from fencepost.core import events as ev
from fencepost.plugins.approval import Question, Verdict

SHOWN = 2000
"""Characters of the arguments that are shown at most."""

KEYS: dict[ev.Scope, str] = {"call": "c", "prefix": "p", "directory": "d", "tool": "a"}
"""What is typed for each way to say "always"."""

_NO = re.compile(r"no?(?:[\s,:;.]+(.*))?", re.IGNORECASE | re.DOTALL)

UNANSWERED = Verdict(allowed=False, by="fencepost", reason="the turn was cancelled before there was an answer")


class Lines:
    """Lines of a descriptor, read when one is wanted.

    Args:
        fd: a terminal, a pipe or a file.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.terminal = os.isatty(fd)
        self._buffer = b""
        self._ended = False

    def forget(self) -> None:
        """Drop what was typed on a terminal so far."""
        if self.terminal:
            self._buffer = b""
            termios.tcflush(self._fd, termios.TCIFLUSH)

    async def line(self) -> str | None:
        """The next line without its end; None at the end of input."""
        while b"\n" not in self._buffer and not self._ended:
            await self._readable()
            try:
                data = os.read(self._fd, 4096)
            except OSError:
                data = b""  # the terminal hung up, or there is no standard input: the end of it
            self._ended = not data
            self._buffer += data
        if not self._buffer:
            return None
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode(errors="replace")

    async def _readable(self) -> None:
        loop = asyncio.get_running_loop()
        readable: asyncio.Future[None] = loop.create_future()
        try:
            loop.add_reader(self._fd, _wake, readable)
        except OSError:
            return  # a regular file cannot be waited for, and need not be
        try:
            await readable
        finally:
            loop.remove_reader(self._fd)


def _wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Asker:
    """Asks about one call at a time. Implements `plugins.approval.Ask`.

    Args:
        lines: where answers come from.
        out: where questions go.
        stop: ends a question that nobody will answer.
    """

    def __init__(self, lines: Lines, out: Outlet, stop: Stop) -> None:
        self._lines = lines
        self._out = out
        self._stop = stop
        self._one = asyncio.Lock()

    async def __call__(self, question: Question) -> Verdict:
        """Ask, and wait for the answer or for the command's end."""
        async with self._one:
            if self._stop.cause is not None:
                return UNANSWERED
            answer = asyncio.create_task(self._answer(question))
            stopped = asyncio.create_task(self._stop.asked.wait())
            try:
                await asyncio.wait({answer, stopped}, return_when=asyncio.FIRST_COMPLETED)
                if answer.done():
                    return answer.result()
                return UNANSWERED
            finally:
                answer.cancel()
                stopped.cancel()

    async def _answer(self, question: Question) -> Verdict:
        self._lines.forget()
        self._out.put(wording(question).encode(errors="replace"))
        while True:
            line = await self._lines.line()
            if line is None:
                self._stop.request(END_OF_INPUT)
                return Verdict(allowed=False, reason="standard input ended")
            if not self._lines.terminal:
                self._out.put(f"{plain(line)}\n".encode(errors="replace"))  # what a terminal would have shown
            verdict = answer(line, question)
            if verdict is not None:
                return verdict
            self._out.put(f"  please answer {_listed(question)}: ".encode())


def answer(line: str, question: Question) -> Verdict | None:
    """What a line says to a question; None if it does not answer it."""
    match = _NO.fullmatch(line.strip())
    if match is not None:
        return Verdict(allowed=False, reason=match[1] or "")
    word = line.strip().lower()
    if word in {"y", "yes"}:
        return Verdict(allowed=True)
    wanted = "a" if word == "always" else word
    return next((choice.yes() for choice in question.choices if KEYS[choice.scope] == wanted), None)


def wording(question: Question) -> str:
    """The question as a person reads it."""
    arguments = plain(json.dumps(question.arguments, ensure_ascii=False, indent=2))
    cut = f"\n… {len(arguments) - SHOWN} more characters" if len(arguments) > SHOWN else ""
    shown = (arguments[:SHOWN] + cut).replace("\n", "\n    ")
    always = "".join(f"  {KEYS[one.scope]}  yes, and always {plain(one.text)}\n" for one in question.choices)
    return (
        f"\napprove {plain(question.tool)}? {plain(question.reason)}\n    {shown}\n"
        f"  y  yes, this once\n{always}  n  no; what you write behind it is told to the model\n"
        f'  ("always" is for this session) {_listed(question)}? '
    )


def _listed(question: Question) -> str:
    return f"{', '.join(['y', *(KEYS[choice.scope] for choice in question.choices)])} or n"
