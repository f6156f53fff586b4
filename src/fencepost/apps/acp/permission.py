"""Asking the client's user about a call: `session/request_permission`.

    allow_once      this call
    allow_always    what it is like, once for each way to say "always" that the approval policy offers
    reject_once     not this call

Fail closed: an answer that was not offered, an error, and a client that is gone are a no. An outcome of `cancelled` is
what a client says when the turn was cancelled; the call was then never let go.
"""

from __future__ import annotations

from typing import Any

from acp import schema
from acp.exceptions import RequestError
from pydantic import ValidationError

from fencepost.plugins.approval import Choice, Question, Verdict

ONCE = "allow-once"
ALWAYS = "allow-always-"
NO = "reject-once"

UNANSWERED = Verdict(allowed=False, by="fencepost", reason="the turn was cancelled before there was an answer")


def options(question: Question) -> list[schema.PermissionOption]:
    """What the user can choose."""
    always = (
        schema.PermissionOption(option_id=name, name=f"Always allow {choice.text}", kind="allow_always")
        for name, choice in _always(question).items()
    )
    return [
        schema.PermissionOption(option_id=ONCE, name="Allow once", kind="allow_once"),
        *always,
        schema.PermissionOption(option_id=NO, name="Reject", kind="reject_once"),
    ]


def _always(question: Question) -> dict[str, Choice]:
    return {f"{ALWAYS}{choice.scope}": choice for choice in question.choices}


def verdict(question: Question, answer: Any) -> Verdict:
    """What the user said.

    Args:
        answer: the client's result, as it came.
    """
    try:
        outcome = schema.RequestPermissionResponse.model_validate(answer).outcome
    except ValidationError:
        return Verdict(allowed=False, by="fencepost", reason="the client's answer could not be understood")
    if isinstance(outcome, schema.DeniedOutcome):
        return UNANSWERED
    if outcome.option_id == NO:
        return Verdict(allowed=False)
    if outcome.option_id == ONCE:
        return Verdict(allowed=True)
    if (choice := _always(question).get(outcome.option_id)) is not None:
        return choice.yes()
    return Verdict(
        allowed=False, by="fencepost", reason=f"the client chose {outcome.option_id!r}, which was not offered"
    )


def unasked(error: RequestError | ConnectionError) -> Verdict:
    """Nobody could be asked."""
    return Verdict(allowed=False, by="fencepost", reason=f"the client could not ask: {error}")
