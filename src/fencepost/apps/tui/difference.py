"""What a writing call changes, as lines that stand on their own without colour: `+` and `-` in front.

The old content of a file that is written whole is no part of the log: it is looked at before the call is let go. Where
nobody looked, the new content is shown as it is.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fencepost.plugins.files_place import Refusal, resolve

LONGEST = 1 << 18
"""Bytes of a file, or characters of an argument, that are compared at most."""

CHANGING = ("edit_file", "write_file")


def old_content(name: str, arguments: Mapping[str, Any], cwd: Path) -> str | None:
    """What the file holds that a call would write whole; empty for no file, None where that cannot be told."""
    path = arguments.get("path")
    if name != "write_file" or not isinstance(path, str):
        return None
    try:
        place = resolve(path, cwd)
        if not place.is_file():
            return None if place.exists() else ""
        if place.stat().st_size > LONGEST:
            return None
        return place.read_text()
    except (OSError, UnicodeDecodeError, Refusal):
        return None  # the tool will say what is wrong with it


def changed_lines(name: str, arguments: Mapping[str, Any], before: str | None) -> tuple[str, ...]:
    """The difference that a call makes; empty for a call that changes no file.

    Args:
        name: of the tool.
        arguments: of the call.
        before: from `old_content`.
    """
    if name == "edit_file":
        old, new = arguments.get("old"), arguments.get("new")
    elif name == "write_file":
        old, new = before, arguments.get("content")
    else:
        return ()
    if not isinstance(new, str) or len(new) > LONGEST:
        return ()
    if not isinstance(old, str):
        return tuple(f"+{line}" for line in new.splitlines())
    return tuple(_lines(old, new))


def _lines(old: str, new: str) -> Iterator[str]:
    compared = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2)
    for number, line in enumerate(compared):
        if number > 2:  # the first two name files, and the third one says where
            yield "…" if line.startswith("@@") else line


def counted(lines: tuple[str, ...]) -> str:
    """A difference in a few characters."""
    added = sum(line.startswith("+") for line in lines)
    return f"+{added} -{sum(line.startswith('-') for line in lines)}"
