"""Bytes to messages and back: JSON-RPC, one message a line, over two descriptors.

Rules:
    1. A line ends at byte 0x0A and nowhere else: Unicode's other separators are text.
    2. A line takes `LIMIT` bytes at most, in both directions. A longer one is answered with an error, under its own id
       where that can be seen, and the connection lives.
    3. What is no message is answered too, and never reaches whoever reads here.
    4. Reading and writing are done by threads: a client that stands still does not stop the loop, and the modes of its
       descriptors, which others may share, are left alone.

What it refuses to be: it knows no method.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
from collections import deque
from contextvars import ContextVar
from typing import Any, TypeAlias

import msgspec

from fencepost.apps.cli.outlet import Outlet

LIMIT = 50 << 20
"""Bytes of one line at most, without its end."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INTERNAL_ERROR = -32603

_PIECE = 1 << 18
_AHEAD = 8
_HEAD = 512
_SEPARATORS = {one: f"\\u{ord(one):04x}" for one in "\u0085\u2028\u2029"}
_OPENING = re.compile(
    rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"id"\s*:\s*(-?\d{1,18}|"[^"\\\x00-\x1f]{0,200}")\s*,\s*'
    rb'(?:"jsonrpc"\s*:\s*"2\.0"\s*,\s*)?"(method|result|error)"'
)

Message: TypeAlias = dict[str, Any]
RequestId: TypeAlias = int | str | None

REQUEST: ContextVar[RequestId] = ContextVar("the request that this task answers", default=None)
"""Set before a message is handed out, so in force in the task that is made for it."""

SENT: ContextVar[list[RequestId] | None] = ContextVar("where ids of requests that this task sends go", default=None)


class TooLong(msgspec.Struct, frozen=True):
    """A line over the limit: only its beginning is known."""

    head: bytes


class Lines:
    """The lines of a descriptor, read by a thread that runs ahead a little.

    Args:
        fd: read, never closed.
        limit: bytes of a line at most.
    """

    def __init__(self, fd: int, limit: int = LIMIT) -> None:
        self._fd = fd
        self._limit = limit
        self._buffer = bytearray()
        self._seen = 0
        self._overlong: bytes | None = None
        self._pieces: deque[bytes] = deque()
        self._arrived = asyncio.Event()
        self._room = threading.Semaphore(_AHEAD)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read_all, name=f"lines {fd}", daemon=True).start()

    async def line(self) -> bytes | TooLong | None:
        """The next line without its end, the last one also where its end is missing; None behind it."""
        while (found := self._split()) is None:
            while not self._pieces:
                self._arrived.clear()
                await self._arrived.wait()
            if not (piece := self._pieces[0]):
                return self._rest()
            self._pieces.popleft()
            self._room.release()
            self._buffer += piece
        return found

    def _split(self) -> bytes | TooLong | None:
        end = self._buffer.find(b"\n", self._seen)
        whole = end >= 0
        if not whole:
            end = len(self._buffer)
        if self._overlong is None and end > self._limit:
            self._overlong = bytes(self._buffer[:_HEAD])
        if not whole and self._overlong is None:
            self._seen = end
            return None
        line = b"" if self._overlong is not None else bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._seen = 0
        if not whole:
            return None
        return self._whole(line)

    def _whole(self, line: bytes) -> bytes | TooLong:
        head, self._overlong = self._overlong, None
        return line if head is None else TooLong(head)

    def _rest(self) -> bytes | TooLong | None:
        """What stands in front of the end of input."""
        if not self._buffer and self._overlong is None:
            return None
        line = bytes(self._buffer)
        self._buffer.clear()
        return self._whole(line)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _read_all(self) -> None:
        piece = b"more"
        while piece:
            self._room.acquire()
            try:
                piece = os.read(self._fd, _PIECE)
            except OSError:
                piece = b""  # a terminal that hung up, or no standard input at all: the end of it
            try:
                self._loop.call_soon_threadsafe(self._arrive, piece)
            except RuntimeError:
                return  # the loop is closed: nobody reads any more

    def _arrive(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._arrived.set()


class StdioTransport:
    """Messages, for the SDK's `Connection`.

    Args:
        lines: what the client says.
        out: where the answers go.
        limit: bytes of a line at most.
    """

    def __init__(self, lines: Lines, out: Outlet, limit: int = LIMIT) -> None:
        self._lines = lines
        self._out = out
        self._limit = limit

    async def receive(self) -> Message | None:
        """The next message that has the form of one; None at the end of input."""
        while (line := await self._lines.line()) is not None:
            message = self._too_long(line) if isinstance(line, TooLong) else self._message(line)
            if message is not None:
                REQUEST.set(message.get("id"))
                return message
        return None

    def _message(self, line: bytes) -> Message | None:
        if not line.strip():
            return None
        try:
            found = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            self._refuse(None, PARSE_ERROR, f"this line is not JSON: {error}", "NOT_JSON")
            return None
        why = _malformed(found)
        if why is None:
            return dict(found)
        known = found.get("id") if isinstance(found, dict) and _is_id(found.get("id")) else None
        self._refuse(known, INVALID_REQUEST, f"this is no JSON-RPC 2.0 message: {why}", "NOT_A_MESSAGE")
        return None

    def _too_long(self, line: TooLong) -> Message | None:
        """Answer a request that is too long; an answer that is too long becomes an error for whoever waits for it."""
        opening = _OPENING.match(line.head)
        number: RequestId = None if opening is None else json.loads(opening[1])
        text = f"a line is longer than {self._limit} bytes"
        if opening is not None and opening[2] != b"method":
            return {"jsonrpc": "2.0", "id": number, "error": _error(INTERNAL_ERROR, text, "LINE_TOO_LONG")}
        self._refuse(number, INVALID_REQUEST, text, "LINE_TOO_LONG")
        return None

    def _refuse(self, number: RequestId, status: int, text: str, code: str) -> None:
        self._out.put(_encoded({"jsonrpc": "2.0", "id": number, "error": _error(status, text, code)}))

    async def send(self, message: Message) -> None:
        """Write a message behind all earlier ones; waits while too much waits to be written."""
        line = _encoded(message)
        if len(line) > self._limit + 1:
            line = self._instead(message, len(line))
        sent = SENT.get()
        if sent is not None and "method" in message and "id" in message:
            sent.append(message["id"])
        self._out.put(line)
        await self._out.room()

    def _instead(self, message: Message, size: int) -> bytes:
        text = f"what is to be said takes {size} bytes, more than the {self._limit} of a line"
        if "method" not in message:
            return _encoded({"jsonrpc": "2.0", "id": message["id"], "error": _error(-32603, text, "LINE_TOO_LONG")})
        sys.stderr.write(f"fencepost: {message['method']} is left out: {text}\n")
        return b""

    async def close(self) -> None:
        """Wait until all is written, or cannot be."""
        await self._out.drained()


def _malformed(found: Any) -> str | None:
    """Why this is no message; None for one."""
    if not isinstance(found, dict):
        return "it is no object (batches are not part of the protocol)"
    if "id" in found and not _is_id(found["id"]):
        return "its id is neither a whole number nor text"
    if "method" not in found:
        return None if "id" in found and ("result" in found or "error" in found) else "it has no method"
    return None if isinstance(found["method"], str) else "its method is no text"


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, int | str) and not isinstance(value, bool))


def _error(status: int, text: str, code: str) -> Message:
    return {"code": status, "message": text, "data": {"code": code}}


def _encoded(message: Message) -> bytes:
    """One line. Separators that some readers take for line ends are escaped, so that no client can fall for them."""
    text = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
    for separator, escaped in _SEPARATORS.items():
        text = text.replace(separator, escaped)
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can carry
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"
