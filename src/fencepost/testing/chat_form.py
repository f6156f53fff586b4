"""Scripted answers as the chunks and completions of OpenAI chat form: the outgoing side of a fake endpoint. No IO."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fencepost.core.events import Json
from fencepost.plugins.script import ScriptedAnswer
from fencepost.runtime.models import CallDelta, ReasoningDelta, TextDelta
from fencepost.testing.forms import Piece, data
from fencepost.testing.pairing import pairing_problem

USAGE: Final[dict[str, Any]] = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
"""Token counts of every answer."""

STAMP: Final[dict[str, Any]] = {"id": "chatcmpl-scripted", "created": 0, "model": "scripted"}
"""What every chunk and completion carries."""

DONE: Final = "[DONE]"


class ChatForm:
    """OpenAI chat completions; see `forms.ServerForm`."""

    name = "chat"
    path = "/v1/chat/completions"

    def problem(self, request: Mapping[str, Any]) -> str | None:
        """What a strict provider refuses about a request."""
        return pairing_problem(request["messages"])

    def pieces(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> list[Piece]:  # noqa: ARG002
        """The answer, without how it ended: a chunk for each delta."""
        deltas = [_delta(delta) for delta in answer.words()] or [{"content": ""}]
        deltas[0]["role"] = "assistant"
        return [data(_chunk(delta, None)) for delta in deltas]

    def ending(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> Piece:
        """How an answer ended, what it cost, and the end."""
        last = {**STAMP, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
        asked = (request.get("stream_options") or {}).get("include_usage")
        return data(_chunk({}, answer.finish_reason), *([last] if asked else []), DONE)

    def end(self) -> Piece:
        """The end of a stream alone."""
        return data(DONE)

    def idle(self) -> Piece:
        """A chunk that has no choices at all, and the end."""
        return data({**STAMP, "object": "chat.completion.chunk"}, DONE)

    def malformed(self) -> Piece:
        """A chunk that is not JSON."""
        return data('{"choices": [')

    def broken(self, body: Any) -> Piece:
        """An error inside a stream."""
        return data(body or {"error": {"message": "overloaded", "type": "server_error", "code": None}})

    def raw(self, chunk: Any) -> Piece:
        """A chunk as it was given."""
        return data(chunk)

    def whole(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        """The answer to a request that does not ask for a stream."""
        message: dict[str, Any] = {"role": "assistant", "content": answer.text or None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "finish_reason": answer.finish_reason}
        return {**STAMP, "object": "chat.completion", "choices": [choice], "usage": USAGE}

    def refusal(self, message: str, code: str) -> Json:
        """The body of a response that says no."""
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _call(call: CallDelta) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.provider_id, "type": "function", "function": function}


def _delta(delta: TextDelta | ReasoningDelta | CallDelta) -> dict[str, Any]:
    if isinstance(delta, TextDelta):
        return {"content": delta.text}
    if isinstance(delta, ReasoningDelta):
        return {"reasoning_content": delta.text}
    if not (delta.name or delta.provider_id):
        return {"tool_calls": [{"index": delta.index, "function": {"arguments": delta.arguments}}]}
    return {"tool_calls": [{"index": delta.index, **_call(delta)}]}


def _chunk(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {**STAMP, "object": "chat.completion.chunk", "choices": [choice]}
