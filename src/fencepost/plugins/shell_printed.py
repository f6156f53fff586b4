"""What a command printed, on its way through the supervisor: into a file, into the receipt, to the agent if it listens.

Memory is bounded whatever is printed, and nothing here waits for the agent: what it does not take in time is left out
of what it is shown, never out of the file. A file that cannot be written is told in the receipt and fails no command.
"""

# ruff: noqa: PTH120

import binascii
import os
import socket

from fencepost.plugins.shell_record import HEAD, TAIL, make_directory, sync, sync_directory

COPY_LIMIT = 1 << 30
"""Bytes that the file takes at most."""
BACKLOG = 1 << 18
"""Bytes that wait for the agent at most."""


class Kept:
    """The output: its beginning, its end, and a file with all of it.

    Args:
        path: the file; made with the first byte, added to if it is there.
    """

    def __init__(self, path: str) -> None:
        self.total = 0
        self.kept = 0
        self.trouble = ""
        """Why not all of it is in the file; empty if it is."""
        self.offset = _size(path)
        self._path = path
        self._made = False
        self._file = -1
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, piece: bytes) -> None:
        """Take the next piece."""
        self.total += len(piece)
        room = HEAD - len(self._head)
        self._head += piece[:room]
        self._tail += piece[room:] if room > 0 else piece
        if len(self._tail) > TAIL:
            del self._tail[:-TAIL]
        if not self.trouble:
            self._copy(piece)

    def _copy(self, piece: bytes) -> None:
        try:
            if self._file < 0:
                self._open()
            rest = memoryview(piece)[: COPY_LIMIT - self.kept]
            while rest:
                written = os.write(self._file, rest)
                self.kept += written
                rest = rest[written:]
            if self.kept >= COPY_LIMIT:
                self.trouble = "it reached its limit"
        except OSError as error:
            self.trouble = error.strerror or str(error)

    def _open(self) -> None:
        make_directory(os.path.dirname(self._path))
        self._made = not os.path.lexists(self._path)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def settle(self) -> None:
        """Make durable what a receipt without it could not tell: one that fits into the receipt is left to it."""
        if self._file < 0:
            return
        try:
            if self.total > HEAD + TAIL:
                sync(self._file)
                if self._made:
                    sync_directory(os.path.dirname(self._path))
            os.close(self._file)
        except OSError as error:
            self.trouble = self.trouble or error.strerror or str(error)
        self._file = -1

    def fields(self) -> dict[str, object]:
        """For the receipt."""
        return {
            "total": self.total,
            "kept": self.kept,
            "trouble": self.trouble,
            "head": binascii.b2a_base64(self._head, newline=False).decode(),
            "tail": binascii.b2a_base64(self._tail, newline=False).decode(),
        }


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


class Line:
    """What goes to the agent: frames of a letter, a length of four bytes, and so many bytes.

    Args:
        control: the socket, which does not block.
    """

    def __init__(self, control: socket.socket) -> None:
        self.open = True
        self._control = control
        self._waiting = bytearray()
        self._skipped = 0

    @property
    def waiting(self) -> bool:
        """Whether something has to be sent."""
        return self.open and bool(self._waiting)

    def show(self, piece: bytes) -> None:
        """A piece of the output, if the agent keeps up."""
        if not self.open:
            return
        if len(self._waiting) > BACKLOG:
            self._skipped += len(piece)
            return
        self.catch_up()
        self.say(b"o", piece)

    def catch_up(self) -> None:
        """Show that something was not shown."""
        if self._skipped:
            self.say(b"o", f"\n[… {self._skipped} bytes are not shown here …]\n".encode())
            self._skipped = 0

    def say(self, kind: bytes, text: bytes) -> None:
        """A frame."""
        if self.open:
            self._waiting += kind + len(text).to_bytes(4, "big") + text
            self.send()

    def send(self) -> None:
        """As much as goes."""
        try:
            while self._waiting:
                del self._waiting[: self._control.send(self._waiting)]
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def close(self) -> None:
        """Nobody listens any more."""
        self.open = False
        self._waiting.clear()
