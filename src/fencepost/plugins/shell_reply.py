"""What the model reads of a command: the same from a done receipt after a crash as from a supervisor just now."""

from __future__ import annotations

import signal

from fencepost.plugins.shell_output import Printed
from fencepost.plugins.shell_receipts import Done
from fencepost.runtime.tools import ToolReply

EXIT = "EXIT"
NOT_RUN = "NOT_RUN"
"""Codes of error results: the command ended badly; it could not be started."""


def reply_of(done: Done, printed: Printed) -> ToolReply:
    """Of a command that was let go, and that the system did not refuse."""
    if done.outcome == "ended" or done.code is None:
        return ToolReply(done.why, unknown=True, detail=printed.at_length)
    notes = []
    if done.code != 0:
        notes.append(f"[{named(done.code)}]")
    if done.left:
        notes.append("[what it had left running in the background was ended]")
    text = printed.text or "(no output)"
    if notes:
        text = "\n".join([text.removesuffix("\n"), *notes])
    return ToolReply(text, is_error=done.code != 0, code=EXIT if done.code != 0 else "")


def named(code: int) -> str:
    """An exit code, or the signal behind it, in words."""
    number = -code if code < 0 else code - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"exit code {code}" if code >= 0 else f"ended by signal {number}"
    return f"ended by {name}, signal {number}" if code < 0 else f"exit code {code}, which stands for {name}"
