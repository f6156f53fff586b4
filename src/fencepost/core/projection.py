"""Log to messages: what a model sees. Whatever reaches a model request is rebuilt from here, byte for byte.

Rules:
    1. Calls are paired with their results over the whole log; results stand in the model's order, right behind the
       answer that asked for them.
    2. Half an answer (`interrupted`, or chunks without a message) is never sent.
    3. A call without a result makes no request: the loop owes it a result first.
    4. A gap is said, so that nobody repeats what was done in what is missing.
    5. A summary stands in front, in the place of all that it reaches to. It reaches to the end of a step, so an answer
       and the results of its calls are seen together or not at all.
    6. A provider's own id of a call is used on the wire if it is usable there (not empty, not used twice);
       otherwise ours is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.core.log import Log
from fencepost.errors import IllegalEventError


class UserTurn(msgspec.Struct, frozen=True, tag="user"):
    """What the user, or something that speaks for them, said."""

    content: tuple[ev.Text, ...]


class AssistantTurn(msgspec.Struct, frozen=True, tag="assistant"):
    """A whole answer."""

    content: tuple[ev.Block, ...]


class ToolAnswer(msgspec.Struct, frozen=True, tag="tool"):
    """The result of one call."""

    call_id: str
    name: str
    content: tuple[ev.Text, ...]
    is_error: bool = False


GAP = (
    "[fencepost: a part of this session's log is missing here. What was said and done in it is unknown: "
    "do not take anything for not done because it is not above.]"
)
"""What the model is told where a gap is."""

Message: TypeAlias = UserTurn | AssistantTurn | ToolAnswer


class ModelRequest(msgspec.Struct, frozen=True):
    """One model request, independent of a provider. A fold over the log: `request(log)` gives it again."""

    session: str
    provider: str
    model: str
    settings: dict[str, ev.Json]
    system: str
    tools: tuple[ev.ToolSpec, ...]
    messages: tuple[Message, ...]
    wire_ids: dict[str, str]
    """Our call id to the id that is used on the wire."""
    answered: int
    """Whole answers in the log so far."""


def messages(log: Log) -> tuple[Message, ...]:
    """The transcript of the whole log.

    Raises:
        IllegalEventError: a call that was asked for has no result yet (rule 3).
    """
    out: list[Message] = []
    for event in log.fold.said:
        if isinstance(event, ev.UserMessage | ev.ContextSummary):
            out.append(UserTurn(event.content))
        elif isinstance(event, ev.Gap):
            out.append(UserTurn((ev.Text(GAP),)))
        elif event.content:
            out.append(AssistantTurn(event.content))
            out.extend(_answer(log, call) for call in ev.calls_of(event))
    return tuple(out)


def _answer(log: Log, call: ev.CallRequest) -> ToolAnswer:
    result = log.fold.calls[call.call_id].result
    if result is None:
        raise IllegalEventError(f"call {call.call_id} has no result, so no request can be built")
    return ToolAnswer(call.call_id, call.name, result.content, result.is_error)


def wire_ids(transcript: Iterable[Message]) -> dict[str, str]:
    """For each call the id that goes over the wire (rule 6)."""
    calls = [
        block
        for message in transcript
        if isinstance(message, AssistantTurn)
        for block in message.content
        if isinstance(block, ev.CallRequest)
    ]
    uses = Counter(call.provider_id for call in calls)
    ours = {call.call_id for call in calls}
    return {
        call.call_id: call.provider_id
        if call.provider_id and uses[call.provider_id] == 1 and call.provider_id not in ours
        else call.call_id
        for call in calls
    }


def request(log: Log) -> ModelRequest:
    """The request that the log, as it stands, calls for.

    Raises:
        IllegalEventError: there is no `request/header` yet, or a call has no result.
    """
    header = log.fold.header
    if header is None:
        raise IllegalEventError("no request/header in the log, so no request can be built")
    transcript = messages(log)
    return ModelRequest(
        session=log.header.session,
        provider=header.provider,
        model=header.model,
        settings=header.settings,
        system=header.system,
        tools=header.tools,
        messages=transcript,
        wire_ids=wire_ids(transcript),
        answered=log.fold.answers,
    )
