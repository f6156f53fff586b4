"""`write_file` and `edit_file`: a file is replaced whole and durably, or not at all.

Bytes that an edit does not touch stay as they are, whatever their encoding or line ends. How a file is replaced is
told in `files_replace`, and what is known of it after a crash in `file_receipts`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from fencepost.plugins.file_receipts import Found, content_of, found_at, settle, tidy
from fencepost.plugins.files_place import (
    PERMISSION,
    Refusal,
    answering,
    open_regular,
    outside,
    require_regular,
    resolve,
)
from fencepost.plugins.files_replace import Change, replace
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext, Tool, ToolReply

NOT_TEXT = "NOT_TEXT"
TOO_LARGE = "TOO_LARGE"
NO_MATCH = "NO_MATCH"
SEVERAL_MATCHES = "SEVERAL_MATCHES"
NOTHING_TO_CHANGE = "NOTHING_TO_CHANGE"

EDIT_BYTES = 16 << 20
"""Bytes of the largest file that can be edited."""


def _locked(arguments: dict[str, Any], cwd: Path) -> str | None:
    """Two calls that change the same file wait for each other, whatever they call it."""
    try:
        return str(resolve(str(arguments.get("path", "")), cwd))
    except Refusal:
        return None  # the tool refuses it by itself


def _receipted(made: Tool) -> Tool:
    return msgspec.structs.replace(made, lock=_locked, settle=settle, tidy=tidy)


@_receipted
@tool(effect="idempotent", guard=outside)
@answering
def write_file(
    context: CallContext,
    path: Annotated[str, Meta(description="the file; directories on the way are made")],
    content: Annotated[str, Meta(description="all of it")],
) -> ToolReply:
    """Write a whole file, replacing what is there."""
    place = resolve(path, context.cwd)
    data = _encoded(content)
    old = _stat(place, path)
    was = "a new file" if old is None else f"in place of {old.st_size}"
    said = f"Wrote {len(data)} bytes to {path} ({was})."
    before = None if old is None else found_at(place, old)
    replace(context, Change(place, path, old, before, data, said))
    return ToolReply(said)


@_receipted
@tool(effect="write", guard=outside)
@answering
def edit_file(
    context: CallContext,
    path: Annotated[str, Meta(description="the file")],
    old: Annotated[str, Meta(description="the text to replace, exactly as it stands there, once")],
    new: Annotated[str, Meta(description="what to put there")],
) -> ToolReply:
    """Replace one piece of a text file. The old text has to be there exactly once; give more lines to make it so."""
    place = resolve(path, context.cwd)
    if not old:
        raise Refusal(NOTHING_TO_CHANGE, "The old text is empty; write_file makes new files.")
    if old == new:
        raise Refusal(NOTHING_TO_CHANGE, "The old and the new text are the same.")
    before = _read(place, path)
    edit = _located(before.data, _encoded(old), _encoded(new), path)
    after = before.data[: edit.at] + edit.new + before.data[edit.at + len(edit.old) :]
    _require_writable(place, path)
    line = before.data.count(b"\n", 0, edit.at) + 1
    said = f"Edited {path} at line {line}: {len(before.data)} bytes became {len(after)}."
    found = Found(content_of(before.data), before.stat.st_ino, before.stat.st_ctime_ns)
    replace(context, Change(place, path, before.stat, found, after, said, unchanged=True))
    return ToolReply(said)


# --- finding the place of an edit -------------------------------------------------------------------------------


class _Before(msgspec.Struct, frozen=True):
    """A file as it was read."""

    data: bytes
    stat: os.stat_result


class _Edit(msgspec.Struct, frozen=True):
    """The one place of an edit."""

    at: int
    old: bytes
    new: bytes


def _read(place: Path, path: str) -> _Before:
    with os.fdopen(open_regular(place, path), "rb") as file:
        found = os.fstat(file.fileno())
        if found.st_size > EDIT_BYTES:
            raise Refusal(TOO_LARGE, f"{path}: its {found.st_size} bytes are too many to edit; use a command.")
        return _Before(file.read(), found)


def _located(data: bytes, old: bytes, new: bytes, path: str) -> _Edit:
    """Where `old` is. Line ends count as the file has them, where the model gives plain ones and the file CRLF."""
    places = _places(data, old)
    if not places and b"\r\n" in data and b"\r" not in old:
        old, new = (text.replace(b"\n", b"\r\n") for text in (old, new.replace(b"\r\n", b"\n")))
        places = _places(data, old)
    if len(places) == 1:
        return _Edit(places[0], old, new)
    if not places:
        raise Refusal(NO_MATCH, f"{path}: the old text is not there (0 matches). {_hint(data, old)}")
    lines = ", ".join(str(data.count(b"\n", 0, at) + 1) for at in places[:5])
    more = " and more" if len(places) > 5 else ""
    raise Refusal(
        SEVERAL_MATCHES,
        f"{path}: the old text is there {len(places)} times, at lines {lines}{more}. "
        "Nothing was changed; give more of the lines around the one that is meant.",
    )


def _places(data: bytes, old: bytes) -> list[int]:
    """Where `old` begins in `data`; overlapping places are different places."""
    found = []
    at = data.find(old)
    while at >= 0:
        found.append(at)
        at = data.find(old, at + 1)
    return found


def _hint(data: bytes, old: bytes) -> str:
    """Where the model may have meant."""
    lines = data.split(b"\n")
    wanted = next((line.split() for line in old.split(b"\n") if line.strip()), None)
    for number, line in enumerate(lines, 1):
        if wanted and line.split() == wanted:
            return f"Line {number} is like its first line; compare what follows, and white space, with read_file."
    return "Read the file again and copy the text exactly."


# --- replacing --------------------------------------------------------------------------------------------------


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Refusal(NOT_TEXT, f"The text holds half of a surrogate pair at {error.start}.") from None


def _stat(place: Path, path: str) -> os.stat_result | None:
    """The file that is going to be replaced; None if there is none."""
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    require_regular(found, path)
    _require_writable(place, path)
    return found


def _require_writable(place: Path, path: str) -> None:
    """Renaming over a file needs no permission on it; the one who protected it meant it, though."""
    if not os.access(place, os.W_OK):
        raise Refusal(PERMISSION, f"{path}: it is write-protected.")
