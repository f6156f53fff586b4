"""A stored session as the message lists that model APIs take, so that it can be sent on from anywhere.

    openai       {"tools", "messages"}: chat completions; the system prompt is the first message
    anthropic    {"system", "tools", "messages"}: messages

What is left out where it is empty: `system`, `tools`. The log is closed first, in memory: a call without a result gets
the one that repair would write, or one that says that it is running; what is beyond damage stands as salvage would
place it, and a gap is said to the model. So every call has its result, in the form that the strictest endpoint wants.
"""

from __future__ import annotations

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import FORMAT, Vocabulary
from fencepost.core.log import Log
from fencepost.core.projection import Message, ModelRequest, ToolAnswer, messages, wire_ids
from fencepost.journal.salvage import lines_of
from fencepost.plugins.anthropic_wire import conversation
from fencepost.plugins.openai_wire import chat_body
from fencepost.stores.base import StoredLog

RUNNING = "This call was still running when the transcript was exported; its outcome is not known here."


def request_of(stored: StoredLog, vocabulary: Vocabulary) -> ModelRequest:
    """What a model would be sent if the session went on from here. Takes its time where the log is long."""
    line = lines_of(stored, vocabulary)[0]
    header = stored.header or ev.Header(stored.session, 0, "", FORMAT)
    log = Log(header, lambda: 0, vocabulary, line.entries)
    shape = log.fold.header
    transcript = messages(log)
    if stored.owner is not None:
        unanswered = _unanswered(stored)
        transcript = tuple(_running(message, unanswered) for message in transcript)
    return ModelRequest(
        session=stored.session,
        provider="openai",
        model=shape.model if shape else "",
        settings={},
        system=shape.system if shape else "",
        tools=shape.tools if shape else (),
        messages=transcript,
        wire_ids=wire_ids(transcript),
        answered=log.fold.answers,
    )


def _unanswered(stored: StoredLog) -> set[str]:
    answers = [entry for entry in stored.entries if isinstance(entry, ev.AssistantMessage)]
    asked = {call.call_id for answer in answers for call in ev.calls_of(answer)}
    return asked - {entry.call_id for entry in stored.entries if isinstance(entry, ev.ToolResult)}


def _running(message: Message, calls: set[str]) -> Message:
    if not isinstance(message, ToolAnswer) or message.call_id not in calls:
        return message
    return msgspec.structs.replace(message, content=(ev.Text(RUNNING),))


# --- OpenAI -----------------------------------------------------------------------------------------------------


def openai(request: ModelRequest) -> dict[str, ev.Json]:
    """The form of chat completions."""
    body = chat_body(request)
    said = body["messages"]
    assert isinstance(said, list)
    kept: list[ev.Json] = [message for message in said if not _is_empty(message)]
    return {**({"tools": body["tools"]} if "tools" in body else {}), "messages": kept}


def _is_empty(message: ev.Json) -> bool:
    """A user message without text is refused."""
    return isinstance(message, dict) and message["role"] == "user" and not str(message["content"]).strip()


# --- Anthropic --------------------------------------------------------------------------------------------------


def anthropic(request: ModelRequest) -> dict[str, ev.Json]:
    """The form of messages; without thinking, which only the model that thought it may be given back."""
    return conversation(request)
