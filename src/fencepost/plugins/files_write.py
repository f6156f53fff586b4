"""`write_file` and `edit_file`: a file is replaced whole and durably, or not at all.

The new content is written beside the old, synced, renamed over it, and the directory is synced: a reader, a crash or
a power cut sees the old file or the new one. Mode, and the owner where we may, are kept; a symbolic link is followed
and stays; other hard links to the old file keep the old content. New directories are synced into their parents.

Bytes that an edit does not touch stay as they are, whatever their encoding or line ends.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from fencepost.plugins.files_place import (
    IO,
    PERMISSION,
    Refusal,
    answering,
    open_regular,
    outside,
    require_regular,
    resolve,
)
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext, ToolReply

NOT_TEXT = "NOT_TEXT"
TOO_LARGE = "TOO_LARGE"
NO_MATCH = "NO_MATCH"
SEVERAL_MATCHES = "SEVERAL_MATCHES"
NOTHING_TO_CHANGE = "NOTHING_TO_CHANGE"
CHANGED = "CHANGED"

EDIT_BYTES = 16 << 20
"""Bytes of the largest file that can be edited."""


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
    _make_directories(place.parent)
    _replace(place, path, data, old)
    was = "a new file" if old is None else f"in place of {old.st_size}"
    return ToolReply(f"Wrote {len(data)} bytes to {path} ({was}).")


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
    _replace(place, path, after, before.stat, unchanged=True)
    line = before.data.count(b"\n", 0, edit.at) + 1
    return ToolReply(f"Edited {path} at line {line}: {len(before.data)} bytes became {len(after)}.")


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


def _make_directories(directory: Path) -> None:
    missing = []
    while not directory.exists():
        missing.append(directory)
        directory = directory.parent
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
        _sync_directory(one.parent)


def _replace(place: Path, path: str, data: bytes, old: os.stat_result | None, *, unchanged: bool = False) -> None:
    """Put `data` in place of a file, durably, or leave everything as it was.

    Args:
        place: the file.
        path: the same in the model's words.
        data: its new content.
        old: the file as it was when the decision to replace it was made; None if there was none.
        unchanged: refuse if it is not like `old` any more.
    """
    beside = place.with_name(f".{secrets.token_hex(8)}.fencepost")
    mode = 0o666 if old is None else stat.S_IMODE(old.st_mode)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode & 0o777)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if old is not None:
                _take_over(file.fileno(), old)
            file.flush()
            os.fsync(file.fileno())
        if unchanged and old is not None and _changed(place, old):
            raise Refusal(CHANGED, f"{path}: it was changed meanwhile by something else; read it again.")
        beside.replace(place)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    try:
        _sync_directory(place.parent)
    except OSError as error:
        raise Refusal(IO, f"{path}: it was replaced, but may not survive a power cut ({error.strerror}).") from None


def _take_over(descriptor: int, old: os.stat_result) -> None:
    """The owner, where we may, and the mode; in this order, for a change of owner clears bits of the mode."""
    with contextlib.suppress(PermissionError):  # only root may give files away
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _changed(place: Path, old: os.stat_result) -> bool:
    now = place.stat()
    return (now.st_ino, now.st_size, now.st_mtime_ns) != (old.st_ino, old.st_size, old.st_mtime_ns)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
