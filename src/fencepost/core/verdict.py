"""Log to verdict, per call: what the durable log, and nothing else, lets us claim.

The table, first row that fits (design.md, section 8):

    result with a code of NOT_ENTERED, at or beyond a gap    outcome_unknown    (law 2)
    result with a code of NOT_ENTERED, settled               not_started
    result with a code of NOT_ENTERED, let go twice          outcome_unknown    (law 2: the first time may have run)
    result with a code of NOT_ENTERED                        not_started
    result with the code TOOL_OUTCOME_UNKNOWN                outcome_unknown
    any other result                                         completed
    no result, `tool/call` present                           outcome_unknown
    no result, no `tool/call`, the turn had no tool gate     outcome_unknown    (law 10)
    no result, no `tool/call`, lost bytes may have held it   outcome_unknown    (law 2)
    no result, no `tool/call`, open at or beyond a gap       outcome_unknown    (law 2)
    no result, no `tool/call`                                not_started

A call is at a gap if it was open there, and beyond one if an event from its far side speaks of it: such a call is
`doubtful`, whatever was settled: another writer, whose line is lost or is another log, may have run it after a tool had
looked. Evidence that a tool left does settle what became of a call that was let go twice.

`running` is not in the table: no verdict is given while the owner lives (law 8). Whoever asks looks at the lock first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.core.log import CallRecord, Fold

Verdict: TypeAlias = Literal["completed", "not_started", "outcome_unknown", "running"]

TOOL_NOT_STARTED = "TOOL_NOT_STARTED"
TOOL_OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
DENIED = "DENIED"
INVALID_ARGUMENTS = "INVALID_ARGUMENTS"
UNKNOWN_TOOL = "UNKNOWN_TOOL"
ABORTED_BEFORE_DISPATCH = "ABORTED_BEFORE_DISPATCH"
NOT_SAVED = "NOT_SAVED"

NOT_ENTERED = frozenset({DENIED, INVALID_ARGUMENTS, UNKNOWN_TOOL, ABORTED_BEFORE_DISPATCH, NOT_SAVED, TOOL_NOT_STARTED})
"""Codes of results that say: the body was never entered, or vouches that it had no effect."""


class Evidence(msgspec.Struct, frozen=True):
    """What is known of bytes that the log does not hold any more.

    Attributes:
        named: ids of calls that such bytes mention.
        blind_at: each the seq at which bytes of unknown content went missing; they may have held the `tool/call`
            of any call that was asked for before it.
    """

    named: frozenset[str] = frozenset()
    blind_at: tuple[int, ...] = ()

    def covers(self, call: CallRecord) -> bool:
        """Whether the lost bytes may have held this call's `tool/call`."""
        return call.call_id in self.named or any(call.asked_seq < seq for seq in self.blind_at)

    def joined(self, other: Evidence) -> Evidence:
        """Both together."""
        return Evidence(self.named | other.named, (*self.blind_at, *other.blind_at))


NO_EVIDENCE = Evidence()

_CALL_ID = re.compile(rb'"call_id":"([A-Za-z0-9._:-]{1,128})"')


def lost_bytes(fragment: bytes, seq: int) -> Evidence:
    """The evidence in bytes that are not whole records, where `seq` would have been next."""
    named = frozenset(match.decode("ascii") for match in _CALL_ID.findall(fragment))
    return Evidence(named, (seq,))


class CallVerdict(msgspec.Struct, frozen=True):
    """The verdict on one call, with what it rests on."""

    call: CallRecord
    verdict: Verdict
    code: str
    """The code of the result that is there, or that repair will write."""
    settled_by: str = ""
    """The tool that said after a crash what had really happened."""
    evidence: str = ""
    """What it saw."""


def verdict_of(call: CallRecord, gates: Iterable[ev.Gate], evidence: Evidence = NO_EVIDENCE) -> CallVerdict:
    """The verdict on `call`, asked for in a turn under `gates`."""
    result = call.result
    if result is not None:
        return CallVerdict(call, _by_result(call, result), result.code, result.settled_by, result.evidence)
    if call.admitted is not None or call.doubtful or "tool" not in gates or evidence.covers(call):
        return CallVerdict(call, "outcome_unknown", TOOL_OUTCOME_UNKNOWN)
    return CallVerdict(call, "not_started", TOOL_NOT_STARTED)


def _by_result(call: CallRecord, result: ev.ToolResult) -> Verdict:
    if result.code in NOT_ENTERED:
        open_still = call.doubtful or (call.again and not result.settled_by)
        return "outcome_unknown" if open_still else "not_started"
    return "outcome_unknown" if result.code == TOOL_OUTCOME_UNKNOWN else "completed"


def verdicts(fold: Fold, evidence: Evidence = NO_EVIDENCE) -> list[CallVerdict]:
    """A verdict for every call of the log, in the order in which they were asked for."""
    return [verdict_of(call, fold.turns[call.turn].gates, evidence) for call in fold.calls.values()]


def unknown_text(cause: str) -> str:
    """What the model is told of a call whose outcome is unknown, live and after a crash, in the same words."""
    return (
        f"Outcome unknown: {cause}. The call may have run completely, partly or not at all. "
        "Retry it only if it is read-only or idempotent; otherwise verify first what really happened, "
        "or ask the user."
    )


RETRY = "Retry it if it is still needed."


def not_started_text(cause: str, next_act: str = RETRY) -> str:
    """What the model is told of a call that certainly did not run, and what to do about it."""
    return f"Not started: {cause}. The call had no effect. {next_act}"
