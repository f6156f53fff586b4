"""What a tool is: a name, a schema, a declared effect and a body.

A body gets a `CallContext` and arguments that fit the schema. What it gives back is text (or something that JSON can
show as text), or a `ToolReply` that says more. What it raises becomes an error result that the model reads; it never
ends the turn.

The effect decides what may be claimed and done after a crash: `read` may run again and overlaps with other reads,
`idempotent` may run again with the same `call_id`, `write` (the default) may not.

What this module refuses to be: the pipeline that runs calls (`toolrun`), or the way from a function to a tool
(`toolmaker`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from fencepost.core.events import Effect, ToolSpec
from fencepost.errors import UsageError
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.settlement import Settle, Tidy


class ToolReply(msgspec.Struct, frozen=True):
    """What a body says, when plain text is not enough.

    Attributes:
        text: for the model.
        is_error: the call finished, and what it did failed.
        code: stable name of the failure; never one of `verdict.NOT_ENTERED`, for the body was entered. One that had
            no effect for certain raises `replies.NotStarted`.
        unknown: the body cannot say what happened (it was timed out, cut off or cancelled while acting): the live
            form of `outcome_unknown`. `text` then is the cause, as half a sentence.
        detail: what an `unknown` reply can still show, such as the output until then; stands below the sentence.
    """

    text: str
    is_error: bool = False
    code: str = ""
    unknown: bool = False
    detail: str = ""


NestedGate: TypeAlias = Literal["parent", "own"]


class Calling(Protocol):
    """How a body makes another call; see `CallContext.call`."""

    def __call__(
        self, name: str, arguments: dict[str, Any], *, gate: NestedGate = "parent"
    ) -> Coroutine[Any, Any, ToolReply]:
        """Make the call, and give its reply; what may not be made is a reply too."""
        ...


async def _no_calls(
    name: str,
    arguments: dict[str, Any],  # noqa: ARG001 - the shape of a nested call
    *,
    gate: NestedGate = "parent",  # noqa: ARG001 - the same
) -> ToolReply:
    raise UsageError(f"{name} cannot be called from here: only an async tool that runs in a session calls others")


class CallContext(msgspec.Struct, frozen=True):
    """What a body may know and use.

    Attributes:
        call_id: ours, unique; the idempotency key to hand on to whatever the body acts on.
        session_id: the session.
        cwd: the session's working directory.
        cancel: the turn's cancel signal. A body that can stop early watches it.
        progress: tell the person something while the body runs; not kept.
        files: a directory of this session for what is too large for the log; who uses it first makes it.
        call: make another call from an async body, by name and arguments: policies are asked, call and result are
            recorded as nested. It runs under the gate of this call; with `gate="own"` its body waits until its own
            `tool/call` is durable, so that a crash tells it from this one. Gives its reply.
    """

    call_id: str
    session_id: str
    cwd: Path
    cancel: CancelSignal
    progress: Callable[[str], None]
    files: Path
    call: Calling = _no_calls


Body: TypeAlias = Callable[[CallContext, dict[str, Any]], Awaitable[Any]]
ThreadBody: TypeAlias = Callable[[CallContext, dict[str, Any]], Any]
Guard: TypeAlias = Callable[[dict[str, Any], Path], str | None]
EffectOf: TypeAlias = Callable[[dict[str, Any]], Effect]
Lock: TypeAlias = Callable[[dict[str, Any], Path], str | None]
Parse: TypeAlias = Callable[[dict[str, Any]], object]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool. It has either a `body` or a `thread`, never both.

    Attributes:
        spec: what the model is told.
        body: what runs behind the gate, on the loop.
        thread: what runs behind the gate, in a thread of its own, and cannot be stopped: a cancelled call is given
            up on, and what it says later is a note.
        effect: see the module's docstring.
        effect_by: the effect of a call with given arguments, for a tool whose calls differ; `effect` is what the
            model is told, the strongest of them.
        timeout: seconds after which a call is given up on (`outcome_unknown`); None: never.
        parallel: whether calls may overlap with others; None: as the effect says (`read` overlaps).
        lock: names, for given arguments and working directory, what a call changes. Calls with different names
            overlap with each other, and with nothing else; None: this call has no name.
        guard: says, for given arguments and working directory, why a person should be asked even though the effect
            alone would pass; None if there is no reason.
        parse: checks what a schema cannot say; raises `msgspec.ValidationError`. Used by `schema.validate` only.
        settle: says after a crash what really happened to a call; see `settlement`.
        tidy: removes what such a call left behind; called after it was settled, by `resume` only.
        function: what `@tool` was put on, for whoever wants to call it without a runtime.

    Raises:
        UsageError: not exactly one of `body` and `thread` is given.
    """

    spec: ToolSpec
    body: Body | None = None
    thread: ThreadBody | None = None
    effect: Effect = "write"
    effect_by: EffectOf | None = None
    timeout: float | None = None
    parallel: bool | None = None
    lock: Lock | None = None
    guard: Guard | None = None
    settle: Settle | None = None
    tidy: Tidy | None = None
    parse: Parse | None = None
    function: Callable[..., Any] | None = None

    def __post_init__(self) -> None:
        if (self.body is None) == (self.thread is None):
            raise UsageError(
                f"tool {self.spec.name!r} needs one way to run and has {'none' if self.body is None else 'two'}",
                next_act="Give it either `body` (async) or `thread` (plain)",
            )

    @property
    def name(self) -> str:
        """The name that the model calls."""
        return self.spec.name

    def effect_of(self, arguments: dict[str, Any]) -> Effect:
        """The effect of a call with these arguments."""
        return self.effect if self.effect_by is None else self.effect_by(arguments)

    def overlaps(self, arguments: dict[str, Any]) -> bool:
        """Whether a call with these arguments may overlap with others that overlap."""
        return self.effect_of(arguments) == "read" if self.parallel is None else self.parallel
