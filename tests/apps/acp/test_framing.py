"""Bytes to messages: where a line ends, how long it may be, and what is answered to what is no message."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fencepost.apps.acp.framing import LIMIT, REQUEST, Lines, StdioTransport
from fencepost.apps.cli.outlet import Outlet


def exchange(data: bytes, limit: int = LIMIT, say: list[dict[str, Any]] | None = None) -> tuple[list[Any], list[Any]]:
    """Send `data` through a real pipe; gives the messages that were received, and what was answered."""
    inward, outward = os.pipe(), os.pipe()
    answers = bytearray()

    def write() -> None:
        with os.fdopen(inward[1], "wb") as pipe:
            pipe.write(data)

    def hear() -> None:
        with os.fdopen(outward[0], "rb") as pipe:
            answers.extend(pipe.read())

    async def read() -> list[Any]:
        out = Outlet(outward[1], lambda _: None)
        transport = StdioTransport(Lines(inward[0], limit), out, limit)
        found = []
        for message in say or []:
            await transport.send(message)
        while (message := await transport.receive()) is not None:
            found.append(message)
            assert REQUEST.get() == message.get("id")
        await transport.close()
        return found

    threads = [threading.Thread(target=one) for one in (write, hear)]
    for thread in threads:
        thread.start()
    found = asyncio.run(read())
    os.close(outward[1])
    for thread in threads:
        thread.join()
    os.close(inward[0])
    return found, [json.loads(line) for line in bytes(answers).split(b"\n") if line]


def note(text: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "note", "params": {"text": text}}


def test_lines_end_at_the_newline_only() -> None:
    odd = "one\u2028two\u2029three\u0085four\x0b"
    data = json.dumps(note(odd), ensure_ascii=False).encode() + b"\r\n\n  \n" + json.dumps(note("end")).encode()
    found, answers = exchange(data)
    assert [one["params"]["text"] for one in found] == [odd, "end"], "also the last line, which has no end"
    assert answers == []


def test_what_is_said_is_one_line_for_every_reader() -> None:
    said = note("one\u2028two\u2029three\u0085\ud83dhalf")
    _, answers = exchange(b"", say=[said])
    assert answers == [said]


def test_a_line_of_exactly_the_limit_is_read_and_one_byte_more_is_answered() -> None:
    def request(size: int) -> bytes:
        frame = {"jsonrpc": "2.0", "id": 7, "method": "m", "params": {"text": ""}}
        frame["params"] = {"text": "x" * (size - len(json.dumps(frame)))}
        return json.dumps(frame).encode() + b"\n"

    data = request(LIMIT) + request(LIMIT + 1) + json.dumps(note("still here")).encode() + b"\n"
    found, answers = exchange(data)
    assert len(found[0]["params"]["text"]) > LIMIT - 100
    assert [one["method"] for one in found] == ["m", "note"]
    assert [(one["id"], one["error"]["data"]["code"]) for one in answers] == [(7, "LINE_TOO_LONG")]


def test_an_answer_that_is_too_long_is_an_error_for_who_waits_for_it() -> None:
    long = {"jsonrpc": "2.0", "id": 3, "result": {"content": "x" * 300}}
    found, answers = exchange(json.dumps(long).encode() + b"\n", limit=200)
    assert (found[0]["id"], found[0]["error"]["data"]["code"]) == (3, "LINE_TOO_LONG")
    assert answers == []


def test_what_would_be_too_long_is_not_said(capfd: pytest.CaptureFixture[str]) -> None:
    long = "x" * 300
    say = [note(long), {"jsonrpc": "2.0", "id": 9, "result": {"text": long}}, note("short")]
    _, answers = exchange(b"", limit=250, say=say)
    assert answers[0]["error"]["data"]["code"] == "LINE_TOO_LONG"
    assert [one.get("id") for one in answers] == [9, None]
    assert "note is left out" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        ("not json", None, -32700),
        ('{"jsonrpc":"2.0","id":1', None, -32700),
        ("[" * 100_000, None, -32700),
        ("[]", None, -32600),
        ('"text"', None, -32600),
        ("{}", None, -32600),
        ('{"id":4}', 4, -32600),
        ('{"id":4,"method":5}', 4, -32600),
        ('{"id":true,"method":"m"}', None, -32600),
        ('{"id":{},"method":"m"}', None, -32600),
    ],
)
def test_what_is_no_message_is_answered_and_the_connection_lives(line: str, number: Any, code: int) -> None:
    found, answers = exchange(line.encode() + b"\n" + json.dumps(note("still here")).encode() + b"\n")
    assert [one["params"]["text"] for one in found] == ["still here"]
    assert [(one["id"], one["error"]["code"]) for one in answers] == [(number, code)]


def test_bytes_that_are_no_utf8_are_answered() -> None:
    _, answers = exchange(b'{"jsonrpc":"2.0","id":1,"method":"\xff"}\n')
    assert answers[0]["error"]["code"] == -32700


def test_a_reader_that_stands_still_does_not_stop_the_loop(tmp_path: Path) -> None:
    inward, outward = os.pipe(), os.pipe()
    ticks: list[Callable[[], None]] = []

    async def talk() -> None:
        out = Outlet(outward[1], lambda _: None)
        transport = StdioTransport(Lines(inward[0]), out)
        saying = asyncio.create_task(_say(transport, 40))
        for _ in range(20):
            await asyncio.sleep(0)
            ticks.append(lambda: None)
        assert not saying.done(), "nobody reads, so it waits"
        os.set_blocking(outward[0], False)
        while not saying.done():
            await asyncio.sleep(0.001)
            try:
                os.read(outward[0], 1 << 20)
            except BlockingIOError:
                continue
        await saying

    async def _say(transport: StdioTransport, count: int) -> None:
        for _ in range(count):
            await transport.send(note("x" * 100_000))

    asyncio.run(asyncio.wait_for(talk(), 30))
    assert len(ticks) == 20
    for fd in (*inward, *outward):
        os.close(fd)
