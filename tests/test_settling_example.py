"""The example of `docs/settling.md`, run as it stands: a real payment API, a real agent, a real SIGKILL."""

import asyncio
import importlib.util
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest

import fencepost as fp
from fencepost.core import events as ev

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0

AGENT = """
import asyncio, sys
import fencepost as fp
from payments import pay

ASKS = {"tool_calls": [{"function": {"name": "pay", "arguments": {"to": "ada", "cents": 500}}}]}

async def main():
    model = fp.ScriptedModel([ASKS, "Ada has her money."])
    async with fp.open(sys.argv[1], model=model, tools=[pay]) as runtime:
        session = await runtime.create("s1", "/")
        await session.prompt("Pay Ada 5 euros.")

asyncio.run(main())
"""


class PaymentApi(ThreadingHTTPServer):
    """Payments by their idempotency key; it can keep its answers to itself.

    Attributes:
        payments: by key.
        has_paid: set when a payment was made.
        may_answer: whoever asks for a payment waits for it.
        ailing: lookups are answered with 503.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Desk)
        self.payments: dict[str, dict] = {}
        self.has_paid = threading.Event()
        self.may_answer = threading.Event()
        self.ailing = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_) -> None:
        """The agent that asked was killed."""


class _Desk(BaseHTTPRequestHandler):
    server: PaymentApi

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        payments, key = self.server.payments, self.headers["Idempotency-Key"]
        payment = payments.setdefault(key, {**body, "id": len(payments) + 1})
        self.server.has_paid.set()
        self.server.may_answer.wait(PATIENCE)
        self._say(201, payment)

    def do_GET(self) -> None:
        payment = self.server.payments.get(self.path.rpartition("/")[2])
        self._say(503 if self.server.ailing else 200 if payment else 404, payment or {})

    def _say(self, status: int, value: dict) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_) -> None:
        """Not on stderr."""


@pytest.fixture
def api() -> Iterator[PaymentApi]:
    with PaymentApi() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the example as `payments.py`."""
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/settling.md").read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "payments.py").write_text(example)
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def example_of(place: Path, api: PaymentApi, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("PAYMENTS_URL", api.url)
    spec = importlib.util.spec_from_file_location("payments", place / "payments.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def start(place: Path, api: PaymentApi) -> subprocess.Popen[bytes]:
    command = [sys.executable, "agent.py", f"jsonl:{place / 'sessions'}"]
    return subprocess.Popen(command, cwd=place, env={**os.environ, "PAYMENTS_URL": api.url})


async def resumed(place: Path, tool: fp.Tool) -> tuple[fp.CallView, fp.CallView, str]:
    """What `inspect` says before, what it says after a resume, and what the model reads."""
    async with fp.open(f"jsonl:{place / 'sessions'}", model=fp.ScriptedModel(["Done."]), tools=[tool]) as runtime:
        (told,) = (await runtime.inspect("s1", settle=True)).calls
        session = await runtime.resume("s1")
        text = [ev.text_of(one.content) for one in session.journal.log.entries if isinstance(one, ev.ToolResult)]
        (found,) = (await runtime.inspect("s1")).calls
    return told, found, text[0]


def test_killed_after_the_payment_the_api_says_that_it_was_made(place, api, monkeypatch):
    agent = start(place, api)
    assert api.has_paid.wait(PATIENCE)
    agent.kill()
    assert agent.wait() == -9
    told, found, text = asyncio.run(resumed(place, example_of(place, api, monkeypatch).pay))
    for call in (told, found):
        assert (call.verdict, call.settled_by) == ("completed", "pay")
        assert call.evidence == f"{api.url} has payment 1 under key {call.call_id}"
    assert text == f"[Established after a crash by pay: {found.evidence}]\nPaid 500 cents to ada: payment 1"
    assert list(api.payments) == [found.call_id]


def test_left_alone_the_agent_pays_once(place, api):
    api.may_answer.set()
    assert start(place, api).wait(PATIENCE) == 0
    assert [(one["to"], one["cents"]) for one in api.payments.values()] == [("ada", 500)]


@pytest.mark.parametrize(
    ("age", "kind", "part"),
    [(0, fp.Unknown, "may still be on its way"), (41, fp.DidNotRun, "has no payment under key c_1")],
)
def test_a_payment_that_is_not_there_did_not_run_only_once_it_cannot_arrive(place, api, monkeypatch, age, kind, part):
    payments = example_of(place, api, monkeypatch)
    let_go = int((time.time() - age) * 1000)
    call = fp.UnsettledCall("c_1", "s1", "pay", {"to": "ada", "cents": 500}, "write", let_go, place, place / "files")
    said = asyncio.run(payments.look_up(call))
    assert isinstance(said, kind)
    assert part in str(said)
    api.ailing = True
    assert "answered 503" in asyncio.run(payments.look_up(call)).note


def test_while_the_api_cannot_be_asked_the_outcome_stays_unknown(place, api, monkeypatch):
    agent = start(place, api)
    assert api.has_paid.wait(PATIENCE)
    agent.kill()
    agent.wait()
    payments = example_of(place, api, monkeypatch)
    monkeypatch.setattr(payments, "API", "http://127.0.0.1:1")
    told, found, text = asyncio.run(resumed(place, payments.pay))
    assert (found.verdict, found.settled_by) == ("outcome_unknown", "")
    assert "pay could not say what happened: ConnectError" in found.evidence == told.evidence
    assert text.startswith("Outcome unknown: ")
    later, _, _ = asyncio.run(resumed(place, example_of(place, api, monkeypatch).pay))
    assert (later.verdict, later.settled_by) == ("completed", "pay"), "who looks again later learns it"
