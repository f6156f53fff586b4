"""The form of Anthropic's messages, going out: a `ModelRequest` to a request body. No IO.

What goes out is a copy that a strict endpoint accepts; the log keeps the original:
    1. A body is a function of its request and nothing else, so the log gives every body again, byte for byte.
    2. Thinking goes back to the letter, with the signature that came with it, to the model that thought it; or not at
       all. A block whose text could not be kept as it was takes the others of its answer with it: a part of an answer's
       thinking is a changed answer.
    3. A turn is thought through, or it is not: one whose first answer goes out without its thinking goes on without.
    4. Results stand right behind the answer that asked, in front of whatever else the user says there; what one side
       says in a row is one message; the user begins.
    5. Arguments go out as the object that the model wrote; as an empty one where it wrote none, and the call's result
       tells it what was wrong. Names and ids go out in letters that the form allows.
    6. Nothing empty goes out: no text, no message; and no answer ends in blanks, or in thinking.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from fencepost.core.events import Block, CallRequest, Json, Reasoning, Text, text_of
from fencepost.core.projection import AssistantTurn, Message, ModelRequest, ToolAnswer, UserTurn
from fencepost.runtime.answer import parse_arguments

PROVIDER: Final = "anthropic"
"""The provider that is recorded, and the owner of what `Reasoning.opaque` holds."""

OURS: Final = frozenset({"model", "messages", "system", "tools", "stream"})
"""Fields of a body that come from the log, or that the reading of the stream relies on: no setting may name them."""

THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
"""Types of blocks that hold thinking."""

MAX_NAME: Final = 128
"""Letters of a tool name in this form."""

MAX_ID: Final = 64
"""Letters of a call id, at most; ids of ours are shorter."""

BEGINNING: Final = "(The beginning of this conversation is missing.)"
"""Stands in front of a transcript that an answer begins."""

EMPTY: Final = "(empty)"
"""The result of a call that gave back nothing."""

_OTHER_LETTERS = re.compile(r"[^a-zA-Z0-9_-]")


def messages_body(request: ModelRequest) -> dict[str, Json]:
    """The body of `POST /v1/messages` for `request` (rule 1)."""
    body: dict[str, Json] = {"model": request.model}
    body.update((name, value) for name, value in request.settings.items() if name not in OURS)
    talk = conversation(request)
    if not _thought_through(talk["messages"]) and _must_think(body.get("thinking")):
        del body["thinking"]
    return {**body, **talk, "stream": True}


def conversation(request: ModelRequest) -> dict[str, Any]:
    """What was said, and with which tools: `system` and `tools` where there are any, and `messages`."""
    out: dict[str, Any] = {"system": request.system} if request.system.strip() else {}
    if request.tools:
        out["tools"] = [
            {
                "name": _wire_name(tool.name),
                "description": tool.description,
                "input_schema": {"type": "object", **tool.parameters},
            }
            for tool in request.tools
        ]
    out["messages"] = _turns(request)
    return out


def _turns(request: ModelRequest) -> list[dict[str, Any]]:
    """The messages; what one side says in a row is one message."""
    turns: list[tuple[str, list[Json]]] = []
    ids = _wire_ids(request)
    for message in request.messages:
        role = "assistant" if isinstance(message, AssistantTurn) else "user"
        blocks = list(_blocks(message, ids, request))
        if not blocks:
            continue
        if turns and turns[-1][0] == role:
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, blocks))
    if turns and turns[0][0] == "assistant":
        turns.insert(0, ("user", [{"type": "text", "text": BEGINNING}]))
    return [{"role": role, "content": blocks} for role, blocks in turns]


def _blocks(message: Message, ids: dict[str, str], request: ModelRequest) -> Iterator[Json]:
    match message:
        case UserTurn(content):
            text = text_of(content)
            if text.strip():
                yield {"type": "text", "text": text}
        case ToolAnswer():
            result: dict[str, Json] = {"type": "tool_result", "tool_use_id": ids[message.call_id]}
            failed: dict[str, Json] = {"is_error": True} if message.is_error else {}
            yield {**result, "content": text_of(message.content) or EMPTY, **failed}
        case AssistantTurn(content):
            yield from _answer(content, ids, request)


def _answer(content: tuple[Block, ...], ids: dict[str, str], request: ModelRequest) -> list[Json]:
    """The blocks of an answer, in the model's order (rules 2 and 6)."""
    thinks = all(_thought(block, request) is not None for block in content if isinstance(block, Reasoning))
    blocks: list[dict[str, Json]] = []
    for block in content:
        match block:
            case Text(text):
                if text.strip():
                    blocks.append({"type": "text", "text": text})
            case CallRequest():
                blocks.append(_call(block, ids))
            case Reasoning():
                thought = _thought(block, request)
                if thinks and thought is not None:
                    blocks.append(thought)
    while blocks and blocks[-1]["type"] in THOUGHTS:
        blocks.pop()
    if blocks and blocks[-1]["type"] == "text":
        blocks[-1] = {"type": "text", "text": str(blocks[-1]["text"]).rstrip()}
    return list(blocks)


def _call(call: CallRequest, ids: dict[str, str]) -> dict[str, Json]:
    arguments = parse_arguments(call.arguments)
    given = arguments if isinstance(arguments, dict) else {}
    return {"type": "tool_use", "id": ids[call.call_id], "name": _wire_name(call.name), "input": given}


def _wire_ids(request: ModelRequest) -> dict[str, str]:
    """For each call an id of letters that the form allows, used once."""
    out: dict[str, str] = {}
    used: set[str] = set()
    for ours, wire in request.wire_ids.items():
        name = _OTHER_LETTERS.sub("_", wire if len(wire) <= MAX_ID else ours) or "call"
        while name in used:
            name += "_"
        used.add(name)
        out[ours] = name
    return out


def _wire_name(name: str) -> str:
    return _OTHER_LETTERS.sub("_", name)[:MAX_NAME] or "unnamed"


# --- thinking ---------------------------------------------------------------------------------------------------


def seal(model: str, thought: dict[str, str]) -> Json:
    """What is kept with a block of thinking: its own fields beside the text, and the model that they are good for.

    Args:
        model: as requests name it.
        thought: `signature`, or `data` where the thinking itself is hidden.
    """
    return {"provider": PROVIDER, "model": model, **thought}


def _thought(block: Reasoning, request: ModelRequest) -> dict[str, Json] | None:
    """The block as it came; None where it cannot be given back (rule 2)."""
    kept = block.opaque
    if not isinstance(kept, dict) or (kept.get("provider"), kept.get("model")) != (request.provider, request.model):
        return None
    match kept:
        case {"data": str(data)}:
            return {"type": "redacted_thinking", "data": data}
        case {"signature": str(signature)}:
            return {"type": "thinking", "thinking": block.text, "signature": signature}
    return None


def _must_think(thinking: Json) -> bool:
    """Whether every turn has to begin with thinking. Where the model decides by itself it need not."""
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def _thought_through(turns: list[dict[str, Any]]) -> bool:
    """Whether the turn that is going on, if calls were made in it, began with thinking (rule 3)."""
    begun = None
    for asked, answered in zip(turns[-2::-2], turns[-1::-2], strict=False):
        if answered["content"][0]["type"] != "tool_result":
            break
        begun = asked
    return begun is None or begun["content"][0]["type"] in THOUGHTS
