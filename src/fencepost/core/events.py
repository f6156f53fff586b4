"""The vocabulary: everything that can be a fact of a session. Everything revolves around this file.

An event is one immutable fact. It is written for the reader after the crash: each docstring says what the event's
presence lets us claim and, where it matters, what its absence does. One event, one claim.

Rules:
    1. Flat JSON objects, snake_case, `type` first, then `seq` and `time`: `jq 'select(.type=="tool/call")'` is
       enough to read a log.
    2. `seq` is dense from 0; `time` is epoch milliseconds and may step back with the clock.
    3. Text is Unicode that UTF-8 can carry and numbers are finite. What is not is normalised when the event is
       made and named in `normalised` (JSON pointers), so that the same event comes back from every store.
    4. A new type is declared in a `Vocabulary`; an undeclared one is refused at append.
    5. No event refers to itself, so the cycle collector may pass all of them by (`gc=False`): with a million events
       it would otherwise do little else.

What this module refuses to be: a place for behaviour. What may follow what stands in `lifecycle`; bytes in `codec`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from fencepost.core.content import EFFECTS as EFFECTS
from fencepost.core.content import Block as Block
from fencepost.core.content import CallRequest as CallRequest
from fencepost.core.content import Effect as Effect
from fencepost.core.content import Json as Json
from fencepost.core.content import Reasoning as Reasoning
from fencepost.core.content import Text as Text
from fencepost.core.content import ToolSpec as ToolSpec
from fencepost.core.content import Usage as Usage
from fencepost.core.forms import ChunkRun as ChunkRun
from fencepost.core.forms import Delta as Delta
from fencepost.core.forms import Entry as Entry
from fencepost.core.forms import Header as Header
from fencepost.core.forms import UnknownEvent as UnknownEvent
from fencepost.core.record import Event as Event

Gate: TypeAlias = Literal["step", "request", "tool", "closing"]
Target: TypeAlias = Literal["turn", "step"]
TurnEndReason: TypeAlias = Literal["completed", "aborted", "blocked", "error", "max_tokens", "interrupted"]
HeaderReason: TypeAlias = Literal["initial", "resume", "change"]
Scope: TypeAlias = Literal["call", "tool", "prefix", "directory"]
Finish: TypeAlias = Literal["stop", "tool_calls", "max_tokens", "content_filter", "truncated", "cancelled"]


# --- ownership and input ----------------------------------------------------------------------------------------


class SessionOwner(Event, frozen=True, tag="session/owner"):
    """A new writer took over, and this is its first append. Epochs grow by one; a smaller one is stale (law 8).

    `set_aside` counts the torn bytes that this writer moved out of the log before it appended.
    """

    owner: str
    epoch: int
    resumed: bool
    set_aside: int = 0


class InputQueued(Event, frozen=True, tag="input/queued"):
    """The prompt is ours: it is not lost and runs once. Acknowledged only after it is durable (law 9)."""

    input_id: str
    target: Target
    content: tuple[Text, ...]


class InputDropped(Event, frozen=True, tag="input/dropped"):
    """That prompt will not run."""

    input_id: str
    reason: str


# --- turns and steps --------------------------------------------------------------------------------------------


class TurnStart(Event, frozen=True, tag="turn/start"):
    """A turn opened under these gates. Without `tool` among them a missing `tool/call` proves nothing (law 10).

    `continues` names the interrupted turn that this one goes on with.
    """

    turn: int
    gates: tuple[Gate, ...]
    policy: str
    continues: int | None = None


class TurnEnd(Event, frozen=True, tag="turn/end"):
    """Nothing is owed any more. `interrupted` is written by repair only; `error` says what and `code` why."""

    turn: int
    reason: TurnEndReason
    code: str = ""
    message: str = ""
    synthetic: bool = False


class StepStart(Event, frozen=True, tag="step/start"):
    """One model request and the calls of its answer begin. Written behind the step gate."""

    turn: int
    step: int


class StepEnd(Event, frozen=True, tag="step/end"):
    """Every call of the step has its result."""

    turn: int
    step: int
    synthetic: bool = False


class UserMessage(Event, frozen=True, tag="user/message"):
    """The model saw, or is about to see, this. Consumes `input_id`: absent from here on from what is pending."""

    message_id: str
    content: tuple[Text, ...]
    source: str
    input_id: str | None = None


class RequestHeader(Event, frozen=True, tag="request/header"):
    """All that shapes requests from here on, beside the messages. The newest one is in force."""

    provider: str
    model: str
    settings: dict[str, Json]
    system: str
    tools: tuple[ToolSpec, ...]
    reason: HeaderReason


class RequestRetry(Event, frozen=True, tag="request/retry"):
    """The attempt failed and another follows in the same step. Chunks before this belong to the failed attempt."""

    turn: int
    step: int
    attempt: int
    code: str
    message: str
    delay_ms: int


class AssistantChunk(Event, frozen=True, tag="assistant/chunk"):
    """Streamed text. Packed into runs on disk; a run without its `assistant/message` is half an answer."""

    turn: int
    step: int
    delta: str
    kind: Delta = "text"


class AssistantMessage(Event, frozen=True, tag="assistant/message"):
    """The answer, whole; or, with `interrupted`, the part of a cancelled or cut one that a person saw.

    A call that is asked for here and has no `tool/call` behind it was not admitted (but see laws 2 and 10).
    """

    turn: int
    step: int
    message_id: str
    content: tuple[Block, ...]
    finish: Finish
    usage: Usage | None = None
    interrupted: bool = False


# --- calls ------------------------------------------------------------------------------------------------------


class ApprovalAsked(Event, frozen=True, tag="approval/asked"):
    """A person was asked. The question is void after a crash: the call was not admitted."""

    call_id: str
    question: str


class ApprovalDecided(Event, frozen=True, tag="approval/decided"):
    """The answer, and whose it was. With `remember` it also holds for later calls of the session that are like it.

    `scope` says in what they have to be like it, and `pattern` what they then have in common.
    """

    call_id: str
    allowed: bool
    by: str
    remember: bool = False
    scope: Scope = "tool"
    pattern: str = ""


class ToolCall(Event, frozen=True, tag="tool/call"):
    """Admitted by every policy; its body is next, behind the tool gate.

    Durable before the body runs (law 1). Present without a result: the outcome is unknown. Absent under a tool
    gate: the body did not run (law 2).
    """

    turn: int
    step: int
    call_id: str
    name: str
    arguments: dict[str, Json]
    effect: Effect
    parent: str | None = None
    retries: int | None = None
    """Seq of the `tool/call` of the same call, left without a result by a crash, that is let go again by this one."""


class ToolResult(Event, frozen=True, tag="tool/result"):
    """Finished; no other result follows (law 5).

    `synthetic` ones are written by repair. `settled_by` names the tool that said after a crash what had really
    happened, and `evidence` what it saw.
    """

    turn: int
    step: int
    call_id: str
    content: tuple[Text, ...]
    is_error: bool = False
    code: str = ""
    synthetic: bool = False
    settled_by: str = ""
    evidence: str = ""


class ToolNote(Event, frozen=True, tag="tool/note"):
    """Something learnt about a call after its result: a thread that was given up on answered late. Never a result."""

    call_id: str
    text: str


class ContextSummary(Event, frozen=True, tag="context/summary"):
    """From here on a model sees this text in place of all messages up to `through`, the end of a closed step.

    The log itself keeps every one of them. Absent, after a crash in the middle of summing up: they are still seen.
    """

    through: int
    content: tuple[Text, ...]
    model: str
    usage: Usage | None = None


# --- what salvage writes ----------------------------------------------------------------------------------------


class Gap(Event, frozen=True, tag="log/gap"):
    """Something that stood here is missing, or could not be read; what it was is unknown for good.

    Its presence takes innocence away: a call that was open here, or that any event up to `until` speaks of, may have
    run, whatever is not recorded of it. Written by salvage only (docs/notes/0007-salvage.md).
    """

    reason: str
    offset: int | None = None
    """Where, in the log that was salvaged: a byte (files) or a row (databases)."""
    length: int = 0
    """Bytes concerned; 0 where that cannot be said."""
    lost_from: int | None = None
    """The first seq of that log that is missing; None where none is known to be."""
    lost_to: int | None = None
    """The last one; None where nobody knows how many followed."""
    since: int | None = None
    """Another line of events leaves this log in front of this seq; what both lines say from there on is in doubt."""
    until: int = -1
    """Seq of the last event behind the gap that comes from its far side."""


class Salvaged(Event, frozen=True, tag="log/salvaged"):
    """A whole record from the far side of a gap which may not stand in its old place any more.

    It claims that this was written, once; nothing is folded out of it.
    """

    original: str
    """The record in its canonical JSON, to the letter: `jq '.original | fromjson'`."""


# --- vocabulary -------------------------------------------------------------------------------------------------

CORE_EVENTS: tuple[type[Event], ...] = (
    SessionOwner,
    InputQueued,
    InputDropped,
    TurnStart,
    TurnEnd,
    StepStart,
    StepEnd,
    UserMessage,
    RequestHeader,
    RequestRetry,
    AssistantChunk,
    AssistantMessage,
    ApprovalAsked,
    ApprovalDecided,
    ToolCall,
    ToolResult,
    ToolNote,
    ContextSummary,
    Gap,
    Salvaged,
)


def text_of(content: tuple[Block, ...] | tuple[Text, ...]) -> str:
    """The plain text of some content, for people and for providers that take strings."""
    return "".join(block.text for block in content if isinstance(block, Text))


def calls_of(message: AssistantMessage) -> tuple[CallRequest, ...]:
    """The calls that a message asks for, in the model's order."""
    return tuple(block for block in message.content if isinstance(block, CallRequest))
