"""What a command printed, as the model reads it: all of it, or its beginning and its end with a line between.

The same for a command that just ended, for one whose receipt was found after a crash, and for one that left only its
file.
"""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import msgspec

from fencepost.plugins.shell_record import HEAD, TAIL

LAST_LINES = 10
LAST_BYTES = 1000
"""How much of the end is told where it has to be short."""


class Printed(msgspec.Struct, frozen=True):
    """The output of one command.

    Attributes:
        path: the file with everything.
        total: bytes that it printed.
        kept: bytes of them that are in the file.
        trouble: why not all of them are; empty if they are.
        head: its first `HEAD` bytes.
        tail: its last `TAIL` bytes, those in `head` left out.
    """

    path: Path
    total: int = 0
    kept: int = 0
    trouble: str = ""
    head: bytes = b""
    tail: bytes = b""

    @classmethod
    def in_file(cls, path: Path, offset: int) -> Printed:
        """What the file says where nothing else does.

        Args:
            path: the file; it may be missing.
            offset: where in it the command began.

        Raises:
            OSError: it cannot be read.
        """
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return cls(path)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor is no path
            total = max(0, os.fstat(descriptor).st_size - offset)
            file.seek(offset)
            head = file.read(min(HEAD, total))
            file.seek(offset + max(len(head), total - TAIL))
            return cls(path, total, total, "", head, file.read(TAIL))

    @property
    def text(self) -> str:
        """The output, or its beginning and its end with a line between that says what is left out and where it is."""
        if self.total <= HEAD + TAIL:
            return (self.head + self.tail).decode("utf-8", "replace")
        head, cut = _whole_characters(self.head)
        tail, start = _from_first_character(self.tail)
        left_out = self.total - HEAD - TAIL + cut + start
        line_end = "" if head.endswith("\n") else "\n"
        return f"{head}{line_end}[… {left_out} bytes are left out here; {self.whereabouts} …]\n{tail}"

    @property
    def whereabouts(self) -> str:
        """Where all of the output is."""
        if not self.trouble:
            return f"all {self.total} bytes are in {self.path}"
        if not self.kept:
            return f"they could not be kept in {self.path}: {self.trouble}"
        return f"the first {self.kept} of {self.total} bytes are in {self.path}, then {self.trouble}"

    @property
    def at_length(self) -> str:
        """What is known of it when its command did not come to its end."""
        return f"It had printed:\n{self.text}" if self.total else "It had printed nothing."

    @property
    def in_short(self) -> str:
        """The same for where there is little room: how much, and the last lines."""
        if not self.total:
            return "It had printed nothing"
        text, _ = _from_first_character((self.head + self.tail)[-LAST_BYTES:])
        lines = text.rstrip("\n").split("\n")[-LAST_LINES:]
        last = "\n".join(lines)
        return f"It had printed {self.total} bytes ({self.path}), the last of them:\n{last}"


def _whole_characters(data: bytes) -> tuple[str, int]:
    """`data` as text, and how many bytes of a cut character at its end were left out."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data)
    return text, len(decoder.getstate()[0])


def _from_first_character(data: bytes) -> tuple[str, int]:
    """`data` as text, and how many bytes of a cut character at its start were left out."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return data[start:].decode("utf-8", "replace"), start
