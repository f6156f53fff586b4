"""The `shell` tool: one command line, run to its end.

    shell       bash where it is installed, because models write bash; /bin/sh elsewhere. The description names it.
    place       the session's working directory, a session and process group of its own, nothing on stdin
    output      stdout and stderr as one stream: to people as it comes, bounded to the model, all of it in a file
    end         whatever the command started ends with the call, also in the background: a result means that
                nothing of the call still acts. Who needs a server running starts it outside.
    crash       when this process is killed, the command runs on to its end (`finish`) or is ended too (`end`); either
                way a receipt says how it ended, and `settle` reads it

    exit code 0                         its output
    another code, or a signal           an error, code `EXIT`, which names code or signal
    time ran out, turn was cancelled    everything is ended, then `unknown`: nobody can say how far it got
    no process, or no receipt           an error, code `NOT_RUN`: without a durable started record nothing is let go

The command finds its call in FENCEPOST_CALL_ID and FENCEPOST_SESSION_ID: the keys for whatever it acts on.

What this module refuses to be: a sandbox. The command may do what this process may do.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import os
import shutil
import signal
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fencepost.core.events import ToolSpec
from fencepost.errors import UsageError
from fencepost.plugins import shell_alive as alive
from fencepost.plugins.shell_group import START_WITHIN, STUCK_AFTER, CommandGroup, Ready, Refused
from fencepost.plugins.shell_launch import LAUNCHER
from fencepost.plugins.shell_output import Printed
from fencepost.plugins.shell_receipts import DIRECTORY, Done, OnCrash, attempts, output_of
from fencepost.plugins.shell_reply import EXIT, NOT_RUN, reply_of
from fencepost.plugins.shell_settle import settle, tidy
from fencepost.runtime.replies import NotStarted
from fencepost.runtime.schema import parameters_of
from fencepost.runtime.tools import CallContext, Tool, ToolReply

__all__ = ["EXIT", "NOT_RUN", "ShellRules", "shell_tool"]

TIMEOUT = 120.0
TIMEOUT_LIMIT = 3600.0
"""Seconds: the default for one command, and the most that the model may ask for."""


class ShellRules(msgspec.Struct, frozen=True):
    """How commands are run and ended. All times in seconds.

    Attributes:
        shell: absolute path of the shell; found if empty.
        grace: from SIGTERM to SIGKILL when time ran out.
        short_grace: the same when someone waits: the turn was cancelled, or the command exited and left others.
        linger: how long those others may take to end by themselves before that.
        on_crash: what becomes of a command when this process is killed: it runs to its end, or ends too.
    """

    shell: str = ""
    grace: float = 2.0
    short_grace: float = 0.3
    linger: float = 0.2
    on_crash: OnCrash = "finish"


DEFAULT_RULES = ShellRules()


def shell_tool(
    *,
    timeout_default: float = TIMEOUT,
    timeout_limit: float = TIMEOUT_LIMIT,
    rules: ShellRules = DEFAULT_RULES,
) -> Tool:
    """The shell tool.

    Args:
        timeout_default: seconds for one command, unless the model asks for another time.
        timeout_limit: seconds that the model may ask for at most.
        rules: how commands are run and ended.

    Raises:
        UsageError: the default timeout is not above zero, or above the limit.
    """
    if not 0 < timeout_default <= timeout_limit:
        raise UsageError(
            f"shell: the default timeout is {timeout_default:g} s and the limit {timeout_limit:g} s",
            next_act="Choose a default above zero and not above the limit",
        )
    shell = rules.shell or _find_shell()

    async def body(context: CallContext, arguments: dict[str, Any]) -> ToolReply:
        asked = arguments.get("timeout")
        timeout = timeout_default if asked is None else float(asked)
        return await _Run(context, rules, [shell, "-c", arguments["command"]], timeout).reply()

    spec = _spec(shell, timeout_default, timeout_limit)
    return Tool(spec=spec, body=body, effect="write", settle=settle, tidy=tidy)


def _find_shell() -> str:
    found = shutil.which("bash")
    return str(Path(found).absolute()) if found else "/bin/sh"


def _spec(shell: str, timeout: float, limit: float) -> ToolSpec:
    seconds = Annotated[float, Meta(gt=0, le=limit, description=f"seconds until it is ended; {timeout:g} if not given")]
    arguments = msgspec.defstruct(
        "shell_arguments",
        [
            ("command", Annotated[str, Meta(description="the command line")]),
            ("timeout", seconds | None, None),
        ],
        kw_only=True,
        forbid_unknown_fields=True,
    )
    text = (
        f"Run a command line with {Path(shell).name} in the working directory. Gives stdout and stderr as one text, "
        "cut in the middle if long, and the exit code if it is not 0. Nothing can be typed into it. Processes that "
        "it leaves in the background are ended when it returns."
    )
    return ToolSpec("shell", text, parameters_of(arguments))


class _Run:
    """One call."""

    def __init__(self, context: CallContext, rules: ShellRules, argv: list[str], timeout: float) -> None:
        self._context = context
        self._rules = rules
        self._argv = argv
        self._timeout = timeout
        self._path = output_of(context.files, context.call_id)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def reply(self) -> ToolReply:
        try:
            order = self._order()
            said = await self._once(order)
            # A launcher that was killed takes a supervisor that stood by along. Nothing was let go.
            said = said if said is not None else await self._once(order)
        except (OSError, ValueError) as error:
            return self._not_run(error)
        return said if isinstance(said, ToolReply) else self._not_run(said)

    async def _once(self, order: dict[str, Any]) -> ToolReply | Refused | None:
        """Run it; None if there was no supervisor that would."""
        group = await CommandGroup.order(LAUNCHER, order, self._hear)
        try:
            ready = await self._ready(group)
            if isinstance(ready, Ready):
                group.go()
                return await self._ended(group, ready)
            late = Refused(0, "the process that starts commands does not answer", "process")
            return ready or (None if group.done.done() else late)
        except asyncio.CancelledError:
            await group.end()
            raise
        finally:
            group.close()

    def _order(self) -> dict[str, Any]:
        """What the supervisor has to know. Bytes travel as characters of the same number."""
        context, rules = self._context, self._rules
        ids = {"FENCEPOST_CALL_ID": context.call_id, "FENCEPOST_SESSION_ID": context.session_id}
        environment = {_bytes(name): _bytes(text) for name, text in {**os.environ, **ids}.items()}
        return {
            "call_id": context.call_id,
            "session_id": context.session_id,
            "argv": [_bytes(text) for text in self._argv],
            "environment": environment,
            "cwd": _bytes(str(context.cwd)),
            "files": _bytes(str(context.files.absolute())),
            "timeout": self._timeout,
            "grace": rules.grace,
            "short_grace": rules.short_grace,
            "linger": rules.linger,
            "on_crash": rules.on_crash,
        }

    def _hear(self, piece: bytes) -> None:
        text = self._decoder.decode(piece)
        if text:
            self._context.progress(text)

    async def _ready(self, group: CommandGroup) -> Ready | Refused | None:
        """Wait for the started record, and look at the cancel signal again."""
        await self._first(group.ready, START_WITHIN)
        if self._context.cancel.cancelled:
            raise NotStarted("the turn was cancelled before the command was let go")
        return group.ready.result() if group.ready.done() else None

    async def _ended(self, group: CommandGroup, ready: Ready) -> ToolReply:
        rules = self._rules
        patience = self._timeout + rules.grace + rules.linger + rules.short_grace + STUCK_AFTER
        await self._first(group.done, patience)
        if not group.done.done():
            if self._context.cancel.cancelled:
                group.cancel()
                await group.over(rules.short_grace + STUCK_AFTER)
            await group.end()
        done = group.done.result() if group.done.done() else None
        if done is None:
            return self._left_alone(ready)
        return self._reply_of(done)

    async def _first(self, future: asyncio.Future[Any], timeout: float) -> None:
        """Wait for a future, the cancel signal or the time."""
        cancelled = self._context.cancel.waiter()
        try:
            await asyncio.wait({future, cancelled}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()

    def _reply_of(self, done: Done) -> ToolReply:
        if done.outcome == "refused":
            return self._not_run(OSError(done.errno, done.why))
        return reply_of(done, done.printed(self._path))

    def _left_alone(self, ready: Ready) -> ToolReply:
        """The supervisor was killed, and the command with it. What that had in the background is ended here."""
        printed = ""
        try:
            attempt = attempts(self._context.files, self._context.call_id)[-1]
            for process in alive.members(attempt.started):
                alive.signal_to(process, signal.SIGKILL)
            if attempt.done is not None:  # it was killed behind its last act
                return self._reply_of(attempt.done)
            printed = Printed.in_file(self._path, ready.offset).at_length
        except (OSError, IndexError, msgspec.DecodeError):
            pass  # what cannot be read cannot be told
        return ToolReply("the process that watched over the command was killed", unknown=True, detail=printed)

    def _not_run(self, cause: OSError | ValueError | Refused | None) -> ToolReply:
        return ToolReply(f"The command could not be started: {self._why_not(cause)}.", is_error=True, code=NOT_RUN)

    def _why_not(self, cause: OSError | ValueError | Refused | None) -> str:
        if cause is None:
            return "the process that starts commands was killed"
        if isinstance(cause, ValueError):
            return "it holds a character that no command line can hold (NUL, or half of a surrogate pair)"
        if isinstance(cause, Refused) and cause.about == "receipt":
            return f"its receipt could not be written to {self._context.files / DIRECTORY}: {cause.why}"
        if cause.errno == errno.E2BIG:
            size = len(self._argv[-1])
            return f"its {size} characters are too long for a command line; write them to a file and run that"
        if not self._context.cwd.is_dir():
            return f"the working directory {self._context.cwd} does not exist"
        return cause.why if isinstance(cause, Refused) else str(cause)


def _bytes(text: str) -> str:
    """Text as the system takes it, in a form that JSON carries.

    Raises:
        ValueError: the system cannot take it.
    """
    data = os.fsencode(text)
    if b"\0" in data:
        raise ValueError("a NUL character")
    return data.decode("latin-1")
