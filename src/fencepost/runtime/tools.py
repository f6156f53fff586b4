"""What a tool is: a name, a schema, a declared effect and a body; and `@tool`, which makes one from a function.

A body gets a `CallContext`. What it gives back is text (or something that JSON can show as text), or a `ToolReply`
that says more. What it raises becomes an error result that the model reads; it never ends the turn.

The effect decides what may be claimed and done after a crash: `read` may run again and overlaps with other reads,
`idempotent` may run again with the same `call_id`, `write` (the default) may not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from fencepost.core.events import Effect, ToolSpec
from fencepost.runtime.cancel import CancelSignal


class ToolReply(msgspec.Struct, frozen=True):
    """What a body says, when plain text is not enough.

    Attributes:
        text: for the model.
        is_error: the call finished, and what it did failed.
        code: stable name of the failure; never one of `verdict.NOT_ENTERED`, for the body was entered.
        unknown: the body cannot say what happened (it was timed out, cut off or cancelled while acting): the live
            form of `outcome_unknown`. `text` then is the cause, as half a sentence.
    """

    text: str
    is_error: bool = False
    code: str = ""
    unknown: bool = False


class CallContext(msgspec.Struct, frozen=True):
    """What a body may know and use.

    Attributes:
        call_id: ours, unique; the idempotency key to hand on to whatever the body acts on.
        session_id: the session.
        cwd: the session's working directory.
        cancel: the turn's cancel signal. A body that can stop early watches it.
        progress: tell the person something while the body runs; not kept.
        files: a directory of this session for what is too large for the log; made when first used.
    """

    call_id: str
    session_id: str
    cwd: Path
    cancel: CancelSignal
    progress: Callable[[str], None]
    files: Path


Body: TypeAlias = Callable[[CallContext, dict[str, Any]], Awaitable[Any]]
Guard: TypeAlias = Callable[[dict[str, Any], Path], str | None]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool.

    Attributes:
        spec: what the model is told.
        body: what runs behind the gate.
        effect: see the module's docstring.
        timeout: seconds after which a call is given up on (`outcome_unknown`); None: never.
        parallel: whether calls may overlap with others; None: as the effect says (`read` overlaps).
        guard: says, for given arguments and working directory, why a person should be asked even though the effect
            alone would pass; None if there is no reason.
        thread: the body is a plain function that runs in a thread, and cannot be stopped.
    """

    spec: ToolSpec
    body: Body
    effect: Effect = "write"
    timeout: float | None = None
    parallel: bool | None = None
    guard: Guard | None = None
    thread: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.spec.name

    @property
    def overlaps(self) -> bool:
        """Whether calls may overlap with others that overlap."""
        return self.effect == "read" if self.parallel is None else self.parallel
