"""What a strict endpoint says about a transcript in the form of Anthropic's messages.

- the user begins, and the two sides take turns
- every call is answered, once, in the message right behind it, before anything else there
- no answer stands without its call; ids are not used twice, and are of letters that the form allows
- no message and no text is empty, and the last answer does not end in blanks
- thinking carries its signature, and no answer ends in it; where turns must think, the one that goes on began so
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


THOUGHTS = frozenset({"thinking", "redacted_thinking"})


def anthropic_problem(messages: Sequence[Mapping[str, Any]], *, thinks: bool = False) -> str | None:
    """The first thing about `messages` that is refused, as a sentence; None if there is nothing.

    Args:
        messages: of the request.
        thinks: whether it asks that every turn is thought through.
    """
    owed: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        expected = "assistant" if index % 2 else "user"
        problem = _message(message, expected, owed, seen)
        if problem is not None:
            return f"messages[{index}]: {problem}"
    if owed:
        return f"the calls {', '.join(owed)} have no result"
    last = messages[-1]["content"][-1] if messages else {}
    if last.get("type") == "text" and len(messages) % 2 == 0 and last["text"] != last["text"].rstrip():
        return "the last answer ends in blanks"
    return _thoughtless(messages) if thinks else None


def _thoughtless(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Whether the turn that is going on began without thinking."""
    for index in range(len(messages) - 1, 0, -2):
        if messages[index]["content"][0]["type"] != "tool_result":
            return None
        begins = index < 3 or messages[index - 2]["content"][0]["type"] != "tool_result"
        if begins and messages[index - 1]["content"][0]["type"] not in THOUGHTS:
            return f"messages[{index - 1}]: it must start with a thinking block"
    return None


def _message(message: Mapping[str, Any], expected: str, owed: list[str], seen: set[str]) -> str | None:
    if message.get("role") != expected:
        return f"{message.get('role')!r} where {expected} is next"
    blocks = message.get("content")
    if not isinstance(blocks, list) or not blocks:
        return "it is empty"
    for block in blocks:
        problem = _block(block, expected, owed, seen)
        if problem is not None:
            return problem
    if blocks[-1]["type"] in THOUGHTS:
        return "it ends in thinking"
    return f"the calls {', '.join(owed)} have no result in it" if owed and expected == "user" else None


def _block(block: Mapping[str, Any], role: str, owed: list[str], seen: set[str]) -> str | None:
    match role, block.get("type"):
        case _, "text":
            if role == "user" and owed:
                return "text stands in front of the results"
            return None if str(block.get("text", "")).strip() else "an empty text"
        case "user", "tool_result":
            name = block.get("tool_use_id")
            if name not in owed:
                return f"a result for {name!r}, which is not among the calls right before it"
            owed.remove(str(name))
            return None if isinstance(block.get("content"), str) else "a result that is no text"
        case "assistant", "thinking":
            signed = isinstance(block.get("thinking"), str) and bool(block.get("signature"))
            return None if signed else "thinking without its signature"
        case "assistant", "redacted_thinking":
            return None if block.get("data") else "hidden thinking without its data"
        case "assistant", "tool_use":
            return _call(block, owed, seen)
    return f"a block of type {block.get('type')!r} from the {role}"


def _call(block: Mapping[str, Any], owed: list[str], seen: set[str]) -> str | None:
    name = str(block.get("id"))
    if not _ID.fullmatch(name) or name in seen:
        return f"a call with the id {name!r}"
    if not _NAME.fullmatch(str(block.get("name"))):
        return f"a call to {block.get('name')!r}, which is no name"
    if not isinstance(block.get("input"), dict):
        return f"the arguments of {name!r} are no JSON object"
    seen.add(name)
    owed.append(name)
    return None
