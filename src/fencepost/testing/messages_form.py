"""Scripted answers as the events of Anthropic's messages: the outgoing side of a fake endpoint. No IO.

Thinking is signed, and the signature is good for its text and its model only, as at the real endpoint: a request that
gives a block back changed, or to another model, is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from fencepost.core.events import Json
from fencepost.plugins.script import ScriptedAnswer
from fencepost.runtime.answer import parse_arguments
from fencepost.runtime.models import CallDelta, ReasoningDelta, TextDelta
from fencepost.testing.forms import Piece, named, text_of
from fencepost.testing.pairing_anthropic import anthropic_problem

USAGE: Final[dict[str, Any]] = {"input_tokens": 4, "cache_read_input_tokens": 6, "output_tokens": 1}
"""Token counts of every answer, as its beginning has them."""

SPENT: Final[dict[str, Any]] = {"output_tokens": 5}
"""What its end adds."""

REASONS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""A script's own words for how an answer ended, in the words of this form."""


def signature_of(model: str, thinking: str) -> str:
    """What signs a block of thinking."""
    return hashlib.sha256(f"{model}\0{thinking}".encode("utf-8", "surrogatepass")).hexdigest()


class MessagesForm:
    """Anthropic's messages; see `forms.ServerForm`."""

    name = "messages"
    path = "/v1/messages"

    def problem(self, request: Mapping[str, Any]) -> str | None:
        """What a strict endpoint refuses about a request."""
        for name in ("model", "max_tokens"):
            if not request.get(name):
                return f"{name}: Field required"
        if any(message["role"] == "system" for message in request["messages"]):
            return "the system prompt is a field of its own"
        thinks = (request.get("thinking") or {}).get("type") == "enabled"
        return anthropic_problem(request["messages"], thinks=thinks) or _forged(request)

    def pieces(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> list[Piece]:
        """The answer, without how it ended: a piece for each delta, with the beginning and end of its block."""
        out: list[Piece] = []
        for index, block in enumerate(_blocks(answer, str(request["model"]))):
            place = {"index": index}
            events = [[{"type": "content_block_delta", **place, "delta": delta}] for delta in block.deltas] or [[]]
            events[0].insert(0, {"type": "content_block_start", **place, "content_block": block.begins})
            for delta in block.seals:
                events[-1].append({"type": "content_block_delta", **place, "delta": delta})
            events[-1].append({"type": "content_block_stop", **place})
            out += [named(*piece) for piece in events]
        out = out or [[]]
        out[0] = [*named({"type": "message_start", "message": _head(request)}), *out[0]]
        return out

    def ending(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> Piece:  # noqa: ARG002
        """How an answer ended, what it cost, and the end."""
        delta = {"stop_reason": _reason(answer), "stop_sequence": None}
        return named({"type": "message_delta", "delta": delta, "usage": SPENT}, {"type": "message_stop"})

    def end(self) -> Piece:
        """Nothing: a stream that just ends."""
        return []

    def idle(self) -> Piece:
        """A sign of life and nothing else."""
        return named({"type": "ping"})

    def malformed(self) -> Piece:
        """An event that is not JSON."""
        return ['event: content_block_delta\ndata: {"type": ']

    def broken(self, body: Any) -> Piece:
        """An error inside a stream."""
        return named(body or {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

    def raw(self, chunk: Any) -> Piece:
        """An event as it was given; one without a type has the name of a delta."""
        kind = chunk.get("type") if isinstance(chunk, dict) else None
        return [f"event: {kind or 'content_block_delta'}\ndata: {text_of(chunk)}"]

    def whole(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request that does not ask for a stream."""
        content = [block.whole for block in _blocks(answer, str(request["model"]))]
        head = _head(request)
        return {**head, "content": content, "stop_reason": _reason(answer), "usage": {**head["usage"], **SPENT}}

    def refusal(self, message: str, code: str) -> Json:  # noqa: ARG002 - this form has types only
        """The body of a response that says no."""
        return {"type": "error", "error": {"type": "invalid_request_error", "message": message}}


class _Block(msgspec.Struct, frozen=True):
    """One block of an answer: as it begins, its deltas, those that seal it, and all of it."""

    begins: dict[str, Any]
    deltas: list[dict[str, Any]]
    whole: dict[str, Any]
    seals: list[dict[str, Any]] = []


def _blocks(answer: ScriptedAnswer, model: str) -> Iterator[_Block]:
    words = list(answer.words())
    if answer.reasoning:
        signature = signature_of(model, answer.reasoning)
        yield _Block(
            {"type": "thinking", "thinking": "", "signature": ""},
            [{"type": "thinking_delta", "thinking": word.text} for word in words if isinstance(word, ReasoningDelta)],
            {"type": "thinking", "thinking": answer.reasoning, "signature": signature},
            [{"type": "signature_delta", "signature": signature}],
        )
    if answer.text:
        texts = [{"type": "text_delta", "text": word.text} for word in words if isinstance(word, TextDelta)]
        yield _Block({"type": "text", "text": ""}, texts, {"type": "text", "text": answer.text})
    for call in answer.calls:
        said = [word.arguments for word in words if isinstance(word, CallDelta) and word.index == call.index]
        begins = {"type": "tool_use", "id": call.provider_id, "name": call.name, "input": {}}
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in said if piece]
        yield _Block(begins, pieces, {**begins, "input": parse_arguments(call.arguments)})


def _head(request: Mapping[str, Any]) -> dict[str, Any]:
    """A message as it begins."""
    head = {"id": "msg_scripted", "type": "message", "role": "assistant", "model": request["model"]}
    return {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": USAGE}


def _reason(answer: ScriptedAnswer) -> str:
    return REASONS.get(answer.finish_reason, answer.finish_reason)


def _forged(request: Mapping[str, Any]) -> str | None:
    """The first block of thinking that this model did not sign."""
    for number, message in enumerate(request["messages"]):
        for block in message["content"]:
            if block["type"] == "thinking" and block["signature"] != signature_of(request["model"], block["thinking"]):
                return f"messages[{number}]: Invalid `signature` in `thinking` block"
    return None
