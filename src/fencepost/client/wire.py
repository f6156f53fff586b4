"""The API of `fencepost serve`, as types: methods with their parameters and results, what is sent unasked, errors.

JSON-RPC 2.0. Over standard input and output it is one JSON object a line; over HTTP a request is the body of a POST to
`/rpc` and what is sent unasked is the stream of a GET of `/events`. `python -m fencepost.client.schema` prints all of
it as one JSON schema.

Rules:
    1. `initialize` comes first on a line connection. A server that does not speak the protocol that was asked for says
       which one it speaks; within one protocol fields are only added.
    2. Events are sent when they are durable (law 9), in the bytes of the log, each with its `seq`: who lost the
       connection goes on behind the last one that arrived.
    3. `prompt/queue` is answered when the prompt is durable. Asked again with the same `input_id`, it is the same one.
    4. Errors carry the product's code (`HELD`, `NOT_SAVED` …) and what to do in `data`.

What this module refuses to be: a place for behaviour.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from fencepost.core import events as ev
from fencepost.core.verdict import Verdict
from fencepost.journal.fork import Forked
from fencepost.journal.inspect import Inspection, PendingInput, SessionRow
from fencepost.journal.session import Recovery
from fencepost.plugins.approval import Question
from fencepost.runtime.guarantees import Guarantees
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.settle import Running
from fencepost.runtime.subjects import Compacted

PROTOCOL = 1
"""Version of this API."""


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Parameters of a method; `method` names it."""

    method: ClassVar[str]
    result: ClassVar[Any]


class Done(msgspec.Struct, frozen=True):
    """It is done, and there is nothing to tell."""


# --- about the server -------------------------------------------------------------------------------------------


class ServerInfo(msgspec.Struct, frozen=True):
    """Who answers."""

    protocol: int
    version: str
    store: str
    model: str | None


class Initialize(Params, frozen=True):
    """Say who asks, and in which protocol."""

    method = "initialize"
    result = ServerInfo
    protocol: int
    client: str = ""


# --- sessions ---------------------------------------------------------------------------------------------------


class RecoveredCall(msgspec.Struct, frozen=True):
    """The verdict on one call of the turn that was interrupted."""

    call_id: str
    name: str
    verdict: Verdict
    code: str
    settled_by: str = ""
    evidence: str = ""


class Recovered(msgspec.Struct, frozen=True):
    """What resuming found and did; all empty for a new session or a clean one."""

    interrupted: int | None = None
    set_aside: int = 0
    closed: int = 0
    calls: tuple[RecoveredCall, ...] = ()


class Opened(msgspec.Struct, frozen=True):
    """A session.

    Attributes:
        live: whether this server owns it; otherwise it can be read.
        next_seq: the seq behind the last event that is durable.
        joined: whether it was live here before it was asked for, so that nothing was recovered for this answer.
    """

    session: str
    live: bool
    cwd: str
    next_seq: int
    guarantees: Guarantees | None
    recovery: Recovered
    pending: tuple[PendingInput, ...]
    joined: bool = False


class Sessions(msgspec.Struct, frozen=True):
    """The sessions of the store, the latest first."""

    sessions: list[SessionRow]


class ListSessions(Params, frozen=True):
    """List the sessions of the store."""

    method = "session/list"
    result = Sessions
    limit: int | None = None


class CreateSession(Params, frozen=True):
    """Make a new session. Nothing is stored before its first prompt."""

    method = "session/create"
    result = Opened
    session: str | None = None
    cwd: str | None = None


class OpenSession(Params, frozen=True):
    """Look at a session: the live one if this server owns it, else what is stored. Changes no byte."""

    method = "session/open"
    result = Opened
    session: str


class ResumeSession(Params, frozen=True):
    """Take a stored session, settle and close what was interrupted, and wait. One that is live here is just opened."""

    method = "session/resume"
    result = Opened
    session: str
    takeover: bool = False
    running: Running = "leave"
    rerun: tuple[ev.Effect, ...] = ()


class ForkSession(Params, frozen=True):
    """Make a new session out of the beginning of another one."""

    method = "session/fork"
    result = Forked
    session: str
    to: str | None = None
    at: int | None = None
    turn: int | None = None


class CloseSession(Params, frozen=True):
    """Close a live session in order."""

    method = "session/close"
    result = Done
    session: str


class InspectSession(Params, frozen=True):
    """A verdict for every call. `settle` asks the tools, too."""

    method = "session/inspect"
    result = Inspection
    session: str
    settle: bool = False


class Exported(msgspec.Struct, frozen=True):
    """A session in its canonical form: the header, then each event, as JSON values."""

    lines: list[msgspec.Raw]


class ExportSession(Params, frozen=True):
    """All of a session that can be read."""

    method = "session/export"
    result = Exported
    session: str


# --- input and turns --------------------------------------------------------------------------------------------


class Queued(msgspec.Struct, frozen=True):
    """A prompt that is durable."""

    input_id: str


class QueuePrompt(Params, frozen=True):
    """Queue a prompt: for a turn of its own, or (`step`) to steer the running one."""

    method = "prompt/queue"
    result = Queued
    session: str
    text: str
    target: ev.Target = "turn"
    input_id: str | None = None


class WaitPrompt(Params, frozen=True):
    """Wait for the end of the turn that a prompt got."""

    method = "prompt/wait"
    result = TurnResult
    session: str
    input_id: str


class EditPrompt(Params, frozen=True):
    """Take a prompt back that has not run, and queue another one in its place, last of all."""

    method = "prompt/edit"
    result = Queued
    session: str
    input_id: str
    text: str


class DropPrompt(Params, frozen=True):
    """Take a prompt back that has not run."""

    method = "prompt/drop"
    result = Done
    session: str
    input_id: str


class ContinueTurn(Params, frozen=True):
    """Go on with the interrupted turn, and with prompts that were left; null where there is nothing to go on with."""

    method = "turn/continue"
    result = TurnResult | None
    session: str


class CompactSession(Params, frozen=True):
    """Put a summary in the place of older steps, while no turn runs."""

    method = "session/compact"
    result = Compacted
    session: str


class CancelTurn(Params, frozen=True):
    """Cancel the running turn, and wait until it is over."""

    method = "turn/cancel"
    result = Done
    session: str
    reason: str = "user"


# --- approvals --------------------------------------------------------------------------------------------------


class Questions(msgspec.Struct, frozen=True):
    """What is asked at present."""

    questions: list[Question]


class ListQuestions(Params, frozen=True):
    """What is asked at present in a session."""

    method = "approval/list"
    result = Questions
    session: str


class Decide(Params, frozen=True):
    """Answer a question. One from before a crash cannot be answered any more."""

    method = "approval/decide"
    result = Done
    session: str
    call_id: str
    allowed: bool
    reason: str = ""
    remember: bool = False
    scope: ev.Scope = "tool"
    pattern: str = ""


# --- events -----------------------------------------------------------------------------------------------------


class Events(msgspec.Struct, frozen=True):
    """Some events, and the seq to go on from."""

    events: list[msgspec.Raw]
    next: int


class ReadEvents(Params, frozen=True):
    """The durable events of a session, live or stored, from a seq on."""

    method = "events/read"
    result = Events
    session: str
    start: int = 0
    limit: int = 1000


class FollowEvents(Params, frozen=True):
    """Send the events of a live session from a seq on, and its notices and questions. Line connections only."""

    method = "events/follow"
    result = Done
    session: str
    start: int = 0


class UnfollowEvents(Params, frozen=True):
    """Stop that."""

    method = "events/unfollow"
    result = Done
    session: str


METHODS: dict[str, type[Params]] = {
    kind.method: kind
    for kind in (
        Initialize,
        ListSessions,
        CreateSession,
        OpenSession,
        ResumeSession,
        ForkSession,
        CloseSession,
        InspectSession,
        ExportSession,
        QueuePrompt,
        WaitPrompt,
        EditPrompt,
        DropPrompt,
        ContinueTurn,
        CompactSession,
        CancelTurn,
        ListQuestions,
        Decide,
        ReadEvents,
        FollowEvents,
        UnfollowEvents,
    )
}


def recovered(recovery: Recovery) -> Recovered:
    """A recovery as it is sent."""
    calls = tuple(
        RecoveredCall(found.call.call_id, found.call.name, found.verdict, found.code, found.settled_by, found.evidence)
        for found in recovery.calls
    )
    return Recovered(recovery.interrupted, recovery.set_aside, recovery.closed, calls)
