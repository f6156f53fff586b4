"""Who may come in over HTTP: the token, the host and the origin."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.client.servers import SECONDS, TOKEN, Place

GOOD = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory):
    place = Place(tmp_path_factory.mktemp("served"))
    place.script({"content": "Done."})
    with place.over_http() as (_, url):
        yield urlsplit(url).netloc


def get(address: str, headers: dict[str, str], method: str = "GET", path: str = "/schema", body: bytes | None = None):
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (GOOD, 200),
        ({}, 401),
        ({"Authorization": "Bearer nothing"}, 401),
        ({"Authorization": f"Basic {TOKEN}"}, 401),
        (GOOD | {"Host": "evil.example"}, 403),
        (GOOD | {"Origin": "http://evil.example"}, 403),
        (GOOD | {"Origin": "null"}, 403),
    ],
)
def test_who_may_come_in(address: str, headers: dict[str, str], status: int) -> None:
    assert get(address, headers)[0] == status


def test_a_page_of_our_own_may(address: str) -> None:
    assert get(address, GOOD | {"Origin": f"http://{address}"})[0] == 200


def test_a_request_over_the_limit_is_refused_and_the_next_one_answered(address: str) -> None:
    status, body = get(address, GOOD, "POST", "/rpc", b"x" * ((50 << 20) + 1))
    assert (status, json.loads(body)["error"]["code"]) == (413, -32600)
    request = {"jsonrpc": "2.0", "id": 1, "method": "session/list"}
    status, body = get(address, GOOD, "POST", "/rpc", json.dumps(request).encode())
    assert (status, json.loads(body)["result"]) == (200, {"sessions": []})


@pytest.mark.parametrize(("query", "status"), [("session=none", 409), ("session=none&start=x", 400)])
def test_a_stream_that_cannot_be_had_is_said(address: str, query: str, status: int) -> None:
    assert get(address, GOOD, path=f"/events?{query}")[0] == status


def test_a_stream_goes_on_behind_the_last_event_that_arrived(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script({"content": "Done."})
    with place.over_http() as (_, url):
        address = urlsplit(url).netloc

        def ask(method: str, **params: object) -> object:
            request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return json.loads(get(address, GOOD, "POST", "/rpc", json.dumps(request).encode())[1])["result"]

        ask("session/create", session="s1", cwd=str(place.work))
        ask("prompt/queue", session="s1", text="Go.", input_id="i_one")
        ask("prompt/wait", session="s1", input_id="i_one")
        connection = http.client.HTTPConnection(address, timeout=SECONDS)
        connection.request("GET", "/events?session=s1", headers=GOOD | {"Last-Event-ID": "4"})
        answer = connection.getresponse()
        ids = []
        while len(ids) < 3:
            line = answer.readline()
            if line.startswith(b"id:"):
                ids.append(int(line[3:]))
        assert ids == [5, 6, 7]
        connection.close()
