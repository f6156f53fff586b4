"""The commands that only read: what they print for programs and people, and that they change no byte (law 7)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.apps.command import HANGS, Command, tree
from tests.apps.test_cli_resume import damage, living, queue

LOOKING = [
    ["sessions"],
    ["sessions", "--json"],
    ["show", "s1"],
    ["show", "s1", "--json"],
    ["inspect", "s1"],
    ["inspect", "s1", "--json"],
    ["export", "s1"],
    ["config"],
]


def test_looking_changes_no_byte(cli: Command) -> None:
    cli.killed()
    with cli.log("s1").open("ab") as log:
        log.write(b'{"type":"tool/res')
    before = tree(cli.root)
    for words in LOOKING:
        assert cli.run(*words).status == 0, words
    assert tree(cli.root) == before


def test_looking_at_damage_changes_no_byte(cli: Command) -> None:
    cli.finished()
    damage(cli.log("s1"))
    before = tree(cli.root)
    statuses = {" ".join(words): cli.run(*words).status for words in LOOKING}
    listings = {"sessions": 0, "sessions --json": 0, "config": 0}
    assert statuses == {" ".join(words): 5 for words in LOOKING} | listings
    assert tree(cli.root) == before


# --- inspect -------------------------------------------------------------------------------------------------------


def test_inspect_gives_one_object_with_fixed_fields(cli: Command) -> None:
    cli.killed()
    found = cli.run("inspect", "s1", "--json").record()
    assert list(found) == [
        "session",
        "state",
        "events",
        "watermark",
        "tail_bytes",
        "gates",
        "owner",
        "problem",
        "pending_inputs",
        "calls",
    ]
    assert (found["session"], found["state"], found["owner"], found["problem"]) == ("s1", "interrupted", None, None)
    assert found["events"] == found["watermark"] + 1
    assert found["gates"] == ["step", "request", "tool", "closing"]
    (one,) = found["calls"]
    assert list(one) == [
        *("call_id", "name", "arguments", "turn", "step", "effect", "verdict", "code", "settled_by", "evidence")
    ]
    assert one["arguments"] == {"command": HANGS}
    assert (one["turn"], one["step"], one["effect"]) == (1, 1, "write")
    assert (one["verdict"], one["code"]) == ("outcome_unknown", "TOOL_OUTCOME_UNKNOWN")


def test_the_verdicts_are_those_that_repair_writes(cli: Command) -> None:
    cli.killed()
    before = cli.run("inspect", "s1", "--json").record()["calls"]
    settled = cli.run("inspect", "s1", "--json", "--settle").record()["calls"]
    cli.run("resume", "s1")
    after = cli.run("inspect", "s1", "--json").record()["calls"]
    assert after == settled
    assert [{**call, "evidence": ""} for call in after] == before
    assert "a receipt says" in after[0]["evidence"]


def test_beside_a_living_owner_there_is_no_verdict(cli: Command) -> None:
    with living(cli, "s1") as child:
        found = cli.run("inspect", "s1", "--json").record()
        assert found["state"] == "running"
        assert found["owner"]["pid"] == child.pid
        assert [one["verdict"] for one in found["calls"]] == ["running"]
        assert "held by process" in cli.run("show", "s1").out
        assert "running" in cli.run("inspect", "s1").out
        assert cli.run("export", "s1").records()[-1]["type"] == "tool/call"


def test_inspect_says_to_people_what_a_verdict_means(cli: Command) -> None:
    cli.killed()
    said = " ".join(cli.run("inspect", "s1").out.split())
    assert "outcome unknown" in said
    assert "it may have run" in said
    assert "fencepost resume" in said


# --- sessions ------------------------------------------------------------------------------------------------------


def test_a_list_marks_what_is_broken_and_goes_on(cli: Command) -> None:
    cli.finished()
    cli.killed(session="s2")
    cli.finished("s3")
    damage(cli.log("s3"))
    queue(cli, "s4", "a prompt\nin two lines")
    rows = {row["session"]: row for row in cli.run("sessions", "--json").record()}
    assert {name: row["state"] for name, row in rows.items()} == {
        "s1": "clean",
        "s2": "interrupted",
        "s3": "damaged",
        "s4": "clean",
    }
    assert list(rows["s1"]) == ["session", "state", "created", "updated", "title", "turns", "unknown", "cwd"]
    assert (rows["s1"]["title"], rows["s1"]["turns"], rows["s1"]["unknown"]) == ("look around", 1, 0)
    assert (rows["s2"]["turns"], rows["s2"]["unknown"]) == (1, 1)
    assert (rows["s4"]["title"], rows["s4"]["turns"]) == ("a prompt in two lines", 0)
    listed = cli.run("sessions").out
    assert all(name in listed for name in rows)
    assert all(len(line) <= 80 for line in listed.splitlines())


def test_an_empty_list_is_said(cli: Command) -> None:
    done = cli.run("sessions")
    assert (done.status, done.out) == (0, f"no sessions in jsonl:{cli.store}\n")
    assert cli.run("sessions", "--json").record() == []
    assert not cli.store.exists()


# --- show ----------------------------------------------------------------------------------------------------------


def test_the_timeline_has_turns_steps_calls_gates_and_the_watermark(cli: Command) -> None:
    cli.finished()
    out = cli.run("show", "s1").out
    marks = (
        "look around",
        "turn 1",
        "step gate",
        "request to script",
        "I look.",
        "request gate",
        "call shell",
        "tool gate",
        "result ✓",
        "It is one.",
        "turn 1 ends: completed",
        "closing gate",
        "durable up to seq",
    )
    flat = " ".join(out.split())
    positions = [flat.index(mark) for mark in marks]
    assert positions == sorted(positions)
    assert all(len(line) <= 80 for line in out.splitlines())


def test_half_an_answer_is_marked(cli: Command) -> None:
    cli.finished()
    lines = cli.log("s1").read_bytes().split(b"\n")
    cut = next(index for index, line in enumerate(lines) if b'"assistant/message"' in line)
    cli.log("s1").write_bytes(b"\n".join(lines[:cut]) + b"\n")
    out = cli.run("show", "s1").out
    assert "I look. *interrupted*" in out


def test_both_sides_of_damage_are_shown(cli: Command) -> None:
    cli.finished()
    damage(cli.log("s1"))
    done = cli.run("show", "s1")
    before, after = done.out.split("═══", 1)
    assert done.status == 5
    assert "prompt  look around" in before
    assert "It is one." in after


def test_a_timeline_obeys_no_escape_sequence(cli: Command) -> None:
    cli.script({"content": "\x1b]0;title\x07 red \x1b[31m"})
    cli.run("run", "--session", "s1", "x")
    out = cli.run("show", "s1").out
    assert "\x1b" not in out
    assert "\\x1b" in out


# --- export --------------------------------------------------------------------------------------------------------


def test_an_export_is_the_header_and_every_event_in_order(cli: Command) -> None:
    cli.finished()
    records = cli.run("export", "s1", "--format", "jsonl").records()
    assert records[0] | {"created": 0} == {
        "type": "session",
        "session": "s1",
        "created": 0,
        "cwd": records[0]["cwd"],
        "format": 1,
    }
    assert [event["seq"] for event in records[1:]] == list(range(len(records) - 1))
    assert {"assistant/chunk", "assistant/message"} <= {event["type"] for event in records}
    assert "assistant/chunks" not in {event["type"] for event in records}
    assert cli.run("show", "s1", "--json").records() == records


def test_an_export_of_damage_has_both_sides_and_says_where(cli: Command) -> None:
    cli.finished()
    whole = cli.events("s1")
    damage(cli.log("s1"))
    done = cli.run("export", "s1")
    assert done.status == 5
    records = done.records()[1:]
    (at,) = [index for index, record in enumerate(records) if record["type"] == "gap"]
    gap, before, beyond = records[at], records[:at], records[at + 1 :]
    assert before == whole[: len(before)]
    assert beyond == whole[-len(beyond) :]
    assert beyond
    assert gap["after"] == len(before) - 1
    assert cli.log("s1").read_bytes()[gap["offset"] :]
    assert "damaged" in done.err


@pytest.mark.parametrize(("ignorable", "state", "status"), [(False, "unsupported", 5), (True, "clean", 0)])
def test_an_event_of_a_plugin_that_is_gone_is_shown_and_exported(
    cli: Command, ignorable: bool, state: str, status: int
) -> None:
    cli.finished()
    seq = cli.run("inspect", "s1", "--json").record()["events"]
    raw = {"type": "acme/tick", "seq": seq, "time": 1, "odd": [1, None], **({"ignorable": True} if ignorable else {})}
    line = json.dumps(raw)
    with cli.log("s1").open("a") as log:
        log.write(line + "\n")
    found = cli.run("inspect", "s1", "--json")
    assert (found.record()["state"], found.status) == (state, status)
    export = cli.run("export", "s1")
    assert (export.out.splitlines()[-1], export.status) == (line, status)
    assert "acme/tick" in cli.run("show", "s1").out
    assert cli.run("sessions", "--json").record()[0]["state"] == state


def test_an_empty_log_and_a_torn_header_are_listed_and_stop_nothing(cli: Command) -> None:
    cli.finished()
    for name, data in (("empty", b""), ("torn", b'{"type":"session","sess')):
        cli.log(name).parent.mkdir()
        cli.log(name).write_bytes(data)
    states = {row["session"]: row["state"] for row in cli.run("sessions", "--json").record()}
    assert states == {"s1": "clean", "empty": "damaged", "torn": "damaged"}
    assert cli.run("show", "empty").status == 5
    assert cli.run("inspect", "empty").status == 5
    done = cli.run("export", "torn")
    assert (done.status, done.records()[0]["type"]) == (5, "gap")


def test_a_root_that_is_a_file_is_said(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = cli.run("sessions", "--store", f"jsonl:{tmp_path}/file")
    assert done.status in {2, 5}
    assert done.err.startswith("fencepost: error: ")
