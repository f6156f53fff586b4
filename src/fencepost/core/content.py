"""What events are made of: pieces of text, requests for calls, token counts, and what is told of a tool.

Imported through `events`, which names all of it: one door for the vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

if TYPE_CHECKING:
    Json: TypeAlias = "str | int | float | bool | list[Json] | dict[str, Json] | None"
else:
    Json = Any  # a decoder cannot be built from a type that names itself; what it reads from JSON is JSON anyway
Effect: TypeAlias = Literal["read", "idempotent", "write"]

EFFECTS: tuple[Effect, ...] = ("read", "idempotent", "write")


class Text(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    """A piece of text that a person wrote, a tool gave back, or the model said."""

    text: str


class Reasoning(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="reasoning", omit_defaults=True):
    """Text that the model marked as thinking: kept apart from the answer. `opaque` belongs to the provider."""

    text: str
    opaque: Json = None


class CallRequest(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="tool_call", omit_defaults=True):
    """The model asks for a call. `call_id` is ours; `arguments` is the model's text, to the letter, JSON or not."""

    call_id: str
    name: str
    arguments: str
    provider_id: str = ""


Block: TypeAlias = Text | Reasoning | CallRequest


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Tokens of one answer, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class ToolSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the model is told of a tool: part of the request, so part of the log.

    `effect` is what the tool declared when the request was made. It is not sent; it tells the reader of a call that was
    never admitted what it would have done.
    """

    name: str
    description: str
    parameters: dict[str, Json]
    effect: Effect = "write"
