"""`read_file`, `list_files` and `search_files`: what is there, bounded, with a word on all that was left out.

Lines end with byte 0x0A and nothing else: Unicode's other separators are text, as in every editor and in the log.
"""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, BinaryIO

import msgspec
from msgspec import Meta

from fencepost.plugins import files_walk
from fencepost.plugins.files_place import (
    IO,
    NOT_A_DIRECTORY,
    Refusal,
    answering,
    open_regular,
    outside,
    require_regular,
    resolve,
)
from fencepost.plugins.files_walk import SNIFFED, Entry, Tree, glob_matcher
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext, ToolReply

BINARY = "BINARY"
PAST_END = "PAST_END"
BAD_PATTERN = "BAD_PATTERN"
TOO_SLOW = "TOO_SLOW"

LINES = 2_000
"""Lines that one read gives at most."""
READ_BYTES = 65_536
"""Bytes that one read gives at most."""
LINE_BYTES = 4_096
"""Bytes of one line that are shown at most."""
ENTRIES = 1_000
"""Entries that one listing gives at most."""
VISITED = 200_000
"""Entries that a listing looks at, at most."""
MATCHES = 200
"""Lines that one search gives at most."""
SEARCH_BYTES = 32_768
"""Bytes that one search gives at most."""
SEARCH_SECONDS = 20
"""After these a search gives what it has."""
LOOK_SECONDS = 0.1
"""How often a running search looks whether it was cancelled."""


# --- read_file --------------------------------------------------------------------------------------------------


@tool(effect="read", guard=outside)
@answering
def read_file(
    context: CallContext,
    path: Annotated[str, Meta(description="the file")],
    offset: Annotated[int, Meta(ge=1, description="the first line to give, from 1")] = 1,
    limit: Annotated[int, Meta(ge=1, le=LINES, description="how many lines to give")] = LINES,
) -> ToolReply:
    """Read a text file, or some of its lines. Long files and lines are cut, with a note that says how to go on."""
    descriptor = open_regular(resolve(path, context.cwd), path)
    with os.fdopen(descriptor, "rb") as file:
        _refuse_binary(file.read(SNIFFED), path)
        file.seek(0)
        _skip(file, offset - 1, path)
        return ToolReply(_Page(file, offset, limit).text)


def _refuse_binary(start: bytes, path: str) -> None:
    at = start.find(b"\0")
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise Refusal(BINARY, f"{path}: it is UTF-16 text; convert it first, for instance with iconv.")
    if at >= 0:
        raise Refusal(BINARY, f"{path}: it is not text (NUL byte at offset {at}); look at it with a command.")


def _skip(file: BinaryIO, lines: int, path: str) -> None:
    for done in range(lines):
        if not _line(file)[0]:
            raise Refusal(PAST_END, f"{path}: it has only {done} lines, so there is no line {lines + 1}.")


def _line(file: BinaryIO) -> tuple[bytes, int]:
    """The next line, as far as it is shown, and its real length in bytes."""
    kept = file.readline(LINE_BYTES)
    length = len(kept)
    while kept and not kept.endswith(b"\n"):
        more = file.readline(READ_BYTES)
        length += len(more)
        if not more or more.endswith(b"\n"):
            break
    return kept, length


class _Page:
    """Some lines of a file, as text with notes below."""

    def __init__(self, file: BinaryIO, first: int, limit: int) -> None:
        self._parts: list[str] = []
        self._notes: list[str] = []
        self._size = 0
        self._odd = False
        number = first
        while number < first + limit and self._size < READ_BYTES:
            kept, length = _line(file)
            if not kept:
                break
            self._add(number, kept, length)
            number += 1
        if self._odd:
            self._notes.append("bytes that are not UTF-8 are shown as \ufffd; edit_file cannot match them")
        if file.read(1):
            self._notes.append(f"lines {first} to {number - 1}; the file goes on: read it with offset={number}")
        elif number == first:
            self._notes.append("the file is empty" if first == 1 else f"the file ends before line {first}")

    def _add(self, number: int, kept: bytes, length: int) -> None:
        self._size += len(kept)
        if length == len(kept):
            text = kept.decode("utf-8", "replace")
        else:
            text = codecs.getincrementaldecoder("utf-8")("replace").decode(kept) + "…\n"
            self._notes.append(f"line {number} is cut: {len(kept)} of its {length} bytes are shown")
        self._odd = self._odd or ("\ufffd" in text and "\ufffd".encode() not in kept)
        self._parts.append(text)

    @property
    def text(self) -> str:
        """What the model reads."""
        body = "".join(self._parts)
        if not self._notes:
            return body
        line_end = "\n" if body and not body.endswith("\n") else ""
        return body + line_end + "".join(f"[{note}]\n" for note in self._notes)


# --- list_files -------------------------------------------------------------------------------------------------


@tool(effect="read", guard=outside)
@answering
def list_files(
    context: CallContext,
    path: Annotated[str, Meta(description="the directory")] = ".",
    pattern: Annotated[str, Meta(description="a glob such as *.py or src/**/test_*; all if not given")] | None = None,
    depth: Annotated[int, Meta(ge=1, description="how many levels to go down; all if not given")] | None = None,
) -> ToolReply:
    """List a directory and what is below it: directories end with /, links show where they point."""
    place = resolve(path, context.cwd)
    if not place.is_dir():
        place.stat()  # says so if there is nothing at all
        raise Refusal(NOT_A_DIRECTORY, f"{path}: it is a file, not a directory.")
    wanted = glob_matcher(pattern.removeprefix("./")) if pattern else None
    tree = Tree(str(place))
    found: list[Entry] = []
    note = ""
    for visited, entry in enumerate(tree.entries(depth)):
        if len(found) == ENTRIES or visited == VISITED:
            note = f"[cut after {len(found)} entries; give a deeper path, a smaller depth or a pattern]\n"
            break
        if wanted is None or wanted.fullmatch(entry.path):
            found.append(entry)
    return ToolReply(_listing(found, _prefix(path), note, tree.unreadable))


def _listing(found: list[Entry], prefix: str, note: str, unreadable: int) -> str:
    lines = []
    for entry in sorted(found, key=lambda one: one.path.split("/")):
        name = f"{prefix}{entry.path}".replace("\n", "\\n")
        lines.append(f"{name}/" if entry.is_dir else name if entry.link is None else f"{name} -> {entry.link}")
    text = "".join(f"{line}\n" for line in lines) or "(nothing)\n"
    if unreadable:
        note += f"[{unreadable} directories could not be read]\n"
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") + note


def _prefix(path: str) -> str:
    """What to put before entries so that the model can use them as paths."""
    cleaned = os.path.normpath(path)
    return "" if cleaned == "." else cleaned.rstrip("/") + "/"


# --- search_files -----------------------------------------------------------------------------------------------


@tool(effect="read", guard=outside)
@answering
def search_files(
    context: CallContext,
    pattern: Annotated[str, Meta(description="a Python regular expression; (?i) in front ignores case")],
    path: Annotated[str, Meta(description="the directory, or one file")] = ".",
    glob: Annotated[str, Meta(description="search only in these, such as *.py; all if not given")] | None = None,
) -> ToolReply:
    """Search text files line by line. Gives path:line:text. Binary and very large files are passed over."""
    place = resolve(path, context.cwd)
    if not place.is_dir():
        require_regular(place.stat(), path)
    if "\0" in pattern + (glob or ""):
        raise Refusal(BAD_PATTERN, r"A pattern cannot hold a NUL character; write \x00.")
    shown = _prefix(path) if place.is_dir() else path
    return _search(context, [str(place), shown, pattern, (glob or "").removeprefix("./")])


class _Found(msgspec.Struct, frozen=True):
    """What the search process said, and why it was ended, if it was."""

    out: bytes
    err: bytes
    code: int
    stopped: str


def _search(context: CallContext, what: list[str]) -> ToolReply:
    limits = [str(MATCHES), str(SEARCH_BYTES), str(2 * SEARCH_SECONDS)]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own script
            [sys.executable, "-I", "-S", str(Path(files_walk.__file__)), *what, *limits],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except UnicodeEncodeError:
        raise Refusal(BAD_PATTERN, "The pattern holds half of a surrogate pair.") from None
    with process:
        found = _follow(context, process)
    text = found.out.decode("utf-8", "replace")
    if context.cancel.cancelled and found.stopped:
        return ToolReply("the search was ended because the turn was cancelled", unknown=True, detail=text)
    if found.stopped:
        note = (
            f"[ended after {SEARCH_SECONDS} s; not everything was searched: give a path, a glob or a simpler pattern]"
        )
        return ToolReply(f"{text}{note}\n", is_error=True, code=TOO_SLOW)
    if found.code == 2:
        raise Refusal(BAD_PATTERN, f"The pattern is not a regular expression: {found.err.decode().strip()}.")
    if found.code != 0:
        raise Refusal(IO, f"The search failed: {found.err.decode('utf-8', 'replace').strip()[-300:]}.")
    return ToolReply((text or "(no match)\n") + _passed_over(found.err))


def _follow(context: CallContext, process: subprocess.Popen[bytes]) -> _Found:
    """Wait for the search; end it when it takes too long, or is not wanted any more."""
    deadline = time.monotonic() + SEARCH_SECONDS
    stopped = ""
    while True:
        try:
            out, err = process.communicate(timeout=LOOK_SECONDS)
            return _Found(out, err, process.returncode, stopped)
        except subprocess.TimeoutExpired:
            if context.cancel.cancelled or time.monotonic() > deadline:
                stopped = "cancelled" if context.cancel.cancelled else "too slow"
                process.kill()


def _passed_over(counts: bytes) -> str:
    more, binary, large, unreadable = map(int, counts.split())
    notes = []
    if more:
        notes.append("there are more matches; narrow the search")
    if binary:
        notes.append(f"{binary} binary files were passed over")
    if large:
        notes.append(f"{large} files over {files_walk.LARGEST >> 20} MiB were passed over")
    if unreadable:
        notes.append(f"{unreadable} files or directories could not be read")
    return "".join(f"[{note}]\n" for note in notes)
