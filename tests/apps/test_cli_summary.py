"""A session in which a summary took the place of a step: shown, exported, and sent on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fencepost.core import events as ev
from tests.apps.inside import put, record, run
from tests.stores.sample import call, log_bytes, turn_with_call

SUMMARY = "Ada has her mail."
EVENTS = [
    *turn_with_call(),
    call(5),
    ev.ToolResult(6, 1, 1, 1, "call-1", (ev.Text("sent"),)),
    ev.StepEnd(7, 1, 1, 1),
    ev.TurnEnd(8, 1, 1, "completed"),
    ev.ContextSummary(9, 1, 7, (ev.Text(SUMMARY),), "openai:m", ev.Usage(100, 20)),
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    put(tmp_path, log_bytes(EVENTS))
    return f"jsonl:{tmp_path}"


def test_the_timeline_says_where_and_by_whom(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "show", "s1", "--store", place)
    assert status == 0
    assert f"summary of all up to seq 7, by openai:m {SUMMARY}" in " ".join(out.split())
    assert "send it" in out, "what was summed up is still there"


def test_markdown_quotes_it(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "export", "s1", "--store", place, "--format", "markdown")
    assert f"> {SUMMARY}" in out
    assert "> send it" in out


def test_an_export_has_the_event(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "export", "s1", "--store", place)
    last = json.loads(out.splitlines()[-1])
    assert (last["type"], last["through"], last["usage"]["output_tokens"]) == ("context/summary", 7, 20)


def test_messages_for_a_provider_begin_with_it(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "export", "s1", "--store", place, "--format", "openai")
    assert json.loads(out)["messages"] == [{"role": "user", "content": SUMMARY}]


def test_inspecting_takes_no_call_away(place: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = record(capsys, "inspect", "s1", "--store", place)
    assert [(item["name"], item["verdict"]) for item in found["calls"]] == [("send_mail", "completed")]
