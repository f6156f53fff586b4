"""Lines of bytes out of pieces of bytes, cut at 0x0A only, with a limit that costs one line and not the connection."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.client.frames import LONGEST


class TooLong:
    """Stands for a line that was over the limit and was let go."""


class Lines:
    """Put pieces in, take lines out.

    Args:
        longest: bytes of a line at most, newline included.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._pieces: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | TooLong]:
        """The lines that `data` ends, without their newlines; blank ones are left out."""
        *ended, rest = data.split(b"\n")
        for piece in ended:
            line = self._line(piece)
            if line is not None:
                yield line
        self._keep(rest)

    def _line(self, last: bytes) -> bytes | TooLong | None:
        self._keep(last)
        skipped, pieces = self._skipping, self._pieces
        self._skipping, self._pieces, self._size = False, [], 0
        if skipped:
            return TooLong()
        line = b"".join(pieces).strip(b" \t\r")
        return line or None

    def _keep(self, piece: bytes) -> None:
        if self._skipping or not piece:
            return
        self._size += len(piece)
        if self._size >= self._longest:
            self._skipping, self._pieces = True, []
        else:
            self._pieces.append(piece)
