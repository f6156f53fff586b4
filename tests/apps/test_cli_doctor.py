"""`fencepost doctor`: sessions with byte offsets, and the medium by killing children on it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from fencepost.apps.cli import examining, medium
from tests.apps.command import SECONDS, Command, tree
from tests.apps.test_cli_resume import damage
from tests.stores.postgres import servers


def test_the_report_has_sessions_and_a_medium_that_was_tried(cli: Command) -> None:
    cli.killed()
    before = tree(cli.store)
    done = cli.run("doctor", "--json")
    report = done.record()
    assert done.status == 0
    (session,) = report["sessions"]
    assert (session["session"], session["state"], session["problems"]) == ("s1", "interrupted", [])
    assert [claim["verdict"] for claim in session["calls"]] == ["outcome_unknown"]
    tried = report["medium"]
    assert tried["path"] == str(cli.store)
    assert tried["filesystem"] not in {"", "unknown"}
    assert (tried["locks"], tried["syncs"], tried["ok"]) == (True, True, True)
    assert [(kill["gate"], kill["ok"]) for kill in tried["kills"]] == [
        ("request", True),
        ("tool", True),
        ("result", True),
    ]
    assert tree(cli.store) == before


def test_damage_is_five_with_its_offset(cli: Command, capsys: pytest.CaptureFixture[str]) -> None:
    cli.finished()
    cli.finished("s2")
    damage(cli.log("s2"))
    with cli.log("s1").open("ab") as log:
        log.write(b"{torn")
    done = cli.run("doctor", "--json")
    found = {session["session"]: session for session in done.record()["sessions"]}
    assert done.status == 5
    assert found["s1"]["tail_bytes"] == 5
    assert found["s1"]["problems"] == []
    (problem,) = found["s2"]["problems"]
    assert done.record()["counts"] == {
        "sessions": 2,
        "states": {"clean": 1, "damaged": 1},
        "torn": 1,
        "unknown": 0,
    }
    assert 0 < problem["offset"] < cli.log("s2").stat().st_size
    examining._print(msgspec.convert(done.record(), examining.Report))
    said = " ".join(capsys.readouterr().out.split())
    assert f"byte {problem['offset']}" in said
    assert "5 torn bytes" in said
    assert "2 sessions: 1 clean, 1 damaged; 1 with a torn tail" in said
    assert "killed at tool: ok" in said


def test_a_store_that_is_not_there_is_not_made(cli: Command) -> None:
    done = cli.run("doctor", "--json")
    assert done.status == 0
    assert done.record()["sessions"] == []
    assert done.record()["medium"]["path"] == str(cli.root)
    assert not cli.store.exists()
    assert not list(cli.root.glob(".fencepost*"))


def test_a_place_where_nothing_can_be_made_fails(cli: Command) -> None:
    done = cli.run("doctor", "--json", "--store", "jsonl:/proc/sys/fencepost")
    assert done.status == 1
    assert done.record()["medium"]["ok"] is False


def test_memory_has_no_place_to_try(cli: Command) -> None:
    report = cli.run("doctor", "--json", "--store", "memory:").record()
    assert report["sessions"] == []
    assert (report["medium"]["path"], report["medium"]["locks"], report["medium"]["kills"]) == (None, None, [])


def test_the_directory_of_a_database_file_is_tried(cli: Command) -> None:
    file = cli.root / "agents.db"
    url = f"sqlite:{file}"
    assert cli.run("doctor", "--json", "--store", url).status == 0
    assert not file.exists()
    cli.script({"content": "Done."})
    assert cli.run("run", "--store", url, "--session", "s1", "x").status == 0
    before = file.read_bytes()
    done = cli.run("doctor", "--json", "--store", url)
    tried = done.record()["medium"]
    assert done.status == 0
    assert [session["state"] for session in done.record()["sessions"]] == ["clean"]
    assert (tried["path"], tried["locks"], tried["syncs"], tried["ok"]) == (str(cli.root), True, True, True)
    assert [(kill["gate"], kill["ok"]) for kill in tried["kills"]] == [(gate, True) for gate in medium.GATES]
    assert tried["settings"].keys() == {"sqlite_version"}
    assert file.read_bytes() == before
    assert not list(cli.root.glob(".fencepost*"))


def test_a_server_says_what_it_rests_on(cli: Command, cluster: servers.Cluster) -> None:
    done = cli.run("doctor", "--json", "--store", f"{cluster.url}?schema=doctor")
    found = done.record()["medium"]
    assert done.status == 0
    assert (found["path"], found["ok"], found["problems"], found["kills"]) == (None, True, [], [])
    assert found["settings"].keys() == {"fsync", "full_page_writes", "synchronous_commit", "server_version"}
    assert found["settings"]["fsync"] == "on"
    assert "no child was killed" in found["detail"]


def test_a_server_that_does_not_sync_fails(cli: Command, capsys: pytest.CaptureFixture[str]) -> None:
    with servers.cluster(fsync=False) as forgetful:
        done = cli.run("doctor", "--json", "--store", forgetful.url)
    found = done.record()["medium"]
    assert done.status == 1
    assert found["ok"] is False
    (problem,) = found["problems"]
    assert "fsync = off" in problem
    examining._print(msgspec.convert(done.record(), examining.Report))
    said = " ".join(capsys.readouterr().out.split())
    assert "wrong: the server runs with fsync = off" in said
    assert "full_page_writes = on" in said


def test_the_judge_tells_a_wrong_log_from_a_right_one(tmp_path: Path) -> None:
    """A child that was killed in its call, judged as if it had been killed elsewhere."""
    url = f"jsonl:{tmp_path}"
    child = medium._child("at", "tool", url, "s")
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"here\n"
        held = asyncio.run(medium._while(url, "s", medium._is_held))
        alive = asyncio.run(medium._while(url, "s", medium._tells_the_truth("tool")))
    finally:
        child.kill()
        child.communicate()
    assert held is None
    assert alive is not None
    assert asyncio.run(medium._while(url, "s", medium._tells_the_truth("tool"))) is None
    wrong = asyncio.run(medium._while(url, "s", medium._tells_the_truth("result")))
    assert wrong is not None
    assert "outcome_unknown" in wrong
    assert "could be taken" in str(asyncio.run(medium._while(url, "s", medium._is_held)))


def test_a_probe_does_not_outlive_its_doctor(tmp_path: Path) -> None:
    child = medium._child("at", "request", f"jsonl:{tmp_path}", "s")
    assert child.stdout is not None
    assert child.stdout.readline() == b"here\n"
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(SECONDS) != 0
    child.stdout.close()
    assert child.stderr is not None
    child.stderr.close()


@pytest.mark.skipif(not Path("/proc/self/mounts").exists(), reason="no mounts to read here")
def test_the_file_system_is_that_of_the_nearest_mount() -> None:
    assert medium.filesystem_of(Path("/proc/self")) == "proc"
