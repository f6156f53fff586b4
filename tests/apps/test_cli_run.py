"""`fencepost run`: what is printed, for people and for programs, and what the exit status says."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path

import pytest

from fencepost.testing import ModelServer
from tests.apps.command import Command, call, finish, read_until, tree


def test_the_first_line_names_session_and_guarantees_before_any_request(cli: Command) -> None:
    held = {"content": "Hello there.", "fault": {"kind": "hold"}}
    with ModelServer([held]) as server:
        cli.environ |= {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "k", "FENCEPOST_MODEL": "openai:any"}
        child = cli.start("run", "--json", "--session", "s1", "say hello")
        records = read_until(child, "request/header")
        assert server.holds[0].reached.wait(30)
        server.holds[0].release.set()
        done = finish(child)
    first = records[0]
    assert first["session"] == "s1"
    assert first["store"] == f"jsonl:{cli.store}"
    assert first["cwd"] == str(cli.work)
    assert first["model"] == "openai:any"
    assert first["guarantees"]["gates"] == ["step", "request", "tool", "closing"]
    assert first["guarantees"]["durable"] is True
    empty = {"interrupted": None, "set_aside": 0, "closed": 0, "calls": [], "pending_inputs": [], "half_answer": ""}
    assert first["recovery"] == empty
    assert done.status == 0
    last = done.records()[-1]
    assert last["type"] == "outcome"
    assert (last["session"], last["reason"], last["text"], last["saved"]) == ("s1", "completed", "Hello there.", True)


def test_the_events_are_those_of_the_log_byte_for_byte(cli: Command) -> None:
    cli.script(call("shell", "I look.", command="echo one"), {"content": "Done."})
    done = cli.run("run", "--json", "--session", "s1", "--approve", "all", "look")
    assert done.status == 0
    assert done.out.splitlines()[1:-1] == cli.run("export", "s1").out.splitlines()[1:]


def test_piped_standard_output_is_the_answer_alone(cli: Command) -> None:
    cli.script(call("shell", "I look.", command="echo one"), {"content": "It is \x1b[1mone\x1b[0m."})
    done = cli.run("run", "--approve", "all", "look")
    assert (done.status, done.out) == (0, "It is \x1b[1mone\x1b[0m.\n")
    assert done.err.startswith("session ")


def test_the_task_can_come_from_standard_input(cli: Command) -> None:
    cli.script({"content": "Yes."})
    assert cli.run("run", "--session", "s1", "-", stdin="a long\ntask\n").status == 0
    queued = [event for event in cli.events("s1") if event["type"] == "input/queued"]
    assert queued[0]["content"] == [{"type": "text", "text": "a long\ntask\n"}]


def test_a_turn_that_ends_otherwise_is_one(cli: Command) -> None:
    cli.script()
    done = cli.run("run", "--json", "x")
    assert done.status == 1
    last = done.records()[-1]
    assert (last["reason"], last["code"], last["saved"]) == ("error", "SCRIPT_EXHAUSTED", True)


def test_an_id_that_is_taken_is_refused_with_advice(cli: Command) -> None:
    cli.script({"content": "Yes."})
    assert cli.run("run", "--session", "s1", "x").status == 0
    before = tree(cli.store)
    done = cli.run("run", "--session", "s1", "y", "--json")
    assert done.status == 2
    assert "fencepost resume s1" in done.err
    assert done.records() == [
        {
            "type": "outcome",
            "session": None,
            "reason": "error",
            "text": "",
            "saved": False,
            "code": "EXISTS",
            "message": done.err.removeprefix("fencepost: error: ").rstrip("\n"),
            "turn": None,
        }
    ]
    assert tree(cli.store) == before


def test_without_a_terminal_writing_calls_are_denied_and_told_the_flag(cli: Command) -> None:
    cli.script(call("shell", command="touch made"), {"content": "I could not."})
    assert cli.run("run", "--session", "s1", "make it").status == 0
    (result,) = [event for event in cli.events("s1") if event["type"] == "tool/result"]
    assert result["code"] == "DENIED"
    assert "--approve all" in result["content"][0]["text"]
    assert not (cli.work / "made").exists()


# --- not saving ------------------------------------------------------------------------------------------------------


def test_not_saving_is_marked_and_writes_stay_off(cli: Command) -> None:
    (cli.work / "fencepost.toml").write_text("approve = 'all'\n")
    cli.script(call("shell", command="touch made"), {"content": "Not done."})
    done = cli.run("run", "--store", "memory:", "--json", "make it")
    assert done.status == 0
    assert "NOT SAVED" in cli.run("run", "--store", "memory:", "x").err
    result = next(record for record in done.records() if record["type"] == "tool/result")
    assert result["code"] == "DENIED"
    assert "saves nothing" in result["content"][0]["text"]
    assert done.records()[-1]["saved"] is False
    assert not (cli.work / "made").exists()
    assert not cli.store.exists()


def test_not_saving_lets_writes_through_where_the_flag_says_so(cli: Command) -> None:
    cli.script(call("shell", command="touch made"), {"content": "Done."})
    done = cli.run("run", "--store", "memory:", "--approve", "all", "make it")
    assert (done.status, done.out) == (0, "Done.\n")
    assert (cli.work / "made").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_is_not_saved_and_nothing_behind_a_gate_ran(cli: Command, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(full)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    try:
        (full / "ballast").write_bytes(b"x" * 40_000)
        cli.script(call("shell", "word " * 8000, command="touch made"), {"content": "Done."})
        done = cli.run("run", "--store", f"jsonl:{full}/s", "--approve", "all", "--json", "make it")
    finally:
        subprocess.run(["umount", str(full)], check=True)
    assert done.status == 3
    assert "NOT SAVED" in done.err
    last = done.records()[-1]
    assert (last["type"], last["saved"], last["code"]) == ("outcome", False, "NOT_SAVED")
    assert not (cli.work / "made").exists()


def test_a_log_that_may_not_grow_is_not_saved(cli: Command) -> None:
    cli.script(call("shell", "word " * 8000, command="touch made"), {"content": "Done."})

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, 16_384))

    done = cli.run("run", "--approve", "all", "--json", "make it", preexec_fn=small_files)
    assert done.status == 3
    assert done.records()[-1]["saved"] is False
    assert not (cli.work / "made").exists()


@pytest.mark.skipif(not Path("/sys/kernel").exists(), reason="no file system here that takes no directories")
def test_a_store_that_cannot_be_made_is_not_saved(cli: Command) -> None:
    cli.script({"content": "Done."})
    done = cli.run("run", "--store", "jsonl:/sys/fencepost", "x")
    assert done.status == 3
    assert done.err.startswith("fencepost: error: ")


# --- where the choices come from -----------------------------------------------------------------------------------


def test_flag_then_environment_then_file(cli: Command) -> None:
    for name in ("flag", "environment", "file"):
        (cli.root / f"{name}.jsonl").write_text(json.dumps({"content": name}) + "\n")
    (cli.work / "fencepost.toml").write_text("model = 'script:../file.jsonl'\nstore = 'jsonl:./here'\n")
    del cli.environ["FENCEPOST_STORE"]
    assert cli.run("run", "x").out == "file\n"
    assert (cli.work / "here").is_dir()
    cli.environ["FENCEPOST_MODEL"] = f"script:{cli.root}/environment.jsonl"
    assert cli.run("run", "x").out == "environment\n"
    assert cli.run("run", "x", "--model", f"script:{cli.root}/flag.jsonl").out == "flag\n"


def test_the_default_store_is_in_the_users_data_directory(cli: Command) -> None:
    del cli.environ["FENCEPOST_STORE"]
    cli.script({"content": "Yes."})
    assert cli.run("run", "--session", "s1", "x").status == 0
    assert (cli.root / "home/.local/share/fencepost/sessions/s1/log.jsonl").is_file()


def test_the_working_directory_can_be_given(cli: Command) -> None:
    other = cli.root / "other"
    other.mkdir()
    cli.script(call("shell", command="touch made"), {"content": "Done."})
    assert cli.run("run", "--cwd", str(other), "--approve", "all", "make it").status == 0
    assert (other / "made").exists()
