"""A TCP proxy in front of a server, which cuts connections where a test wants it."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from typing import Self
from urllib.parse import urlsplit, urlunsplit


class Proxy:
    """Forwards bytes between clients and the server of `url`, each connection in a thread.

    Arm it with `cut`, for the next request that holds `word`: "request" loses it on its way there, "answer" loses the
    answer to it, which comes after the commit, "client" loses the client alone: the server goes on without it, and
    "ghost" does the same but keeps the request back until `haunt`.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = urlunsplit(parts._replace(netloc=f"{parts.username or 'postgres'}@127.0.0.1:{port}"))
        self.word = b"append_1"
        self.cut = ""
        self.cuts = 0
        self.happened = threading.Event()
        """Set when something was cut."""
        self._ghosts: list[tuple[socket.socket, bytes]] = []
        self._orphans: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, cut: str) -> None:
        """Cut once."""
        self.happened.clear()
        self.cut = cut

    def haunt(self) -> None:
        """Let the requests arrive that were kept back."""
        for server, request in self._ghosts:
            server.sendall(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for orphan in self._orphans:
            orphan.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self._target)
        except OSError:  # the server is away: so are we
            client.close()
            return
        with client, selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            with contextlib.suppress(OSError):
                self._pump(ready, client)
            if server not in self._orphans:
                server.close()

    def _pump(self, ready: selectors.DefaultSelector, client: socket.socket) -> None:
        losing_answer = False
        while True:
            for key, _ in ready.select():
                data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
                if not data or (losing_answer and key.fileobj is not client):
                    return
                cut = self.cut if self.word in data and key.fileobj is client else ""
                if cut:
                    self.cut, self.cuts = "", self.cuts + 1
                if cut == "request":
                    self.happened.set()
                    return
                if cut == "ghost":
                    self._ghosts.append((key.data, data))
                else:
                    key.data.sendall(data)
                losing_answer = losing_answer or cut == "answer"
                if cut in {"client", "ghost"}:
                    self._orphans.append(key.data)
                    self.happened.set()
                    return
                if cut:
                    self.happened.set()
