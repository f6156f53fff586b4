"""The OpenAI chat-completions form: a `ModelRequest` to a request body, streamed chunks to deltas. No IO.

What goes out is a copy that a strict provider accepts; the log keeps the original:
    1. A body is a function of its request and nothing else, so the log gives every body again, byte for byte.
    2. Arguments go out as the model wrote them, unless they are no JSON object: providers refuse such a history for
       ever, so `{}` goes out and the call's result tells the model what was wrong.
    3. A tool name that the model made up goes out in letters that the form allows, for the same reason.
    4. An answer that shows neither text nor calls is left out: an empty message is refused.

What comes in is taken loosely where providers differ and refused where it makes no sense:
    5. A stream that ends without a `finish_reason` gives no `Finished`. It was cut, whatever else it said.
    6. `Finished` comes last, though some providers send a `finish_reason` in the middle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fencepost.core.events import CallRequest, Finish, Json, Reasoning, Usage, text_of
from fencepost.core.projection import AssistantTurn, Message, ModelRequest, ToolAnswer, UserTurn
from fencepost.plugins.wire import Form, count, finished
from fencepost.runtime.answer import parse_arguments
from fencepost.runtime.models import CallDelta, ModelDelta, ReasoningDelta, TextDelta, UsageDelta

OURS: Final = frozenset({"model", "messages", "tools", "stream", "stream_options", "n", "functions"})
"""Fields of a body that come from the log, or that the reading of the stream relies on: no setting may name them."""

ECHO: Final = "echo_reasoning"
"""A setting that is not sent: whether the model's reasoning goes back to it with its answers."""

MAX_NAME: Final = 64
"""Letters of a tool name in this form."""

MAX_ID: Final = 40
"""Letters of a call id in this form."""

FORM: Final = Form("chat-completions")

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")


# --- out --------------------------------------------------------------------------------------------------------


def chat_body(request: ModelRequest) -> dict[str, Json]:
    """The body of `POST /chat/completions` for `request` (rule 1)."""
    body: dict[str, Json] = {"model": request.model}
    body.update((name, value) for name, value in request.settings.items() if name not in OURS and name != ECHO)
    body["messages"] = list(_messages(request))
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in request.tools
        ]
    body["stream"] = True
    body["stream_options"] = {"include_usage": True}
    return body


def _messages(request: ModelRequest) -> Iterator[Json]:
    if request.system.strip():
        yield {"role": "system", "content": request.system}
    for message in request.messages:
        wired = _message(request, message)
        if wired is not None:
            yield wired


def _message(request: ModelRequest, message: Message) -> dict[str, Json] | None:
    match message:
        case UserTurn(content):
            return {"role": "user", "content": text_of(content)}
        case ToolAnswer():
            return {
                "role": "tool",
                "tool_call_id": _wire_id(request, message.call_id),
                "content": text_of(message.content),
            }
        case AssistantTurn():
            return _assistant(request, message)


def _assistant(request: ModelRequest, message: AssistantTurn) -> dict[str, Json] | None:
    calls = [block for block in message.content if isinstance(block, CallRequest)]
    text = text_of(message.content)
    if not calls and not text.strip():
        return None
    out: dict[str, Json] = {"role": "assistant", "content": text if text.strip() else None}
    reasoning = "".join(block.text for block in message.content if isinstance(block, Reasoning))
    if _echoes(request) and (reasoning or calls):
        out["reasoning_content"] = reasoning
    if calls:
        known = frozenset(tool.name for tool in request.tools)
        out["tool_calls"] = [
            {
                "id": _wire_id(request, call.call_id),
                "type": "function",
                "function": {"name": _wire_name(call.name, known), "arguments": _wire_arguments(call.arguments)},
            }
            for call in calls
        ]
    return out


def _echoes(request: ModelRequest) -> bool:
    """DeepSeek refuses a history with calls whose reasoning is missing, even where it was empty; OpenAI refuses the
    field. An endpoint of either kind behind another name is told apart by the setting."""
    return bool(request.settings.get(ECHO, request.provider == "deepseek"))


def _wire_id(request: ModelRequest, call_id: str) -> str:
    """The provider's own id where the projection found it usable, unless another provider made it too long."""
    wire = request.wire_ids[call_id]
    return wire if len(wire) <= MAX_ID else call_id


def _wire_name(name: str, known: frozenset[str]) -> str:
    if name in known:
        return name
    return _NOT_IN_NAMES.sub("_", name)[:MAX_NAME] or "unnamed"


def _wire_arguments(text: str) -> str:
    return text if text.strip() and isinstance(parse_arguments(text), dict) else "{}"


# --- in ---------------------------------------------------------------------------------------------------------

FINISHES: Final[Mapping[str, Finish]] = {
    "stop": "stop",
    "end_turn": "stop",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "content_filter",
}

FAILURES: Final = frozenset({"error", "abort", "insufficient_system_resource"})
"""Finish reasons that say: the provider broke off. Not an answer, whatever came before."""


class ChunkReader:
    """Turns the chunks of one stream into deltas.

    Attributes:
        chunks: how many chunks were read.
    """

    def __init__(self) -> None:
        self.chunks = 0
        self._finish: str | None = None
        self._contradicted = False
        self._shown = False
        self._last_index = 0

    @property
    def complete(self) -> bool:
        """Whether the end marker came and nothing behind it: a connection lost after that lost nothing."""
        return self._finish is not None and not self._contradicted

    def read(self, chunk: object) -> list[ModelDelta]:
        """The deltas of one chunk.

        Raises:
            ModelError: `MALFORMED_STREAM`, the chunk does not have the form.
        """
        self.chunks += 1
        fields = FORM.an_object(chunk, "a chunk")
        deltas: list[ModelDelta] = []
        for choice in FORM.an_array(fields.get("choices"), "`choices`"):
            deltas.extend(self._choice(FORM.an_object(choice, "a choice")))
        usage = fields.get("usage")
        if isinstance(usage, dict):
            deltas.append(UsageDelta(usage_of(usage)))
        return deltas

    def end(self) -> list[ModelDelta]:
        """What the stream said last (rule 6): nothing, where it was cut.

        Raises:
            ModelError: `PROVIDER_ERROR`, the end marker says that the provider broke off, or says something unknown
                and nothing came before it.
        """
        if self._finish is None:
            return []
        return [finished(self._finish, FINISHES, FAILURES, shown=self._shown)]

    def _choice(self, choice: dict[str, Any]) -> list[ModelDelta]:
        if choice.get("index") not in (None, 0):
            return []
        deltas = list(self._delta(FORM.an_object(choice.get("delta") or {}, "a delta")))
        if deltas:
            self._shown = True
            self._contradicted = self._contradicted or self._finish is not None
        self._finish = FORM.a_text(choice.get("finish_reason"), "`finish_reason`") or self._finish
        return deltas

    def _delta(self, delta: dict[str, Any]) -> Iterator[ModelDelta]:
        reasoning = FORM.a_text(delta.get("reasoning_content") or delta.get("reasoning"), "`reasoning_content`")
        if reasoning:
            yield ReasoningDelta(reasoning)
        for name in ("content", "refusal"):
            text = _words(delta.get(name), f"`{name}`")
            if text:
                yield TextDelta(text)
        for piece in FORM.an_array(delta.get("tool_calls"), "`tool_calls`"):
            yield self._piece(FORM.an_object(piece, "a tool call"))
        if delta.get("function_call"):
            yield self._piece({"index": 0, "function": delta["function_call"]})

    def _piece(self, piece: dict[str, Any]) -> CallDelta:
        """A piece without an index goes to the newest call; whether it begins another one, the assembler knows."""
        index = piece.get("index")
        if isinstance(index, int):
            self._last_index = index
        function = FORM.an_object(piece.get("function") or {}, "`function`")
        return CallDelta(
            self._last_index,
            FORM.a_text(piece.get("id"), "`id`"),
            FORM.a_text(function.get("name"), "`name`"),
            arguments_text(function.get("arguments")),
        )


def arguments_text(value: object) -> str:
    """The text of a call's arguments; some providers send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def usage_of(usage: Mapping[str, object]) -> Usage:
    """Token counts of this form; DeepSeek counts cached tokens under a name of its own."""
    details = usage.get("prompt_tokens_details")
    thinking = usage.get("completion_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    return Usage(
        input_tokens=count(usage.get("prompt_tokens")),
        output_tokens=count(usage.get("completion_tokens")),
        cached_tokens=count(usage.get("prompt_cache_hit_tokens") if cached is None else cached),
        reasoning_tokens=count(thinking.get("reasoning_tokens") if isinstance(thinking, dict) else None),
    )


def _words(value: object, what: str) -> str:
    """Text, or the text of content parts, which some providers stream instead."""
    if not isinstance(value, list):
        return FORM.a_text(value, what)
    return "".join(FORM.a_text(part.get("text"), what) for part in value if isinstance(part, dict))
