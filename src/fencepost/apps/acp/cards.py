"""What a client shows of one call: title, kind, places, difference, and what came of it.

Rules:
    1. All of it is made from the log, but the old content of a file that is written whole: that is looked at before the
       call is let go, and is not shown again when the history is replayed.
    2. A difference is shown of what is meant to happen, and stays while it happened or may have; of a call that did
       not run only the reason is shown.
    3. What is long is cut, with a word on it: the log and the session's files hold the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
from acp import schema
from acp.helpers import text_block, tool_content, tool_diff_content

from fencepost.core import events as ev
from fencepost.core.log import CallRecord
from fencepost.core.verdict import NOT_ENTERED, verdict_of
from fencepost.journal.inspect import arguments_of
from fencepost.plugins.files_place import Refusal, resolve

SHOWN = 1 << 18
"""Characters of a text of a call that are shown at most."""

TITLE = 100

_KINDS: dict[str, schema.ToolKind] = {
    "read_file": "read",
    "list_files": "search",
    "search_files": "search",
    "write_file": "edit",
    "edit_file": "edit",
    "shell": "execute",
}

_CHANGES: dict[str, tuple[str, ...]] = {"edit_file": ("old", "new"), "write_file": ("content",)}
"""The arguments that say what a call writes."""

Content: TypeAlias = schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent


class Card(schema.ToolCallStart):
    """A call, with the name of its tool: in the protocol, and not yet in the SDK's model."""

    name: str


class Before(msgspec.Struct, frozen=True):
    """What a file held before it was written whole; None for a file that was not there."""

    text: str | None


def card(record: CallRecord, cwd: Path, status: schema.ToolCallStatus, before: Before | None = None) -> Card:
    """A call as it is announced."""
    arguments = arguments_of(record)
    known = arguments if isinstance(arguments, dict) else {}
    return Card(
        session_update="tool_call",
        tool_call_id=record.call_id,
        name=record.name,
        title=title_of(record.name, known),
        kind=kind_of(record.name),
        status=status,
        locations=locations_of(known, cwd) or None,
        content=list(difference(record.name, known, cwd, before)) or None,
        raw_input=arguments if len(record.arguments) <= SHOWN else None,
    )


def kind_of(name: str) -> schema.ToolKind:
    """The category of a tool."""
    return _KINDS.get(name, "other")


def title_of(name: str, arguments: Mapping[str, Any]) -> str:
    """A call in a few words."""
    path, words = arguments.get("path"), name.replace("_", " ").capitalize()
    if name == "shell":
        return _short(str(arguments.get("command", name)))
    if name == "search_files":
        return _short(f"Search for {arguments.get('pattern', '')} in {path or '.'}")
    if name in _KINDS:
        return _short(f"{words.split()[0]} {path or '.'}")
    return _short(name)


def _short(text: str) -> str:
    line = " ".join(text.split()) or "call"
    return line if len(line) <= TITLE else line[: TITLE - 1] + "…"


def locations_of(arguments: Mapping[str, Any], cwd: Path) -> list[schema.ToolCallLocation]:
    """The file that the call is about."""
    place = _place(arguments, cwd)
    if place is None:
        return []
    line = arguments.get("offset")
    known = line if isinstance(line, int) and not isinstance(line, bool) and 0 < line < 1 << 32 else None
    return [schema.ToolCallLocation(path=str(place), line=known)]


def _place(arguments: Mapping[str, Any], cwd: Path) -> Path | None:
    path = arguments.get("path")
    if not isinstance(path, str):
        return None
    try:
        return resolve(path, cwd)
    except Refusal:
        return None  # no file can have this path


def difference(name: str, arguments: Mapping[str, Any], cwd: Path, before: Before | None) -> tuple[Content, ...]:
    """What a writing call changes; empty where that is not known, or too long."""
    place = _place(arguments, cwd)
    texts = tuple(arguments.get(part) for part in _CHANGES.get(name, ()))
    if place is None or not texts or not all(isinstance(text, str) and len(text) <= SHOWN for text in texts):
        return ()
    if name == "edit_file":
        return (tool_diff_content(str(place), str(texts[1]), str(texts[0])),)
    if before is None or len(before.text or "") > SHOWN:
        return (text_content(str(texts[0])),)
    return (tool_diff_content(str(place), str(texts[0]), before.text),)


def outcome(record: CallRecord, cwd: Path, before: Before | None = None) -> schema.ToolCallProgress:
    """The end of a call that has its result."""
    result = record.result
    assert result is not None
    found = verdict_of(record, ())
    text = text_content(ev.text_of(result.content))
    arguments = arguments_of(record)
    kept: tuple[Content, ...] = ()
    if (
        result.code not in NOT_ENTERED
        and isinstance(arguments, dict)
        and (found.verdict != "completed" or not result.is_error)
    ):
        kept = difference(record.name, arguments, cwd, before)
    return progress(
        record.call_id,
        status="failed" if result.is_error else "completed",
        content=(*kept, text),
        about={"verdict": found.verdict, "code": result.code, "settled_by": result.settled_by},
    )


def progress(
    call_id: str,
    *,
    status: schema.ToolCallStatus | None,
    content: tuple[Content, ...],
    about: dict[str, Any] | None = None,
) -> schema.ToolCallProgress:
    """Something new about a call.

    Args:
        about: for programs, under `_meta.fencepost`.
    """
    return schema.ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=call_id,
        status=status,
        content=list(content) or None,
        field_meta=None if about is None else {"fencepost": about},
    )


def text_content(text: str) -> Content:
    """Text below a call, cut in the middle where it is long."""
    if len(text) > SHOWN:
        half = SHOWN // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters are not shown …]\n{text[-half:]}"
    return tool_content(text_block(text))
