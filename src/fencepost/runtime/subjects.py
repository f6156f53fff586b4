"""What the hooks are asked about: one frozen record per point.

The records of a call follow each other, and each can be made from the one before only: a `Candidate` is asked for,
an `Admitted` has its `tool/call` in the log, a `Cleared` has it on disk. A body takes no other proof than `Cleared`,
unless the turn recorded that no tool gate is in force (laws 1 and 10).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.core.projection import ModelRequest
from fencepost.errors import FencepostError
from fencepost.journal.session import Clearance, Journal
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.tools import Tool, ToolReply


class Blocked(FencepostError):  # noqa: N818 - a verdict of a policy, not a fault
    """Raised by a `before_step` hook: the step will not be prepared, the turn ends as `blocked`."""

    code = "BLOCKED"


class Pause(msgspec.Struct, frozen=True):
    """No step is open: the model may be asked something of one's own, and what came of it recorded.

    Attributes:
        journal: of the session.
        cancel: the turn's signal, or the one of who asked for this between turns.
        model: the model's name, with its provider in front.
        notify: tells people something.
        ask: sends one request through the gate, with a system prompt and a text, and gives its whole answer. Raises
            `NotSavedError`, `ModelError` or `Cancelled`; nothing is recorded.
    """

    journal: Journal
    cancel: CancelSignal
    model: str
    notify: Callable[[Notice], None]
    ask: Callable[[str, str], Awaitable[Answer]]


class Compacted(msgspec.Struct, frozen=True):
    """A summary took the place of older steps.

    Attributes:
        through: the end of the last of these steps, by its seq.
        steps: how many they are.
        before: tokens of what a model was sent, about.
        after: the same, from now on.
    """

    through: int
    steps: int
    before: int
    after: int


class StepPlan(msgspec.Struct, frozen=True):
    """The next step, before anything of it is in the log."""

    journal: Journal
    turn: int
    step: int
    claims: tuple[ev.InputQueued, ...]
    cancel: CancelSignal
    pause: Pause


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at the request of a step; or, `aside`, at one that belongs to no step and is not recorded."""

    journal: Journal
    turn: int
    step: int
    number: int
    request: ModelRequest
    cancel: CancelSignal
    aside: bool = False


class Answer(msgspec.Struct, frozen=True):
    """What an attempt brought: the whole answer."""

    content: tuple[ev.Block, ...]
    finish: ev.Finish
    usage: ev.Usage | None


class Candidate(msgspec.Struct, frozen=True):
    """A call with known tool and valid arguments, not yet admitted.

    Attributes:
        parent: the call that makes this one, by its id; None for a call of the model.
        own_gate: a nested call that does not rest on the gate of its parent.
        allowed_by: what let this call pass without asking a person, in words; set by a policy that passes it on.
    """

    journal: Journal
    turn: int
    step: int
    call_id: str
    tool: Tool
    arguments: dict[str, Any]
    cancel: CancelSignal
    parent: str | None = None
    own_gate: bool = False
    allowed_by: str = ""

    @property
    def effect(self) -> ev.Effect:
        """What this call may do to the world."""
        return self.tool.effect_of(self.arguments)

    @property
    def cwd(self) -> Path:
        """The session's working directory."""
        return Path(self.journal.log.header.cwd)

    @property
    def warning(self) -> str | None:
        """Why the tool itself wants a person to be asked about these arguments; None where it does not."""
        return self.tool.guard(self.arguments, self.cwd) if self.tool.guard is not None else None


class Admit(msgspec.Struct, frozen=True):
    """The call may run."""


class Deny(msgspec.Struct, frozen=True):
    """The call may not run; `reason` is what the model reads."""

    reason: str


Admission: TypeAlias = Admit | Deny


class Admitted(msgspec.Struct, frozen=True):
    """A call whose `tool/call` is in the log. Not yet let go."""

    candidate: Candidate
    event: ev.ToolCall

    @property
    def rests_on(self) -> ev.ToolCall:
        """The `tool/call` whose durability covers this call: its own or, for a nested call, the outermost parent's.

        A nested call that has a gate of its own rests on nothing else.
        """
        calls = self.candidate.journal.log.fold.calls
        event = self.event
        if self.candidate.own_gate:
            return event
        while event.parent is not None:
            parent = calls[event.parent].admitted
            assert parent is not None, "a nested call is admitted only while its parent runs"
            event = parent
        return event

    def cleared(self, clearance: Clearance) -> Cleared:
        """The call with the gate's proof that its `tool/call` is durable."""
        return Cleared(self.candidate, self.event, clearance)


class Cleared(Admitted, frozen=True):
    """A call that its gate has let go."""

    clearance: Clearance


class Done(msgspec.Struct, frozen=True):
    """A call that has something to be recorded."""

    candidate: Candidate
    reply: ToolReply
    admitted: bool


class TurnStopping(msgspec.Struct, frozen=True):
    """A turn that owes nothing any more."""

    journal: Journal
    turn: int
    step: int
    text: str


NoticeKind: TypeAlias = Literal["progress", "not_saved", "saved", "note"]


class Notice(msgspec.Struct, frozen=True):
    """Something that people should see now and that the log does not keep."""

    kind: NoticeKind
    text: str
    call_id: str = ""
