"""What a strict provider says about a transcript in OpenAI chat form.

Real endpoints differ in how much they let pass. This is the strictest reading of all of them, so that a transcript
that passes here passes anywhere:

    - every call is answered, once, right behind the message that asks for it, before anything else is said
    - no answer stands without its call; ids are not empty, not too long, and not used twice in one transcript
    - tool names have letters that the form allows; arguments are one JSON object
    - no message is empty
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MAX_ID: Final = 40
"""Letters of a call id, at most."""


def pairing_problem(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """The first thing about `messages` that a strict provider refuses, as a sentence; None if there is nothing."""
    owed: list[str] = []
    seen: set[str] = set()
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "tool":
            problem = _answer(message, owed)
        elif owed:
            return f"messages[{index}]: {role} where the calls {', '.join(owed)} still have no result"
        elif role == "assistant":
            problem = _assistant(message, owed, seen)
        elif role in {"system", "developer", "user"}:
            problem = None if _filled(message.get("content")) else f"an empty {role} message"
        else:
            problem = f"no such role: {role!r}"
        if problem is not None:
            return f"messages[{index}]: {problem}"
    return f"the calls {', '.join(owed)} have no result" if owed else None


def _filled(content: object) -> bool:
    return isinstance(content, str) and bool(content.strip())


def _answer(message: Mapping[str, Any], owed: list[str]) -> str | None:
    call_id = message.get("tool_call_id")
    if not isinstance(message.get("content"), str):
        return f"the result of {call_id!r} has no text"
    if call_id not in owed:
        return f"a result for {call_id!r}, which is not among the calls right before it"
    owed.remove(call_id)
    return None


def _assistant(message: Mapping[str, Any], owed: list[str], seen: set[str]) -> str | None:
    calls = message.get("tool_calls")
    if calls is None:
        return None if _filled(message.get("content")) else "an empty assistant message"
    if not calls:
        return "`tool_calls` is an empty list"
    for call in calls:
        problem = _call(call, seen)
        if problem is not None:
            return problem
        seen.add(call["id"])
        owed.append(call["id"])
    return None


def _call(call: Mapping[str, Any], seen: set[str]) -> str | None:
    call_id, function = call.get("id"), call.get("function", {})
    if call.get("type") != "function":
        return f"a call of type {call.get('type')!r}"
    if not isinstance(call_id, str) or not 1 <= len(call_id) <= MAX_ID:
        return f"a call with the id {call_id!r}"
    if call_id in seen:
        return f"the id {call_id!r} is used twice"
    if not _NAME.fullmatch(function.get("name", "")):
        return f"a call to {function.get('name')!r}, which is no name"
    return None if _is_object(function.get("arguments")) else f"the arguments of {call_id!r} are no JSON object"


def _is_object(arguments: object) -> bool:
    if not isinstance(arguments, str):
        return False
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
