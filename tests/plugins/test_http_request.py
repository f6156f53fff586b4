"""`http_request` against real servers: what is sent, what is read, and what is claimed where it breaks off."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
import ssl
import subprocess
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.http_peer import Peer, saying, silence

from fencepost.plugins import http_exchange
from fencepost.plugins.http_exchange import ANSWER_BYTES
from fencepost.plugins.http_request import BODY_BYTES, HttpRules, http_tool
from fencepost.runtime.body import run_body
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.schema import validate
from fencepost.runtime.settlement import Unknown, UnsettledCall
from fencepost.runtime.tools import CallContext, Tool, ToolReply

TOOL = http_tool()


async def calling(tool: Tool, cancel: CancelSignal, arguments: dict[str, Any]) -> ToolReply:
    assert validate(tool, arguments) is None
    context = CallContext("c_key", "s1", Path("/"), cancel, print, Path("/nowhere"))
    return await run_body(tool, context, arguments, 0.5, 2.0, print)


def call(url: str, method: str = "GET", tool: Tool = TOOL, **more: Any) -> ToolReply:
    return asyncio.run(calling(tool, CancelSignal(), {"url": url, "method": method, **more}))


def chunked(*pieces: bytes, end: bool = True) -> Any:
    """An answer in chunks; without its end marker if it is told so."""

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/plain\r\n\r\n")
        for piece in pieces:
            connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        if end:
            connection.sendall(b"0\r\n\r\n")

    return answer


# --- what is sent -------------------------------------------------------------------------------------------------


def test_effects_follow_the_method() -> None:
    assert TOOL.effect == "write"
    effects = {method: TOOL.effect_of({"url": "x", "method": method}) for method in ("GET", "HEAD", "OPTIONS")}
    assert set(effects.values()) == {"read"}
    assert TOOL.effect_of({"url": "x"}) == "read"
    assert {TOOL.effect_of({"method": method}) for method in ("PUT", "DELETE")} == {"idempotent"}
    assert {TOOL.effect_of({"method": method}) for method in ("POST", "PATCH", "get", "BREW")} == {"write"}
    assert validate(TOOL, {"url": "http://x/", "method": "get"}) is not None


def test_a_request_is_sent_as_it_was_asked_for() -> None:
    with Peer(saying("201 Created", b'{"id": 7}', "Content-Type: application/json", "Set-Cookie: s=secret")) as peer:
        reply = call(f"{peer.url}/a?b=c", "POST", headers={"X-One": "1"}, body='{"a": "ü"}')
    head, body = peer.heard[0]
    assert head.startswith("POST /a?b=c HTTP/1.1\r\n")
    assert body == '{"a": "ü"}'.encode()
    assert peer.header("Host") == [f"127.0.0.1:{peer.port}"]
    assert peer.header("X-One") == ["1"]
    assert peer.header("Content-Type") == ["application/json"]
    assert not reply.is_error
    assert reply.text.startswith("HTTP/1.1 201 Created\n")
    assert reply.text.endswith('\n\n{"id": 7}')
    assert "secret" not in reply.text


@pytest.mark.parametrize(
    ("method", "sent"),
    [("GET", []), ("HEAD", []), ("OPTIONS", []), *((one, ["c_key"]) for one in ("PUT", "DELETE", "POST", "PATCH"))],
)
def test_unsafe_methods_carry_the_key_of_the_call(method: str, sent: list[str]) -> None:
    with Peer(saying()) as peer:
        call(peer.url, method)
    assert peer.header("Idempotency-Key") == sent


def test_the_key_of_the_model_goes_before_ours() -> None:
    with Peer(saying()) as peer:
        call(peer.url, "POST", headers={"idempotency-KEY": "mine", "Content-Type": "text/csv"}, body="a,b")
    assert peer.header("Idempotency-Key") == ["mine"]
    assert peer.header("Content-Type") == ["text/csv"]


@pytest.mark.parametrize(
    ("headers", "part"),
    [
        ({"X-HTTP-Method-Override": "DELETE"}, "another method"),
        ({"Transfer-Encoding": "chunked"}, "set by the connection"),
        ({"content-length": "0"}, "set by the connection"),
        ({"X": "a\r\nHost: b"}, "not valid"),
        ({"X\n": "a"}, "not valid"),
        ({"": "a"}, "not valid"),
        ({"X": "\ud800"}, "not valid"),
        ({"X-A": "1", "x-a": "2"}, "given twice"),
    ],
)
def test_headers_that_would_make_another_request_of_it_are_refused(headers: dict[str, str], part: str) -> None:
    with Peer(saying()) as peer:
        reply = call(peer.url, "GET", headers=headers)
    assert (reply.code, reply.is_error) == ("BAD_HEADER", True)
    assert part in reply.text
    assert reply.text.endswith("Nothing was sent.")
    assert peer.connections == 0


def test_host_is_the_hosts_of_the_url_where_that_is_a_name() -> None:
    with Peer(saying()) as peer:
        assert call(f"http://localhost:{peer.port}/", headers={"Host": "other"}).code == "BAD_HEADER"
        assert not call(peer.url, headers={"Host": "inner.example"}).is_error
    assert peer.header("Host") == ["inner.example"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"url": "http://a:b@example.org/"}, "BAD_URL"),
        ({"url": "gopher://example.org/"}, "BAD_URL"),
        ({"url": "http://127.0.0.1:1/", "method": "POST", "body": "x" * (BODY_BYTES + 1)}, "BAD_BODY"),
        ({"url": "http://127.0.0.1:1/", "method": "POST", "body": "\ud800"}, "BAD_BODY"),
        ({"url": "http://127.0.0.1:1/", "method": "HEAD", "body": "x"}, "BAD_BODY"),
    ],
)
def test_what_cannot_be_sent_is_a_sentence(arguments: dict[str, Any], code: str) -> None:
    reply = call(**arguments)
    assert (reply.code, reply.is_error) == (code, True)


# --- what is read -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["400 Bad Request", "404 Not Found", "503 Busy"])
def test_an_error_of_the_server_is_an_error_with_its_status_and_body(status: str) -> None:
    with Peer(saying(status, b"why\n")) as peer:
        reply = call(peer.url)
    assert (reply.is_error, reply.code) == (True, f"HTTP_{status[:3]}")
    assert f"HTTP/1.1 {status}" in reply.text
    assert reply.text.endswith("why\n")


def test_after_an_unsafe_request_a_server_error_leaves_it_open_whether_it_was_carried_out() -> None:
    with Peer(saying("502 Bad Gateway", b"no")) as peer:
        assert "verify that before sending another" in call(peer.url, "POST").text
        assert "verify" not in call(peer.url, "GET").text


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_redirect_is_shown_and_not_followed(status: int, method: str) -> None:
    with Peer(saying(f"{status} Elsewhere", b"", "Location: http://169.254.169.254/")) as peer:
        reply = call(peer.url, method)
    assert not reply.is_error
    assert "location: http://169.254.169.254/" in reply.text
    assert "the redirect was not followed" in reply.text
    assert peer.connections == 1


@pytest.mark.parametrize(
    ("kind", "data", "text"),
    [
        ("text/plain; charset=iso-8859-1", b"caf\xe9", "café"),
        ("text/plain; charset=nonsense", "café".encode(), "café"),
        ('text/html; charset="UTF-16"', "é".encode("utf-16"), "é"),
        ("text/plain; charset=hex", b"6162", "6162"),
        ("application/json", "\ufeff1".encode(), "1"),
        ("", b"caf\xe9", "café"),
    ],
)
def test_text_is_read_in_its_encoding(kind: str, data: bytes, text: str) -> None:
    with Peer(saying("200 OK", data, f"Content-Type: {kind}")) as peer:
        assert call(peer.url).text.split("\n\n", 1)[1].startswith(text)


@pytest.mark.parametrize(("kind", "data"), [("image/png", b"PNG!"), ("text/plain", b"a\0b"), ("", b"\0\1\2\3")])
def test_what_is_no_text_is_summarised(kind: str, data: bytes) -> None:
    with Peer(saying("200 OK", data, f"Content-Type: {kind}")) as peer:
        reply = call(peer.url)
    assert f"the body is no text ({kind or 'binary data'}, {len(data)} bytes)" in reply.text
    assert "\0" not in reply.text
    assert "PNG!" not in reply.text


def test_a_body_without_end_is_cut() -> None:
    stopped = threading.Event()

    def endless(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        try:
            while True:
                connection.sendall(b"x" * 10_000)
        except OSError:
            stopped.set()
            raise

    with Peer(endless) as peer:
        reply = call(peer.url)
        assert stopped.wait(30)
    assert not reply.is_error
    assert f"[cut after {ANSWER_BYTES} bytes; a Range header may get the rest]" in reply.text
    assert "\n\n" + "x" * ANSWER_BYTES + "\n[" in reply.text


def test_a_packed_body_is_unpacked_as_far_as_it_is_shown() -> None:
    bomb = gzip.compress(b"y" * 50_000_000)
    assert len(bomb) < ANSWER_BYTES
    with Peer(saying("200 OK", bomb, "Content-Encoding: gzip", "Content-Type: text/plain")) as peer:
        reply = call(peer.url)
    assert "\n\n" + "y" * ANSWER_BYTES + "\n[" in reply.text
    assert "[cut after" in reply.text


@pytest.mark.parametrize("packed", [zlib.compress(b"hello"), zlib.compress(b"hello")[2:-4]])
def test_deflate_is_read_with_and_without_its_header(packed: bytes) -> None:
    with Peer(saying("200 OK", packed, "Content-Encoding: deflate")) as peer:
        assert call(peer.url).text.endswith("\n\nhello")


@pytest.mark.parametrize("packing", ["br", "gzip"])
def test_a_body_that_cannot_be_unpacked_is_said_to_be(packing: str) -> None:
    with Peer(saying("200 OK", b"garbage", f"Content-Encoding: {packing}")) as peer:
        assert f"[the body is compressed in a way that is not read here: {packing}]" in call(peer.url).text


def test_chunks_and_an_empty_body_and_head() -> None:
    with Peer(chunked(b"one ", b"two")) as peer:
        assert call(peer.url).text.endswith("\n\none two")
    with Peer(saying("204 No Content")) as peer:
        assert call(peer.url, "DELETE").text.startswith("HTTP/1.1 204 No Content\n")
    with Peer(saying("200 OK", b"", length=12)) as peer:
        assert "content-length: 12" in call(peer.url, "HEAD").text


# --- where it breaks off --------------------------------------------------------------------------------------------


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_was_not_reached_is_not_started(method: str) -> None:
    reply = call(f"http://127.0.0.1:{closed_port()}/secret?key=hidden", method)
    assert reply.code == "TOOL_NOT_STARTED"
    assert "was not reached (127.0.0.1: " in reply.text
    assert "hidden" not in reply.text
    reply = call("http://no-such-name.invalid/", method)
    assert reply.code == "TOOL_NOT_STARTED"
    assert "the name no-such-name.invalid leads nowhere" in reply.text


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_connection_that_is_lost_after_the_request_left_is_unknown(method: str) -> None:
    with Peer(silence) as peer:
        reply = call(peer.url, method, body="x")
    assert reply.unknown
    assert f"{method} {peer.url}: " in reply.text
    assert "after the request had left" in reply.text
    assert reply.detail == "The request was sent with Idempotency-Key: c_key."
    assert len(peer.heard) == 1


def test_the_same_of_a_request_that_reads_may_be_tried_again() -> None:
    with Peer(silence) as peer:
        reply = call(peer.url)
    assert (reply.unknown, reply.is_error, reply.code) == (False, True, "NO_ANSWER")
    assert "may be tried again" in reply.text
    assert peer.connections == 1


@pytest.mark.parametrize("garbage", [b"\0\0\0\0\r\n\r\n", b"HTTP/1.1 999999 x\r\n\r\n", b"HTTP/1.1 200 O"])
def test_an_answer_that_is_none_is_unknown(garbage: bytes) -> None:
    with Peer(lambda connection: connection.sendall(garbage)) as peer:
        assert call(peer.url, "POST").unknown
        assert call(peer.url, "GET").code == "NO_ANSWER"


def test_a_request_that_is_cut_off_while_it_is_sent_is_unknown() -> None:
    """The server goes away in the middle of a large body: part of it had arrived."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.recv(1000)
            connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        reply = call(f"http://127.0.0.1:{listening.getsockname()[1]}/", "POST", body="x" * BODY_BYTES)
        thread.join()
    assert reply.unknown


def test_an_answer_whose_body_breaks_off_counts_by_its_status() -> None:
    with Peer(saying("201 Created", b'{"id": ', length=100)) as peer:
        done, read = call(peer.url, "POST"), call(peer.url, "GET")
    for reply in (done, read):
        assert "HTTP/1.1 201 Created" in reply.text
        assert "[the body is not whole, only 7 bytes of it came: " in reply.text
    assert (done.is_error, done.unknown) == (False, False)
    assert (read.is_error, read.code) == (True, "NO_ANSWER")


class Held:
    """An answer that stops after `start` until it is released."""

    def __init__(self, start: bytes = b"") -> None:
        self._start = start
        self.release = threading.Event()

    def __call__(self, connection: socket.socket) -> None:
        connection.sendall(self._start)
        self.release.wait(30)


@pytest.mark.parametrize(("method", "unknown"), [("POST", True), ("GET", False)])
def test_a_time_limit_that_runs_out_is_said(method: str, unknown: bool) -> None:
    held = Held()
    with Peer(held) as peer:
        reply = call(peer.url, method, timeout=0.3)
        held.release.set()
    assert reply.unknown is unknown
    assert "its time limit of 0.3 s ran out, after the request had left" in reply.text


def test_a_body_that_stalls_ends_with_the_time_limit() -> None:
    held = Held(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
    with Peer(held) as peer:
        reply = call(peer.url, "POST", timeout=0.3)
        held.release.set()
    assert not reply.unknown
    assert "half\n[the body is not whole, only 4 bytes of it came: its time limit of 0.3 s ran out]" in reply.text


def test_a_server_that_never_accepts_is_not_started() -> None:
    """A full backlog: the connection is not made within the limit, so nothing left."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        reply = call(f"http://127.0.0.1:{listening.getsockname()[1]}/", "POST", timeout=0.5)
        for one in waiting:
            one.close()
    assert reply.code == "TOOL_NOT_STARTED"
    assert "its time limit of 0.5 s ran out" in reply.text


# --- cancel ---------------------------------------------------------------------------------------------------------


async def cancelled(url: str, method: str, when: threading.Event | None) -> ToolReply:
    cancel = CancelSignal()
    running = asyncio.ensure_future(calling(TOOL, cancel, {"url": url, "method": method, "timeout": 60}))
    if when is None:
        await asyncio.sleep(0.05)  # the connection hangs whenever this ends
    else:
        await asyncio.to_thread(when.wait, 30)
    cancel.set("user")
    return await running


def test_a_cancel_before_anything_left_is_not_started() -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(listening.getsockname())
        reply = asyncio.run(cancelled(f"http://127.0.0.1:{listening.getsockname()[1]}/", "POST", None))
        for one in waiting:
            one.close()
    assert reply.code == "TOOL_NOT_STARTED"
    assert "the turn was cancelled (user) before the request left" in reply.text


def test_a_cancel_after_it_left_is_unknown() -> None:
    held = Held()
    with Peer(held) as peer:
        reply = asyncio.run(cancelled(peer.url, "POST", peer.arrived))
        held.release.set()
    assert reply.unknown
    assert "while the call ran" in reply.text


# --- private addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://169.254.169.254/latest", "169.254.169.254 is a private address"),
        ("http://localhost/x", "localhost is a name of this machine or its network"),
        ("https://git.corp.example/", "git.corp.example is configured as private"),
        ("https://example.org/", None),
        ("nonsense", None),
    ],
)
def test_the_guard_says_why_a_person_should_be_asked(url: str, reason: str | None) -> None:
    guard = http_tool(HttpRules(private=("*.corp.example",))).guard
    assert guard is not None
    assert guard({"url": url}, Path("/")) == reason


def leading_to(*addresses: str) -> Any:
    """A resolver by which every name leads to these."""
    return lambda host, port, **kind: [(socket.AF_INET, kind["type"], 6, "", (address, port)) for address in addresses]


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("93.184.215.14", "127.0.0.1"), ("::ffff:127.0.0.1",)])
def test_a_name_that_leads_to_a_private_address_is_not_connected_to(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    """No public resolver can be had here, so the system's answer is replaced; everything behind it is real."""
    monkeypatch.setattr(http_exchange.socket, "getaddrinfo", leading_to(*addresses))
    with Peer(saying()) as peer:
        reply = call(f"http://rebound.example:{peer.port}/", "GET")
        assert peer.connections == 0
        tool = http_tool(HttpRules(private=("rebound.example",)))
        assert not call(f"http://rebound.example:{peer.port}/", tool=tool).is_error or len(addresses) > 1
    assert (reply.code, reply.is_error) == ("PRIVATE_ADDRESS", True)
    assert "rebound.example leads to " in reply.text
    assert reply.text.endswith("Nothing was sent.")


def test_the_address_that_was_judged_is_the_one_that_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that leads elsewhere when it is asked for a second time is asked for once only."""
    asked = []

    def once(host: str, port: int, **kind: int) -> Any:
        asked.append(host)
        return leading_to("127.0.0.1" if len(asked) == 1 else "127.0.0.2")(host, port, **kind)

    monkeypatch.setattr(http_exchange.socket, "getaddrinfo", once)
    with Peer(saying()) as peer:
        assert not call(f"http://app.localhost:{peer.port}/").is_error
    assert asked == ["app.localhost"]
    assert peer.header("Host") == [f"app.localhost:{peer.port}"]


def test_the_next_address_is_tried_while_nothing_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_exchange.socket, "getaddrinfo", leading_to("127.0.0.9", "127.0.0.1"))
    with Peer(saying()) as peer:
        assert not call(f"http://app.localhost:{peer.port}/", "POST").is_error
    assert len(peer.heard) == 1


def test_a_proxy_of_the_environment_does_not_stand_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{closed_port()}")
    with Peer(saying()) as peer:
        assert not call(peer.url).is_error


# --- TLS ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, Path]:
    """A server's context for `app.localhost`, and the certificate that vouches for it."""
    place = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    command += ["-addext", "subjectAltName=DNS:app.localhost", "-keyout", "key.pem", "-out", "cert.pem"]
    try:
        subprocess.run(command, cwd=place, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(place / "cert.pem", place / "key.pem")
    return context, place / "cert.pem"


def test_the_certificate_has_to_be_the_names(
    certified: tuple[ssl.SSLContext, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    context, certificate = certified
    monkeypatch.setattr(http_exchange.socket, "getaddrinfo", leading_to("127.0.0.1"))
    with Peer(saying("200 OK", b"hi"), tls=context) as peer:
        stranger = call(f"https://app.localhost:{peer.port}/", "POST")
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        known = call(f"https://app.localhost:{peer.port}/", "POST")
        other = call(f"https://other.localhost:{peer.port}/", "POST")
    assert known.text.endswith("hi")
    for reply in (stranger, other):
        assert reply.code == "TOOL_NOT_STARTED"
        assert "certificate" in reply.text
    assert len(peer.heard) == 1


# --- after a crash, and at the start ----------------------------------------------------------------------------------


def unsettled(**arguments: Any) -> UnsettledCall:
    effect = TOOL.effect_of(arguments)
    return UnsettledCall("c_key", "s1", "http_request", arguments, effect, 1, Path("/"), Path("/nowhere"))


def test_after_a_crash_the_note_names_the_key() -> None:
    settle = TOOL.settle
    assert settle is not None
    said = settle(unsettled(url="https://pay.example/charge?token=secret", method="POST"))
    got = "https://pay.example got it with Idempotency-Key: c_key"
    assert said == Unknown(f"if the request left, {got}, and may be asked what became of it")
    given = settle(unsettled(url="https://pay.example/", method="PUT", headers={"idempotency-key": "mine"}))
    assert "Idempotency-Key: mine" in given.note
    assert settle(unsettled(url="https://pay.example/")) == Unknown("it only reads")


def test_the_client_library_is_loaded_at_the_first_request_only() -> None:
    script = (
        "import sys; from fencepost.plugins.http_request import http_tool; http_tool(); "
        "sys.exit('httpx2' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, env=dict(os.environ))
