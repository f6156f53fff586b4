"""Every request passes a strict pairing check, in OpenAI form and in Anthropic form.

The OpenAI check ships (`fencepost.testing.pairing_problem`). The Anthropic one stands here, by the letter of what that
API refuses: roles alternate and begin with the user; each `tool_use` is answered in the very next message, whose
`tool_result` blocks come first, one for each and no other; ids are unique and of its alphabet; no text is empty.
"""

import re

import msgspec

from fencepost.core import events as ev
from fencepost.core.projection import AssistantTurn, ModelRequest, ToolAnswer, UserTurn
from fencepost.plugins.openai_wire import chat_body
from fencepost.testing import pairing_problem

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def anthropic_messages(request: ModelRequest) -> list[dict]:
    """The transcript in Anthropic form; neighbours with one role are one message there."""
    out: list[dict] = []
    for message in request.messages:
        role = "assistant" if isinstance(message, AssistantTurn) else "user"
        blocks = list(_blocks(request, message))
        if not blocks:
            continue
        if out and out[-1]["role"] == role:
            out[-1]["content"].extend(blocks)
        else:
            out.append({"role": role, "content": blocks})
    return out


def _blocks(request: ModelRequest, message):
    match message:
        case UserTurn(content):
            yield {"type": "text", "text": ev.text_of(content)}
        case ToolAnswer():
            yield {
                "type": "tool_result",
                "tool_use_id": request.wire_ids[message.call_id],
                "content": ev.text_of(message.content),
                "is_error": message.is_error,
            }
        case AssistantTurn(content):
            for block in content:
                if isinstance(block, ev.Text) and block.text:
                    yield {"type": "text", "text": block.text}
                elif isinstance(block, ev.CallRequest):
                    arguments = msgspec.json.decode(block.arguments or "{}")
                    identity = request.wire_ids[block.call_id]
                    yield {"type": "tool_use", "id": identity, "name": block.name, "input": arguments}


def anthropic_problem(messages: list[dict]) -> str | None:
    """The first thing that a strict reading of the API refuses, or None."""
    owed: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        expected = "assistant" if index % 2 else "user"
        if message["role"] != expected:
            return f"messages[{index}] is {message['role']} where {expected} is due"
        problem = _answers(message, owed) if expected == "user" else _asks(message, owed, seen)
        if problem is not None:
            return f"messages[{index}]: {problem}"
    return f"tool_use without tool_result: {owed}" if owed else None


def _answers(message: dict, owed: list[str]) -> str | None:
    kinds = [block["type"] for block in message["content"]]
    answered = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
    if kinds[: len(answered)] != ["tool_result"] * len(answered):
        return "a tool_result stands behind text"
    if sorted(answered) != sorted(owed):
        return f"results for {answered} where {owed} are owed"
    owed.clear()
    return _empty_text(message)


def _asks(message: dict, owed: list[str], seen: set[str]) -> str | None:
    for block in message["content"]:
        if block["type"] != "tool_use":
            continue
        if not _ID.fullmatch(block["id"]) or block["id"] in seen:
            return f"the id {block['id']!r} is not usable, or used twice"
        if not isinstance(block["input"], dict):
            return f"the input of {block['id']!r} is no object"
        seen.add(block["id"])
        owed.append(block["id"])
    return _empty_text(message)


def _empty_text(message: dict) -> str | None:
    texts = [block["text"] for block in message["content"] if block["type"] == "text"]
    return None if all(text.strip() for text in texts) else "an empty text block"


def transcript_problem(request: ModelRequest) -> str | None:
    """What either of the two strict readings refuses about a request, or None."""
    problem = pairing_problem(chat_body(request)["messages"])
    return problem or anthropic_problem(anthropic_messages(request))
