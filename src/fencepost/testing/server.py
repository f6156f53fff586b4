"""`ModelServer`: a real HTTP server on 127.0.0.1 that speaks from a script, misbehaving on request.

    with ModelServer(["Hello.", {"content": "Bye.", "fault": {"kind": "cut", "after": 1}}]) as server:
        model = OpenAIModel("any", base_url=server.url)
        other = AnthropicModel("any", base_url=server.anthropic_url)

Which form it speaks is a matter of the path: OpenAI chat completions, or Anthropic's messages.

Rules:
    1. A transcript that a strict provider refuses is refused, with 400 and the reason.
    2. It misbehaves only where the script says so (`plan` has the list).
    3. It uses the standard library only: what a test wants to see on the wire, no framework may tidy up.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from fencepost.testing.chat_form import ChatForm
from fencepost.testing.forms import Piece, ServerForm
from fencepost.testing.messages_form import MessagesForm
from fencepost.testing.plan import Attempt, Fault, Hold, Plan

FORMS: Final[dict[str, ServerForm]] = {form.path: form for form in (ChatForm(), MessagesForm())}

POLL_SECONDS: Final = 0.02
"""How soon a closed server notices."""


class ModelServer:
    """The server; a context manager that runs it.

    Args:
        script: answers and faults; see `plan`.
        port: the port to take; 0 for a free one.
        on_hold: called with the number of a hold, from 0 in script order, when an answer reaches it.

    Attributes:
        requests: the body of every request, as bytes, in the order in which they came.
        headers: the headers of every request, names in lower case.

    Raises:
        NotAnAnswerError: an item of the script does not have the form; a `ValueError`.
        OSError: the port is taken.
    """

    def __init__(self, script: Iterable[Any], *, port: int = 0, on_hold: Callable[[int], None] | None = None) -> None:
        self.plan = Plan(script)
        self.requests: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self._on_hold = on_hold
        self._http = _Http(port, self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(POLL_SECONDS,), name="model server")

    def __repr__(self) -> str:
        return f"<ModelServer {self.url} {len(self.plan)} answers, {len(self.requests)} requests>"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._http.server_address[1])

    @property
    def url(self) -> str:
        """The base URL for a client (`OPENAI_BASE_URL`)."""
        return f"{self.anthropic_url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for a client of the other form (`ANTHROPIC_BASE_URL`)."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def holds(self) -> list[Hold]:
        """The holds of the script, in its order."""
        return self.plan.holds

    def start(self) -> None:
        """Serve, in threads of its own."""
        self._thread.start()

    def close(self) -> None:
        """Release every hold, end every connection, and wait until its threads have ended."""
        for hold in self.holds:
            hold.release.set()
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.end_connections()
        self._http.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        """Note a request."""
        self.headers.append(headers)
        self.requests.append(body)

    def stand(self, hold: Hold) -> None:
        """Wait at a hold until it is released."""
        hold.reached.set()
        if self._on_hold is not None:
            self._on_hold(self.holds.index(hold))
        hold.release.wait()


class _Http(ThreadingHTTPServer):
    """Joins its threads when it is closed, so that none outlives a test."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, port: int, owner: ModelServer) -> None:
        self.owner = owner
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", port), _Exchange)

    def end_connections(self) -> None:
        for connection in tuple(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Exchange(BaseHTTPRequestHandler):
    """One connection: requests and their answers."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Http

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def handle(self) -> None:
        """A client that goes away is no news here."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        super().finish()

    def log_message(self, *args: Any) -> None:
        """Nothing on stderr."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        form = FORMS.get(self.path)
        if form is None:
            self._json(404, FORMS[min(FORMS)].refusal(f"there is no {self.path}", "not_found"))
            return
        owner = self.server.owner
        owner.take(body, {name.lower(): value for name, value in self.headers.items()})
        request, problem = _read(body, form)
        if problem is not None:
            self._json(400, form.refusal(problem, "invalid_request"))
            return
        answered = sum(message["role"] == "assistant" for message in request["messages"])
        attempt = owner.plan.choose(answered)
        if attempt is None:
            self._json(400, form.refusal(f"the script has no answer {answered + 1}", "script_exhausted"))
            return
        self._respond(attempt, request, form)

    def _respond(self, attempt: Attempt, request: dict[str, Any], form: ServerForm) -> None:
        fault = attempt.fault
        if attempt.hold is not None and (fault is None or fault.after is None):
            self.server.owner.stand(attempt.hold)
        if fault is not None and fault.kind == "status":
            self._json(fault.status, fault.body, fault.headers)
        elif not request.get("stream"):
            self._json(200, form.whole(attempt.answer, request))
        else:
            self._stream(attempt, request, form)

    # --- a stream -----------------------------------------------------------------------------------------------

    def _stream(self, attempt: Attempt, request: dict[str, Any], form: ServerForm) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        before = form.pieces(attempt.answer, request)
        fault, after = attempt.fault, list[Piece]()
        if fault is not None:
            place = fault.after if fault.after is not None else len(before) if fault.kind == "no_finish" else 0
            before, after = before[:place], before[place:]
        for piece in before:
            self._events(piece)
        if attempt.hold is not None and fault is not None and fault.after is not None:
            self.server.owner.stand(attempt.hold)
        if fault is None or fault.kind == "hold":
            for piece in (*after, form.ending(attempt.answer, request)):
                self._events(piece)
            self._chunk(b"")
        else:
            self._misbehave(fault, form)

    def _misbehave(self, fault: Fault, form: ServerForm) -> None:
        match fault.kind:
            case "malformed":
                self._events(form.malformed())
            case "error":
                self._events(form.broken(fault.body))
            case "no_choices":
                self._events(form.idle())
            case "raw":
                for chunk in fault.chunks:
                    self._events(form.raw(chunk))
                self._events(form.end())
            case "reset":
                self._reset()
        if fault.kind in {"cut", "reset"}:
            self.close_connection = True
        else:
            self._chunk(b"")

    def _reset(self) -> None:
        """Closing with a linger of zero resets; detached, so that nobody says an orderly goodbye first."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(self.connection.detach())

    def _events(self, piece: Piece) -> None:
        for event in piece:
            self._chunk(f"{event}\n\n".encode())

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    # --- one object ---------------------------------------------------------------------------------------------

    def _json(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        data = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        kind = "text/html" if isinstance(value, str) else "application/json"
        self.send_response(status)
        for name, text in {"Content-Type": kind, **(headers or {}), "Content-Length": str(len(data))}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(data)


def _read(body: bytes, form: ServerForm) -> tuple[dict[str, Any], str | None]:
    """The request, and what a strict provider refuses about it."""
    try:
        request = json.loads(body)
        return request, form.problem(request)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return {}, f"the body is no {form.name} request: {error!r}"
