"""A server for the tests of `http_request`: real sockets, that do as they are told, and remember what they heard."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable
from typing import Self


class Peer:
    """A server on the loopback that reads one whole request on each connection, and then answers as it is told.

    Args:
        answer: given the connection and the request's head and body; the connection is closed behind it.
        tls: a context, for https.

    Attributes:
        heard: head and body of each request, in their order.
        connections: how many were accepted.
    """

    def __init__(
        self, answer: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> None:
        self._answer = answer
        self._tls = tls
        self._listening = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port = self._listening.getsockname()[1]
        self.heard: list[tuple[str, bytes]] = []
        self.connections = 0
        self.arrived = threading.Event()
        """Set when a whole request has arrived."""
        self._thread = threading.Thread(target=self._serve, daemon=True)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(30)

    def header(self, name: str, at: int = -1) -> list[str]:
        """The values of a header of a request."""
        lines = self.heard[at][0].split("\r\n")[1:]
        return [line.partition(":")[2].strip() for line in lines if line.partition(":")[0].lower() == name.lower()]

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._one(connection)

    def _one(self, connection: socket.socket) -> None:
        connection.settimeout(30)
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                self.heard.append(_read(connection))
                self.arrived.set()
                self._answer(connection)
        except OSError:
            return  # the other side went away, as some tests want it


def _read(connection: socket.socket) -> tuple[str, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            raise OSError("half a request")
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        body += connection.recv(65536)
    return head.decode(), body


def saying(
    status: str = "200 OK", body: bytes = b"", *headers: str, length: int | None = None
) -> Callable[[socket.socket], None]:
    """An answer; with a `length` that the body does not have it is cut off."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body) if length is None else length}", *headers, "", ""]
    return lambda connection: connection.sendall("\r\n".join(lines).encode() + body)


def silence(connection: socket.socket) -> None:
    """The connection is closed without a word."""
