"""The `shell` tool: one command line, run to its end.

    shell       bash where it is installed, because models write bash; /bin/sh elsewhere. The description names it.
    place       the session's working directory, a session and process group of its own, nothing on stdin
    output      stdout and stderr as one stream: to people as it comes, bounded to the model, all of it in a file
    end         whatever the command started ends with the call, also in the background: a result means that
                nothing of the call still acts. Who needs a server running starts it outside.
    crash       when this process is killed, the command and all that it started are killed (see `shell_parent`)

    exit code 0                         its output
    another code, or a signal           an error, code `EXIT`, which names code or signal
    time ran out, turn was cancelled    everything is ended, then `unknown`: nobody can say how far it got

The command finds its call in FENCEPOST_CALL_ID and FENCEPOST_SESSION_ID: the keys for whatever it acts on.

What this module refuses to be: a sandbox. The command may do what this process may do.
"""

from __future__ import annotations

import asyncio
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
from fencepost.plugins.shell_group import STUCK_AFTER, Broken, CommandGroup, Exit
from fencepost.plugins.shell_output import Transcript
from fencepost.runtime.schema import parameters_of
from fencepost.runtime.tools import CallContext, Tool, ToolReply

EXIT = "EXIT"
NOT_RUN = "NOT_RUN"
"""Codes of error results: the command ended badly; it could not be started."""

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
    """

    shell: str = ""
    grace: float = 2.0
    short_grace: float = 0.3
    linger: float = 0.2


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
        return await _Run(context, rules).reply([shell, "-c", arguments["command"]], timeout)

    return Tool(spec=_spec(shell, timeout_default, timeout_limit), body=body, effect="write")


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


class _Stopped(msgspec.Struct, frozen=True):
    """It did not end by itself: why, as half a sentence, and seconds from SIGTERM to SIGKILL."""

    why: str
    grace: float


class _Run:
    """One call."""

    def __init__(self, context: CallContext, rules: ShellRules) -> None:
        self._context = context
        self._rules = rules
        self._output = Transcript(context.files / f"{context.call_id}.log")

    async def reply(self, argv: list[str], timeout: float) -> ToolReply:
        try:
            group = CommandGroup.start(argv, self._context.cwd, self._environment())
        except (OSError, ValueError) as error:
            self._output.close()
            return ToolReply(self._why_not(error, argv), is_error=True, code=NOT_RUN)
        reading = asyncio.create_task(self._read(group), name="shell output")
        reading.add_done_callback(lambda _: self._put_away(group))
        try:
            ended = await self._ended(group, timeout)
            await self._clear(group, ended)
            await reading
        except asyncio.CancelledError:
            await group.end(0)
            raise
        finally:
            group.kill()
            reading.cancel()
        return self._says(ended)

    def _put_away(self, group: CommandGroup) -> None:
        group.close_output()
        self._output.close()

    def _environment(self) -> dict[str, str]:
        ids = {"FENCEPOST_CALL_ID": self._context.call_id, "FENCEPOST_SESSION_ID": self._context.session_id}
        return {**os.environ, **ids}

    async def _read(self, group: CommandGroup) -> None:
        async for piece in group.pieces():
            text = await self._output.add(piece)
            if text:
                self._context.progress(text)

    async def _ended(self, group: CommandGroup, timeout: float) -> Exit | Broken | _Stopped:
        cancelled = asyncio.ensure_future(self._context.cancel.wait())
        racing: set[asyncio.Future[Any]] = {group.exited, cancelled}
        try:
            await asyncio.wait(racing, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
        if group.exited.done():
            return group.exited.result()
        if self._context.cancel.cancelled:
            return _Stopped("the command was ended because the turn was cancelled", self._rules.short_grace)
        return _Stopped(f"the command was ended after {timeout:g} s", self._rules.grace)

    async def _clear(self, group: CommandGroup, ended: Exit | Broken | _Stopped) -> None:
        """Return when nothing of the command lives any more."""
        if isinstance(ended, _Stopped):
            await group.end(ended.grace)
        elif not await group.gone(self._rules.linger if isinstance(ended, Exit) and ended.left else STUCK_AFTER):
            await group.end(self._rules.short_grace)

    # --- what the model reads -----------------------------------------------------------------------------------

    def _says(self, ended: Exit | Broken | _Stopped) -> ToolReply:
        if isinstance(ended, Exit):
            return self._finished(ended)
        if isinstance(ended, Broken) and not ended.started:
            return ToolReply(f"The command could not be started: {ended.why}.", is_error=True, code=NOT_RUN)
        printed = f"It had printed:\n{self._output.text}" if self._output.total else "It had printed nothing."
        return ToolReply(ended.why, unknown=True, detail=printed)

    def _finished(self, ended: Exit) -> ToolReply:
        notes = []
        if ended.code != 0:
            notes.append(f"[{_named(ended.code)}]")
        if ended.left:
            notes.append("[what it had left running in the background was ended]")
        text = self._output.text
        if not text:
            text = "(no output)"
        if notes:
            text = "\n".join([text.removesuffix("\n"), *notes])
        return ToolReply(text, is_error=ended.code != 0, code=EXIT if ended.code != 0 else "")

    def _why_not(self, error: OSError | ValueError, argv: list[str]) -> str:
        why = str(error)
        if isinstance(error, ValueError):
            why = "it holds a character that no command line can hold (NUL, or half of a surrogate pair)"
        elif error.errno == errno.E2BIG:
            why = f"its {len(argv[-1])} characters are too long for a command line; write them to a file and run that"
        elif not self._context.cwd.is_dir():
            why = f"the working directory {self._context.cwd} does not exist"
        return f"The command could not be started: {why}."


def _named(code: int) -> str:
    """An exit code, or the signal behind it, in words."""
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"exit code {code}" if code > 0 else f"ended by signal {number}"
    return f"ended by {name}, signal {number}" if code < 0 else f"exit code {code}, which stands for {name}"
