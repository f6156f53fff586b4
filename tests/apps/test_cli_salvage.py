"""`fencepost doctor ID`, `--repair` and `--salvage`: what is said of one damaged session, and what is made of it.

Run in this process, but for the last one.
"""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.apps.cli import examining, exits, showing
from fencepost.apps.cli.checkup import check
from fencepost.apps.cli.lines import lines
from fencepost.apps.cli.main import main
from fencepost.apps.cli.progress import Bar
from fencepost.stores.jsonl import JsonlStore
from tests.apps.command import Command, tree
from tests.apps.inside import put, reading, record, run
from tests.apps.test_cli_resume import damage
from tests.journal.test_salvage import FIRST, KINDS, RAN, REPAIRED, WHOLE
from tests.stores.sample import batch, log_bytes, notes

TWO_LINES = log_bytes(FIRST, REPAIRED) + batch(RAN)
TORN = log_bytes(FIRST) + b"{torn"


@pytest.mark.parametrize("data", KINDS.values(), ids=list(KINDS))
def test_every_kind_of_damage_is_explained_shown_and_exported_on_both_sides(
    store: Path, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    put(store, data)
    before = tree(store)
    read = reading(store)
    found = check(read)
    assert found.state == "damaged"
    assert found.problems[0].offset is not None
    exported = [json.loads(line) for line in lines(read)]
    seqs = [event["seq"] for event in exported if "seq" in event]
    assert seqs == [
        *(range(found.before.last + 1) if found.before else ()),
        *(seq for span in found.beyond for seq in range(span.first, span.last + 1)),
    ]
    assert sum(event["type"] == "gap" for event in exported) == 1
    showing._print(read)
    shown = capsys.readouterr().out
    assert "damaged at byte" in shown
    assert data == b"" or "turn 2 ends" in shown
    assert tree(store) == before


def test_doctor_says_what_is_around_the_damage_and_what_to_do(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, KINDS["a hole of NULs"])
    found = check(reading(store))
    assert (str(found.before), [str(span) for span in found.beyond]) == ("0 to 4", ["6 to 15"])
    examining._print_one(_paper(), found)
    said = " ".join(capsys.readouterr().out.split())
    assert f"byte {found.problems[0].offset}" in said
    assert "before it: events 0 to 4" in said
    assert "beyond it: events 6 to 15" in said
    assert "--salvage NEW" in said
    assert "send_mail outcome unknown it may have run" in said


def test_both_lines_of_two_writers_are_named_and_shown(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, TWO_LINES)
    read = reading(store)
    (second,) = check(read).second_lines
    assert (second.first, second.last) == (5, 6)
    showing._print(read)
    assert "another line of events, from seq 5 on" in capsys.readouterr().out


def test_salvage_makes_sessions_that_can_be_looked_at(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, TWO_LINES)
    before = tree(store)
    made = record(capsys, "doctor", "s1", "--salvage", "new")
    assert [line["session"] for line in made["lines"]] == ["new", "new-2"]
    assert {name: content for name, content in tree(store).items() if name.startswith("s1")} == before
    for line in made["lines"]:
        assert record(capsys, "inspect", line["session"])["state"] == "clean"
        status, shown, _ = run(capsys, "show", line["session"])
        assert status == 0
        assert "gap: " in shown
    status, _, err = run(capsys, "doctor", "s1", "--salvage", "new")
    assert status == exits.USAGE
    assert "session new is there already" in err


def test_salvage_says_to_people_what_became_of_it(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, KINDS["a cut in the middle"])
    status, out, _ = run(capsys, "doctor", "s1", "--salvage", "new")
    assert status == 0
    assert "s1 stays as it is (at byte" in out
    assert "5 intact, 1 gap" in out
    assert "fencepost resume new TASK" in out


def test_repair_moves_the_torn_tail_and_nothing_else(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, TORN)
    assert record(capsys, "doctor", "s1", "--repair") == {"session": "s1", "set_aside": 5}
    assert (store / "s1" / "log.jsonl").read_bytes() == log_bytes(FIRST)
    assert record(capsys, "doctor", "s1", "--repair")["set_aside"] == 0
    assert "nothing was changed" in run(capsys, "doctor", "s1", "--repair")[1]


def test_repair_of_damage_is_five_and_of_a_held_session_four(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, KINDS["a hole of NULs"])
    put(store, TORN, "s2")

    async def held() -> tuple[int, int]:
        other = JsonlStore(store)
        handle = await other.own("s2")
        try:
            return await asyncio.to_thread(main, ["doctor", "s2", "--repair"]), await asyncio.to_thread(
                main, ["doctor", "s2", "--salvage", "new"]
            )
        finally:
            await handle.release()
            await other.close()

    assert run(capsys, "doctor", "s1", "--repair")[0] == exits.DAMAGED
    assert (store / "s1" / "log.jsonl").read_bytes() == KINDS["a hole of NULs"]
    assert asyncio.run(held()) == (exits.HELD, exits.HELD)
    assert (store / "s2" / "log.jsonl").read_bytes() == TORN


@pytest.mark.parametrize(
    "words", [["--repair"], ["--salvage", "new"], ["s1", "--repair", "--salvage", "new"], ["s1", "--salvage", "new"]]
)
def test_what_makes_no_sense_is_usage(store: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    put(store, log_bytes(notes(0, 2)))
    assert run(capsys, "doctor", *words)[0] == exits.USAGE
    assert [path.name for path in store.iterdir()] == ["s1"]


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    Bar(2, "sessions").at(2)
    assert capsys.readouterr().err == ""
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    bar = Bar(4, "sessions")
    for done in range(1, 5):
        bar.at(done)
    assert terminal.getvalue().split("\r")[-1] == f"[{'#' * 30}] 4 of 4 sessions\n"


def _paper() -> Any:
    from fencepost.apps.cli import paper

    return paper.paper()


# --- a part of a timeline ---------------------------------------------------------------------------------------


def test_a_timeline_can_be_cut_to_a_turn_and_to_its_end(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(store, WHOLE)
    status, whole, _ = run(capsys, "show", "s1")
    assert (status, "turn 1 ends" in whole, "turn 2 ends" in whole) == (0, True, True)
    second = run(capsys, "show", "s1", "--turn", "2")[1]
    assert "turn 1" not in second
    assert "turn 2 ends" in second
    last = run(capsys, "show", "s1", "--tail", "2")[1]
    assert "turn 2 ends" in last
    assert "turn 2  gates" not in last
    assert "2 of " in last
    assert run(capsys, "show", "s1", "--json", "--tail", "2")[0] == exits.USAGE


def test_a_killed_and_damaged_session_goes_on_in_a_new_one(cli: Command) -> None:
    """Real processes: killed in a call, its log damaged, salvaged, given a new task; the call is unknown for good."""
    cli.killed(*[{"content": "I check first."}] * 3)
    damage(cli.log("s1"))
    broken = cli.log("s1").read_bytes()
    assert cli.run("resume", "s1", "go on").status == exits.DAMAGED
    assert cli.run("doctor", "s1", "--salvage", "new").status == 0
    done = cli.run("resume", "new", "go on", "--json", "--approve", "all")
    assert (done.status, done.records()[-1]["text"]) == (0, "I check first.")
    found = cli.run("inspect", "new", "--json").record()
    assert (found["state"], [call["verdict"] for call in found["calls"]]) == ("clean", ["outcome_unknown"])
    assert cli.log("s1").read_bytes() == broken
