"""What is said about a command after a crash, from its receipts; with receipts that were changed where a crash would.

What happens when processes are killed for real is in `tests/crash/test_shell_receipts.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.plugins.shell_desk import Desk

from fencepost.plugins.shell import NOT_RUN, shell_tool
from fencepost.plugins.shell_receipts import attempts
from fencepost.plugins.shell_record import Receipts
from fencepost.runtime.settlement import Completed, DidNotRun, StillRunning, Unknown, UnsettledCall

linux = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Edit one receipt."""
    fields = json.loads(path.read_bytes())
    edit(fields)
    path.write_text(json.dumps(fields))


def without_done(desk: Desk, command: str) -> Path:
    """A call whose supervisor was killed behind the command's end; its started record."""
    desk.run(command)
    (desk.receipts / f"{desk.call_id}.1.done").unlink()
    return desk.receipts / f"{desk.call_id}.1.started"


# --- a receipt ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "echo hello",
        "true",
        "echo oh; exit 3",
        "kill -SEGV $$",
        "setsid sleep 1000 & echo on",
        "seq 100000",
        r"printf 'a\377b\342\202'",
        "head -c 40000 /dev/urandom",
    ],
)
def test_a_receipt_gives_the_very_reply_that_was_given_live(desk: Desk, command: str) -> None:
    reply = desk.run(command)
    said = desk.settle()
    assert isinstance(said, Completed)
    assert said.result == reply
    assert said.evidence.startswith("its receipt says e")


def test_a_receipt_does_not_need_the_file_with_the_output(desk: Desk) -> None:
    reply = desk.run("seq 100000")
    desk.log.unlink()
    said = desk.settle()
    assert isinstance(said, Completed)
    assert said.result == reply


def test_what_was_ended_is_unknown_with_what_it_had_printed_last(desk: Desk) -> None:
    desk.run("seq 100; sleep 1000", timeout=0.3)
    said = desk.settle()
    assert isinstance(said, Unknown)
    assert said.note == (
        f"a receipt says that the command was ended after 0.3 s. It had printed 292 bytes ({desk.log}), "
        "the last of them:\n" + "\n".join(str(number) for number in range(91, 101))
    )


def test_what_the_system_refused_did_not_run(desk: Desk) -> None:
    assert desk.run("echo " + "x" * 3_000_000).code == NOT_RUN
    assert desk.settle() == DidNotRun("a receipt says that the system refused to run it: Argument list too long")


def test_asking_changes_nothing(desk: Desk) -> None:
    without_done(desk, "echo hello")

    def tree() -> dict[Path, str]:
        return {
            path: f"{path.stat().st_mtime_ns} {hashlib.sha256(path.read_bytes()).hexdigest()}"
            for path in desk.files.rglob("*")
            if path.is_file()
        }

    before = tree()
    assert isinstance(desk.settle(), Unknown)
    assert tree() == before


# --- no receipt ---------------------------------------------------------------------------------------------------


def test_without_a_started_record_it_did_not_run(desk: Desk) -> None:
    said = DidNotRun("the command has no started record, without which none is let go")
    assert desk.settle() == said
    desk.receipts.mkdir(parents=True)
    assert desk.settle() == said


def test_where_a_record_would_not_be_seen_its_absence_says_nothing(desk: Desk, tmp_path: Path) -> None:
    said = desk.settle(vouched=False)
    assert said == Unknown(f"no receipt of it is in {desk.receipts}, which perhaps has not all that ever were")
    desk.files = tmp_path / "file"
    desk.files.touch()
    assert desk.settle() == Unknown("the receipts of the shell cannot be read: Not a directory")


def test_output_without_a_record_says_that_something_ran(desk: Desk) -> None:
    desk.files.mkdir()
    desk.log.write_text("x")
    said = desk.settle()
    assert said == Unknown(f"its receipt is missing, but there is output of it in {desk.log}")


def test_another_host_may_have_the_receipt(desk: Desk) -> None:
    assert desk.settle("17@elsewhere.example") == Unknown("its receipts are on elsewhere.example, which had let it go")


@linux
def test_whoever_let_it_go_may_still_be_about_to(desk: Desk) -> None:
    """A paused process that was taken over from is not dead."""
    with subprocess.Popen(["sleep", "1000"]) as paused:
        owner = f"{paused.pid}@{socket.gethostname()}"
        assert isinstance(desk.settle(owner), Unknown)
        paused.kill()
        paused.wait()
    assert isinstance(desk.settle(owner), DidNotRun)
    assert isinstance(desk.settle(f"{os.getpid()}@{socket.gethostname()}"), DidNotRun)


@pytest.mark.parametrize("which", ["started", "done"])
def test_a_damaged_receipt_is_unknown(desk: Desk, which: str) -> None:
    desk.run("true")
    (desk.receipts / f"{desk.call_id}.1.{which}").write_bytes(b'{"version": 1, "outc')
    said = desk.settle()
    assert isinstance(said, Unknown)
    assert said.note.startswith("a receipt of the shell is damaged: ")


def test_started_and_gone_is_unknown_with_what_it_had_printed(desk: Desk) -> None:
    without_done(desk, "echo one; echo two")
    assert desk.settle() == Unknown(
        "its command was started and is gone, and nothing says how it ended. "
        f"It had printed 8 bytes ({desk.log}), the last of them:\none\ntwo"
    )


@pytest.mark.parametrize("what", ["boot", "space"])
def test_after_a_restart_of_the_machine_no_process_is_taken_for_it(desk: Desk, what: str) -> None:
    """Not even one that has its process id and its start."""
    started = without_done(desk, "true")

    def ours(fields: dict[str, Any]) -> None:
        fields["command"] = fields["supervisor"] = {"pid": os.getpid(), "start": 0}
        fields[what] = "another"

    change(started, ours)
    assert desk.settle() == Unknown(
        "its command was started, and the machine was started anew since then, or it was another machine. "
        "It had printed nothing"
    )


@linux
def test_a_process_id_that_came_back_is_not_taken_for_the_command(desk: Desk) -> None:
    started = without_done(desk, "true")
    change(started, lambda fields: fields["command"].update(pid=os.getpid()))
    change(started, lambda fields: fields["supervisor"].update(pid=os.getpid()))
    assert isinstance(desk.settle(), Unknown)


@linux
def test_the_process_itself_still_runs(desk: Desk) -> None:
    started = without_done(desk, "true")
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        start = int(Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[19])
        change(started, lambda fields: fields.update(command={"pid": other.pid, "start": start}))
        said = desk.settle()
        assert isinstance(said, StillRunning)
        assert said.evidence.startswith(f"process {other.pid}, since ")
        other.kill()


# --- run again ----------------------------------------------------------------------------------------------------


def test_a_call_that_runs_again_has_receipts_and_output_of_its_own(desk: Desk) -> None:
    desk.run("echo first; exit 3")
    reply = desk.run("echo second")
    assert [attempt.number for attempt in attempts(desk.files, desk.call_id)] == [1, 2]
    said = desk.settle()
    assert isinstance(said, Completed)
    assert said.result == reply
    (desk.receipts / f"{desk.call_id}.2.done").unlink()
    said = desk.settle()
    assert isinstance(said, Unknown)
    assert said.note.endswith("the last of them:\nsecond")


def test_a_second_run_that_was_never_let_go_leaves_the_first_one_s_word(desk: Desk) -> None:
    reply = desk.run("echo first")
    desk.run("echo " + "x" * 3_000_000)
    said = desk.settle()
    assert isinstance(said, Completed)
    assert said.result == reply


def test_two_supervisors_of_one_call_never_share_a_record(tmp_path: Path) -> None:
    first, second = Receipts(str(tmp_path), "c"), Receipts(str(tmp_path), "c")
    first.begin({"who": 1})
    second.begin({"who": 2})
    first.end({"who": 1})
    second.end({"who": 2})
    told = {path.name: json.loads(path.read_text())["who"] for path in tmp_path.iterdir()}
    assert told == {"c.1.started": 1, "c.1.done": 1, "c.2.started": 2, "c.2.done": 2}


# --- tidying ------------------------------------------------------------------------------------------------------


@linux
def test_what_a_dead_supervisor_was_about_to_put_into_place_is_removed_and_nothing_else(desk: Desk) -> None:
    desk.run("true")
    kept = sorted(path.name for path in desk.receipts.iterdir())
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    dead = desk.receipts / f".{desk.call_id}.done.{gone.pid}.tmp"
    others = [
        desk.receipts / f".{desk.call_id}.started.{os.getpid()}.tmp",
        desk.receipts / f".{desk.call_id}x.done.{gone.pid}.tmp",
    ]
    for path in (dead, *others):
        path.touch()
    tidy = shell_tool().tidy
    assert tidy is not None
    tidy(UnsettledCall(desk.call_id, "s1", "shell", {}, "write", 1, desk.cwd, desk.files))
    assert not dead.exists()
    assert sorted(path.name for path in desk.receipts.iterdir()) == sorted([*kept, *(path.name for path in others)])


def test_tidying_goes_nowhere_else_whatever_a_log_calls_its_calls(desk: Desk) -> None:
    """A session may have come from somebody else."""
    desk.run("true")
    other = desk.files.parent / "other.4194304.tmp"
    other.touch()
    tidy = shell_tool().tidy
    assert tidy is not None
    tidy(UnsettledCall("/../../other", "s1", "shell", {}, "write", 1, desk.cwd, desk.files))
    assert other.exists()
