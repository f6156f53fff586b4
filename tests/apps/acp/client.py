"""A raw client of the editor protocol: real processes, and every frame held against the official schema, both ways."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema_rs

from tests.apps.command import SECONDS, Command

SCHEMA = Path(__file__).parents[2] / "peers/node_modules/@agentclientprotocol/sdk/schema/v1"
"""Installed by `make peers`."""

HOLDS = "echo begun > begun; while test -e begun; do sleep 0.1; done"
"""A command that does something, and does not return before its file is gone."""

Frame = dict[str, Any]
Answer = Callable[[Frame], Any]


class Schema:
    """The official schema: the stable one, and the draft for `session/fork`, which is not stable yet."""

    def __init__(self) -> None:
        stable = json.loads((SCHEMA / "schema.json").read_text())
        draft = json.loads((SCHEMA / "schema.unstable.json").read_text())
        self._checks: dict[str, Any] = {}
        self._by_method: dict[tuple[str, str], str] = {}
        for defs in (draft["$defs"], stable["$defs"]):
            for name, one in defs.items():
                if "x-method" in one:
                    kind = next((end for end in ("Request", "Response", "Notification") if name.endswith(end)), "")
                    self._by_method[one["x-method"], kind] = name
                    validator = jsonschema_rs.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": defs})
                    self._checks[name] = validator
        whole = jsonschema_rs.Draft202012Validator(stable)
        self._whole = whole
        self._error = jsonschema_rs.Draft202012Validator({"$ref": "#/$defs/Error", "$defs": stable["$defs"]})
        self.stable = set(stable["$defs"])

    def check(self, frame: Frame, asked: dict[Any, str]) -> None:
        """Check one frame.

        Args:
            asked: the method of each request of the other side, by id.
        """
        assert frame["jsonrpc"] == "2.0", frame
        if "method" not in frame:
            if "error" in frame:
                self._error.validate(frame["error"])
            else:
                self._part(asked[frame["id"]], "Response", frame["result"])
            return
        kind = "Request" if "id" in frame else "Notification"
        self._part(frame["method"], kind, frame["params"])
        if frame["method"] != "session/fork":
            self._whole.validate(frame)

    def _part(self, method: str, kind: str, value: Any) -> None:
        self._checks[self._by_method[method, kind]].validate(value)


class Client:
    """One client and its server process.

    Args:
        cli: where the server runs.
        schema: what every frame is held against; None for a client that sends what is wrong.
        words: of the command line, behind `acp`.
    """

    def __init__(self, cli: Command, schema: Schema | None, *words: str, **options: Any) -> None:
        self.process: subprocess.Popen[bytes] = cli.start("acp", *words, stdin=subprocess.PIPE, **options)
        self.frames: list[tuple[str, Frame]] = []
        """What was said, `>` by the client and `<` by the server, in order."""
        self.answers: dict[str, Answer] = {}
        """How the client answers the server's requests; one that is not there stays unanswered."""
        self._schema = schema
        self._asked: dict[str, dict[Any, str]] = {">": {}, "<": {}}
        self._number = 0
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    # --- saying -------------------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """Say one frame."""
        with self._news:
            self.frames.append((">", frame))
            if "method" in frame and "id" in frame:
                self._asked[">"][frame["id"]] = frame["method"]
            self.raw(json.dumps(frame).encode() + b"\n")

    def raw(self, data: bytes) -> None:
        """Say bytes."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def request(self, method: str, **params: Any) -> int:
        """Ask, without waiting; gives the request's id."""
        self._number += 1
        self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        return self._number

    def notify(self, method: str, **params: Any) -> None:
        """Tell."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    # --- hearing ------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            frame = json.loads(line)
            with self._news:
                self.frames.append(("<", frame))
                if "method" in frame and "id" in frame:
                    self._asked["<"][frame["id"]] = frame["method"]
                self._news.notify_all()
            if "method" in frame and "id" in frame and frame["method"] in self.answers:
                result = self.answers[frame["method"]](frame["params"])
                if result is not None:
                    self.send({"jsonrpc": "2.0", "id": frame["id"], "result": result})
        with self._news:
            self._ended = True
            self._news.notify_all()

    def until(self, wanted: Callable[[], Any], what: str = "") -> Any:
        """Wait until `wanted` gives something, and give that."""
        found: Any = None

        def there() -> bool:
            nonlocal found
            found = wanted()
            return bool(found) or self._ended

        with self._news:
            assert self._news.wait_for(there, SECONDS), (what, self.frames[-10:])
        assert found, (what, self.frames[-10:], self._why())
        return found

    def _why(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode() if self.process.poll() is not None else "it is running"

    def heard(self, method: str) -> list[Frame]:
        """The server's requests or notifications of a method so far."""
        return [frame for side, frame in self.frames if side == "<" and frame.get("method") == method]

    def response(self, number: Any) -> Frame:
        """The answer to a request, once it is there."""

        def there() -> Frame | None:
            return next(
                (
                    frame
                    for side, frame in self.frames
                    if side == "<" and "method" not in frame and frame["id"] == number
                ),
                None,
            )

        return self.until(there, f"the answer to {number}")

    def result(self, number: Any) -> Frame:
        """The result of a request."""
        response = self.response(number)
        assert "result" in response, response
        return response["result"]

    def call(self, method: str, **params: Any) -> Frame:
        """Ask, and give the result."""
        return self.result(self.request(method, **params))

    def refused(self, method: str, **params: Any) -> Frame:
        """Ask, and give the error."""
        response = self.response(self.request(method, **params))
        assert "error" in response, response
        return response["error"]

    # --- sessions -----------------------------------------------------------------------------------------------

    def initialize(self, **capabilities: Any) -> Frame:
        """Begin."""
        return self.call("initialize", protocolVersion=1, clientCapabilities=capabilities)

    def new(self, cwd: Path, servers: list[Frame] | None = None) -> str:
        """A new session; gives its id."""
        return self.call("session/new", cwd=str(cwd), mcpServers=servers or [])["sessionId"]

    def ask(self, session: str, text: str) -> int:
        """Prompt, without waiting."""
        return self.request("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def prompt(self, session: str, text: str) -> str:
        """Prompt; gives the stop reason."""
        return self.result(self.ask(session, text))["stopReason"]

    def updates(self, session: str, *kinds: str) -> list[Frame]:
        """The updates of a session so far, of some kinds or all."""
        params = [frame["params"] for frame in self.heard("session/update")]
        found = [one["update"] for one in params if one["sessionId"] == session]
        return [one for one in found if not kinds or one["sessionUpdate"] in kinds]

    def said(self, session: str) -> str:
        """What the agent said."""
        return "".join(one["content"]["text"] for one in self.updates(session, "agent_message_chunk"))

    # --- the end ------------------------------------------------------------------------------------------------

    def close(self) -> int:
        """Close the client's end, wait for the server's, and check every frame; gives the exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        status = self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        self.check()
        return status

    def kill(self) -> None:
        """Kill the server, and check what it had said."""
        self.process.kill()
        self.process.wait(SECONDS)
        self._reader.join(SECONDS)
        self.check()

    def check(self) -> None:
        """Hold every frame against the schema."""
        if self._schema is None:
            return
        for side, frame in self.frames:
            self._schema.check(frame, self._asked["<" if side == ">" else ">"])

    def gone(self) -> None:
        """Let go of a process that has ended."""
        self._reader.join(SECONDS)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def errors(self) -> str:
        """What the server wrote to standard error, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()


def until(wanted: Callable[[], Any]) -> None:
    """Wait for what no frame tells."""
    deadline = time.monotonic() + SECONDS
    while not wanted():
        assert time.monotonic() < deadline, wanted
        time.sleep(0.02)


def writes(path: str, content: str) -> Frame:
    """An answer of a model that writes a file."""
    return {"tool_calls": [{"function": {"name": "write_file", "arguments": {"path": path, "content": content}}}]}


def allow(params: Frame) -> Frame:
    """The user says yes, once."""
    return chosen(params, "allow_once")


def chosen(params: Frame, kind: str) -> Frame:
    """The user takes the first option of a kind."""
    option = next(option for option in params["options"] if option["kind"] == kind)
    return {"outcome": {"outcome": "selected", "optionId": option["optionId"]}}
