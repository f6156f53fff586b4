"""What a command printed: the beginning and the end for the model, all of it in a file, pieces as text for people.

Memory is bounded whatever is printed. The file is written in a thread of its own, so that a slow disk does not stop
the loop, and the next piece is not read before the last one is written, so that a fast command waits for the disk.
A file that cannot be written is told to the model and never fails the command.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HEAD = 8_192
"""Bytes of the beginning that the model gets."""
TAIL = 24_576
"""Bytes of the end that the model gets."""
COPY_LIMIT = 1 << 30
"""Bytes that the file takes at most."""


class Transcript:
    """The output of one command.

    Args:
        path: the file with everything; made with the first byte. One that is there is added to: the same call may
            be run again under its id.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.total = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._stream = codecs.getincrementaldecoder("utf-8")("replace")
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="shell output")
        self._file: int | None = None
        self._copied = 0
        self._trouble = ""

    async def add(self, piece: bytes) -> str:
        """Take the next piece; returns it as text, without a character that is not whole yet."""
        self.total += len(piece)
        room = HEAD - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room > 0 else piece
        if len(self._tail) > TAIL:
            del self._tail[:-TAIL]
        if not self._trouble:
            await asyncio.get_running_loop().run_in_executor(self._writer, self._copy, piece)
        return self._stream.decode(piece)

    def close(self) -> None:
        """Let the file go; what was handed to the thread is still written. Idempotent."""
        self._writer.submit(self._close_file)
        self._writer.shutdown(wait=False)

    def _copy(self, piece: bytes) -> None:
        try:
            if self._file is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            rest = memoryview(piece)[: COPY_LIMIT - self._copied]
            while rest:
                written = os.write(self._file, rest)
                self._copied += written
                rest = rest[written:]
            if self._copied >= COPY_LIMIT:
                self._trouble = "it reached its limit"
        except OSError as error:
            self._trouble = error.strerror or str(error)

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    # --- for the model ------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The output, or its beginning and its end with a line between that says what is left out and where it is."""
        if self.total <= HEAD + TAIL:
            return bytes(self._head + self._tail).decode("utf-8", "replace")
        head, cut = _whole_characters(self._head)
        tail, start = _from_first_character(self._tail)
        left_out = self.total - HEAD - TAIL + cut + start
        line_end = "" if head.endswith("\n") else "\n"
        return f"{head}{line_end}[… {left_out} bytes are left out here; {self.whereabouts} …]\n{tail}"

    @property
    def whereabouts(self) -> str:
        """Where all of the output is."""
        if not self._trouble:
            return f"all {self.total} bytes are in {self.path}"
        if not self._copied:
            return f"they could not be kept in {self.path}: {self._trouble}"
        return f"the first {self._copied} of {self.total} bytes are in {self.path}, then {self._trouble}"


def _whole_characters(data: bytearray) -> tuple[str, int]:
    """`data` as text, and how many bytes of a cut character at its end were left out."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(bytes(data))
    return text, len(decoder.getstate()[0])


def _from_first_character(data: bytearray) -> tuple[str, int]:
    """`data` as text, and how many bytes of a cut character at its start were left out."""
    start = 0
    while start < min(3, len(data)) and data[start] & 0xC0 == 0x80:
        start += 1
    return bytes(data[start:]).decode("utf-8", "replace"), start
