"""Scripted answers as the chunks and completions of OpenAI chat form: the outgoing side of a fake endpoint. No IO."""

from __future__ import annotations

from typing import Any, Final

from fencepost.core.events import Json
from fencepost.plugins.script import ScriptedAnswer
from fencepost.runtime.models import CallDelta, ReasoningDelta, TextDelta

USAGE: Final[dict[str, Any]] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
"""Token counts of every answer."""

STAMP: Final[dict[str, Any]] = {"id": "chatcmpl-scripted", "created": 0, "model": "scripted"}
"""What every chunk and completion carries."""


def pieces(answer: ScriptedAnswer) -> list[dict[str, Any]]:
    """The chunks of an answer, without the one that says how it ended."""
    deltas = [_delta(delta) for delta in answer.words()] or [{"content": ""}]
    deltas[0]["role"] = "assistant"
    return [_chunk(delta, None) for delta in deltas]


def ending(answer: ScriptedAnswer, usage: bool) -> list[dict[str, Any]]:
    """The chunks that say how an answer ended, and what it cost."""
    last = {**STAMP, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
    return [_chunk({}, answer.finish_reason), *([last] if usage else [])]


def without_choices() -> dict[str, Any]:
    """A chunk that has no choices at all."""
    return {**STAMP, "object": "chat.completion.chunk"}


def completion(answer: ScriptedAnswer) -> dict[str, Any]:
    """The answer to a request that does not ask for a stream."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["tool_calls"] = [
            {"id": call.provider_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in answer.calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
    return {**STAMP, "object": "chat.completion", "choices": [choice], "usage": USAGE}


def refusal(message: str, code: str) -> Json:
    """The body of a response that says no."""
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _delta(delta: TextDelta | ReasoningDelta | CallDelta) -> dict[str, Any]:
    if isinstance(delta, TextDelta):
        return {"content": delta.text}
    if isinstance(delta, ReasoningDelta):
        return {"reasoning_content": delta.text}
    if not (delta.name or delta.provider_id):
        return {"tool_calls": [{"index": delta.index, "function": {"arguments": delta.arguments}}]}
    function = {"name": delta.name, "arguments": delta.arguments}
    return {"tool_calls": [{"index": delta.index, "id": delta.provider_id, "type": "function", "function": function}]}


def _chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**STAMP, "object": "chat.completion.chunk", "choices": [choice]}
