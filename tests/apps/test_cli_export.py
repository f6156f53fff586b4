"""`fencepost export`: every format of every session, whole or not, with and without its secrets."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.apps.cli import exits, transcript
from fencepost.apps.cli.markdown import markdown
from fencepost.apps.cli.redacting import redacted
from fencepost.apps.cli.secrets import HIDDEN, Secrets
from fencepost.core import events as ev
from fencepost.core.codec import CORE, encode, expand, pack
from fencepost.journal.inspect import fold_stored
from fencepost.stores.base import Owner, StoredLog
from fencepost.stores.jsonl import JsonlStore
from fencepost.testing.pairing import pairing_problem
from fencepost.testing.pairing_anthropic import anthropic_problem
from tests.apps.inside import put, reading, record, run
from tests.core.logs import HEADER, VOCABULARY, logs
from tests.journal.test_salvage import BATCHES, FIRST, KINDS, RAN, WHOLE
from tests.stores.sample import header, lines_of, log_bytes

KEY = "sk-proj-0123456789abcdef"
SPECS = (ev.ToolSpec("send_mail", "Send it.", {"type": "object", "properties": {"to": {"type": "string"}}}),)
SHAPE = ev.RequestHeader(0, 0, "openai", "m", {"temperature": 0}, f"Be kind. Never say {KEY}.", SPECS, "initial")


def dense(*entries: ev.Event) -> list[ev.Event]:
    return [msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(entries)]


def talk() -> list[ev.Event]:
    """A turn in which a secret stands everywhere it can."""
    owner, start, step, _, answer = FIRST
    said = ev.UserMessage(0, 0, "m1", (ev.Text(f"Use {KEY}."),), "user")
    chunks = [ev.AssistantChunk(0, 0, 1, 1, piece) for piece in ("I use sk-pr", "oj-01234", "56789abcdef now")]
    asked = ev.CallRequest(
        "call-1", "send_mail", json.dumps({"to": "ada", "body": json.dumps({"password": "hunter2"})})
    )
    answer = ev.AssistantMessage(0, 0, 1, 1, "m2", (ev.Text(f"I use {KEY} now"), asked), "tool_calls")
    arguments = {"to": "ada", "body": json.dumps({"password": "hunter2"})}
    call = ev.ToolCall(0, 0, 1, 1, "call-1", "send_mail", arguments, "write")
    cut = (ev.Text("AWS_SECRET_ACCESS_KEY=hun"), ev.Text("ter2\nsent"))
    result = ev.ToolResult(0, 0, 1, 1, "call-1", cut)
    return dense(owner, start, step, SHAPE, said, *chunks, answer, call, result)


def stored_of(entries: list[Any], **more: Any) -> StoredLog:
    return StoredLog(session="s1", header=header(), entries=entries, **more)


# --- the forms --------------------------------------------------------------------------------------------------


def test_openai_has_the_system_prompt_tools_and_every_result() -> None:
    made: Any = transcript.openai(transcript.request_of(stored_of([*dense(*FIRST[:3], SHAPE, *FIRST[3:], *RAN)]), CORE))
    assert [message["role"] for message in made["messages"]] == ["system", "user", "assistant", "tool"]
    assert made["tools"][0]["function"]["name"] == "send_mail"
    assert pairing_problem(made["messages"]) is None


def test_anthropic_has_blocks_and_results_of_the_user() -> None:
    made: Any = transcript.anthropic(
        transcript.request_of(stored_of([*dense(*FIRST[:3], SHAPE, *FIRST[3:], *RAN)]), CORE)
    )
    assert made["system"].startswith("Be kind")
    assert made["tools"] == [{"name": "send_mail", "description": "Send it.", "input_schema": SPECS[0].parameters}]
    user, assistant, result = made["messages"]
    assert user == {"role": "user", "content": [{"type": "text", "text": "send it"}]}
    assert assistant["content"] == [{"type": "tool_use", "id": "call-1", "name": "send_mail", "input": {"to": "ada"}}]
    assert result["content"] == [{"type": "tool_result", "tool_use_id": "call-1", "content": "sent"}]


def test_a_call_that_runs_is_said_to_run() -> None:
    stored = stored_of([*FIRST, RAN[0]], owner=Owner(1, "here", 0))
    made: Any = transcript.openai(transcript.request_of(stored, CORE))
    assert made["messages"][-1]["content"] == transcript.RUNNING


@settings(max_examples=60, deadline=None)
@given(logs(30), st.data())
def test_any_log_with_any_hole_passes_both_strict_checks(log: Any, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(log.entries)))
    beyond = log.entries[cut + 1 :] if data.draw(st.booleans()) else ()
    stored = StoredLog(session="s1", header=HEADER, entries=log.entries[:cut], beyond=beyond)
    request = transcript.request_of(stored, VOCABULARY)
    made: Any = transcript.anthropic(request)
    assert anthropic_problem(made["messages"]) is None
    made = transcript.openai(request)
    assert pairing_problem(made["messages"]) is None
    assert "".join(markdown(fold_stored(stored, VOCABULARY)))


@pytest.mark.parametrize("form", ["jsonl", "markdown", "openai", "anthropic"])
@pytest.mark.parametrize("data", KINDS.values(), ids=list(KINDS))
def test_every_kind_of_damage_is_exported_in_every_form(
    store: Path, data: bytes, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, data)
    made = record(capsys, "export", "s1", "--format", form, status=exits.DAMAGED)
    assert (made["session"], made["state"], made["format"]) == ("s1", "damaged", form)
    if form in {"openai", "anthropic"}:
        messages = made["content"]["messages"]
        assert (pairing_problem if form == "openai" else anthropic_problem)(messages) is None
        assert "missing here" in json.dumps(messages)
    else:
        assert "damaged" in json.dumps(made["content"]).lower() or any(
            line["type"] == "gap" for line in made["content"]
        )


def test_markdown_lets_nothing_pass_for_a_heading(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = ev.UserMessage(3, 0, "m1", (ev.Text("# Not a heading\n```\n## Nor this"),), "user")
    answer = ev.ToolResult(6, 0, 1, 1, "call-1", (ev.Text("```\n# Nor that\n\x1b[2J"),))
    put(store, log_bytes([*FIRST[:3], evil, FIRST[4]], [RAN[0], answer]))
    status, out, _ = run(capsys, "export", "s1", "--format", "markdown")
    assert status == 0
    assert [line for line in out.split("\n") if line.startswith("#")] == ["# s1", "## Turn 1", "# Nor that"]
    assert out.index("````\n```\n# Nor that") > 0
    assert "\x1b" not in out
    assert "**call** `send_mail` (`call-1`) is **completed**" in out


def test_the_forms_go_to_standard_output_as_they_are(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, WHOLE)
    for form in ("openai", "anthropic"):
        status, out, err = run(capsys, "export", "s1", "--format", form)
        assert (status, err) == (0, "")
        assert json.loads(out)["messages"]
    status, out, _ = run(capsys, "export", "s1")
    assert [json.loads(line)["seq"] for line in out.splitlines()[1:]] == list(range(sum(map(len, BATCHES))))


# --- without secrets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["jsonl", "markdown", "openai", "anthropic"])
def test_no_secret_is_left_in_any_form(store: Path, form: str, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, log_bytes(list(pack(talk()))))
    status, out, err = run(capsys, "export", "s1", "--format", form, "--redact")
    assert status == 0
    for piece in (KEY, "hunter2", "sk-pr", "oj-01234", "56789abcdef", "ter2", "=hun"):
        assert piece not in out
    assert HIDDEN in out
    assert "secrets hidden: " in err
    assert KEY in run(capsys, "export", "s1", "--format", form)[1]


def test_what_was_hidden_is_counted_by_kind(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, log_bytes(talk()))
    made = record(capsys, "export", "s1", "--redact")
    assert made["redacted"] is True
    assert made["hidden"] == {"assignment": 1, "model_key": 4, "named": 2}
    assert record(capsys, "export", "s1")["hidden"] == {}


def test_a_redacted_log_is_still_that_log() -> None:
    """Types, seqs, ids and the number of chunks stay; every event reads as what it is."""
    clean = redacted(stored_of(talk()), Secrets())
    assert [(type(event), event.seq) for event in clean.entries] == [(type(event), event.seq) for event in talk()]
    reading = fold_stored(clean)
    assert reading.broken is None
    assert list(reading.fold.calls) == ["call-1"]
    asked = json.loads(reading.fold.calls["call-1"].arguments)
    assert json.loads(asked["body"]) == {"password": HIDDEN}


def test_a_log_without_secrets_is_exported_to_the_byte(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, WHOLE)
    whole = run(capsys, "export", "s1")[1]
    status, out, err = run(capsys, "export", "s1", "--redact")
    assert (status, out, err) == (0, whole, "fencepost: 0 secrets hidden\n")


@settings(max_examples=60, deadline=None)
@given(logs(30))
def test_redacting_any_log_gives_a_log_that_reads_the_same_but_for_texts(log: Any) -> None:
    secrets = Secrets([r"\\", "[a-z]"])
    clean = redacted(StoredLog(session="s1", header=HEADER, entries=log.entries), secrets)
    events = [event for entry in log.entries for event in expand(entry)]
    assert [(type(event), event.seq, event.time) for event in clean.entries] == [
        (type(event), event.seq, event.time) for event in events
    ]
    assert fold_stored(clean, VOCABULARY).broken is None
    for line in lines_of(clean.entries):
        assert json.loads(line)


def test_secrets_of_a_chunk_stream_that_something_interrupts(store: Path) -> None:
    """Other events may stand between the two halves."""
    first = ev.AssistantChunk(4, 0, 1, 1, KEY[:9])
    queued = ev.InputQueued(5, 0, "i2", "step", (ev.Text("and then"),))
    second = ev.AssistantChunk(6, 0, 1, 1, KEY[9:])
    put(store, log_bytes([*FIRST[:4], first, queued, second]))
    clean = redacted(reading(store).stored, Secrets())
    assert not any(KEY[9:] in encode(entry).decode() or KEY[:9] in encode(entry).decode() for entry in clean.entries)


def test_secrets_beyond_damage_and_in_unknown_events_are_hidden(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = json.dumps({"type": "other/thing", "seq": 7, "time": 0, "deep": {"token": "hunter2"}, "ignorable": True})
    data = KINDS["a hole of NULs"].replace(b'"sent"', f'"{KEY}"'.encode())
    put(store, data + unknown.encode() + b"\n")
    status, out, _ = run(capsys, "export", "s1", "--redact")
    assert status == exits.DAMAGED
    assert KEY not in out
    assert "hunter2" not in out
    assert "other/thing" in out


def test_own_patterns_come_from_the_configuration(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, WHOLE)
    (tmp_path / "fencepost.toml").write_text('[redact]\npatterns = ["se[n]t", "ad[a]"]\n')
    made = record(capsys, "export", "s1", "--redact")
    assert made["hidden"] == {"own_1": 2, "own_2": 4}
    assert "sent" not in json.dumps(made["content"])


def test_a_pattern_that_is_none_is_one_clear_error(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, WHOLE)
    (tmp_path / "fencepost.toml").write_text('[redact]\npatterns = ["fine", "("]\n')
    status, out, err = run(capsys, "export", "s1", "--redact")
    assert (status, out) == (exits.USAGE, "")
    assert err.count("\n") == 1
    assert "fencepost.toml: [redact] patterns: number 2, '('" in err
    assert run(capsys, "export", "s1")[0] == 0


def test_exporting_changes_no_byte_beside_a_living_owner(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, log_bytes(FIRST))

    async def held() -> int:
        other = JsonlStore(store)
        handle = await other.own("s1")
        try:
            from fencepost.apps.cli.main import main

            return await asyncio.to_thread(main, ["export", "s1", "--format", "anthropic", "--redact"])
        finally:
            await handle.release()
            await other.close()

    assert asyncio.run(held()) == 0
    assert transcript.RUNNING in capsys.readouterr().out
    assert (store / "s1" / "log.jsonl").read_bytes() == log_bytes(FIRST)
