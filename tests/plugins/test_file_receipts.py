"""What a receipt proves, on real files: each way in which the world can have moved on between a call and its settling.

That a killed process leaves the right receipt is asked in `tests/crash/test_file_receipts.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fencepost.plugins.file_receipts import Receipt, announce, content_of, directory_at, found_at, leave, settle, tidy
from fencepost.plugins.files_write import edit_file, write_file
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.settlement import Completed, DidNotRun, Settlement, Unknown, UnsettledCall
from fencepost.runtime.tools import CallContext, Tool, ToolReply

HERE = f"12@{socket.gethostname()}"


class Desk:
    """A working directory, a session's directory, and one call."""

    def __init__(self, home: Path) -> None:
        self.cwd = home / "work"
        self.cwd.mkdir()
        self.files = home / "session" / "files"
        self.files.parent.mkdir()
        self.place = self.cwd / "a.txt"

    @property
    def receipts(self) -> list[str]:
        return sorted(os.listdir(self.files / "receipts"))

    def do(self, tool: Tool = write_file, **arguments: str) -> ToolReply:
        """The body, to its end."""
        assert tool.thread is not None
        context = CallContext("c1", "s1", self.cwd, CancelSignal(), print, self.files)
        reply = tool.thread(context, arguments or {"path": "a.txt", "content": "new"})
        assert isinstance(reply, ToolReply)
        return reply

    def plan(self, *, announced: bool = False, waits: bool = False) -> Receipt:
        """What a body that is killed on its way leaves."""
        before = found_at(self.place) if self.place.exists() else None
        waiting = self.cwd / ".0123456789abcdef.fencepost"
        directory = directory_at(self.cwd)
        receipt = Receipt(str(self.place), before, content_of(b"new"), 0o644, str(waiting), directory, "Wrote it.")
        leave(self.files, "c1", receipt, "a.txt")
        if waits:
            waiting.write_bytes(b"ne")
        if announced:
            announce(self.files, "c1")
        return receipt

    def started_anew(self) -> None:
        """As if the machine had been started again since the receipt was left."""
        (receipt,) = (self.files / "receipts").iterdir()
        fields = json.loads(receipt.read_bytes())
        receipt.write_text(json.dumps({**fields, "boot": "another"}))

    def call(self, path: str = "a.txt", owner: str = HERE, *, vouched: bool = True) -> UnsettledCall:
        arguments = {"path": path, "content": "new"}
        return UnsettledCall("c1", "s1", "write_file", arguments, "idempotent", 1, self.cwd, self.files, owner, vouched)

    def settle(self, path: str = "a.txt", owner: str = HERE, *, vouched: bool = True) -> Settlement:
        return settle(self.call(path, owner, vouched=vouched))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def unknown(said: Settlement, *parts: str) -> None:
    """It is unknown, and the note holds all of `parts`."""
    assert isinstance(said, Unknown), said
    for part in parts:
        assert part in said.note


def did_not_run(said: Settlement, *parts: str) -> None:
    """It did not run, and the reason holds all of `parts`."""
    assert isinstance(said, DidNotRun), said
    for part in parts:
        assert part in said.why


# --- the file tells -----------------------------------------------------------------------------------------------


def test_what_is_there_as_intended_was_written_and_is_said_in_the_words_of_the_call(desk: Desk) -> None:
    reply = desk.do()
    said = desk.settle()
    assert isinstance(said, Completed)
    assert said.result == reply.text
    assert said.evidence == f"{desk.place} holds 3 bytes (sha256 11507a0e2f5e69d5), as intended"


def test_the_same_bytes_as_before_are_as_intended_too(desk: Desk) -> None:
    desk.place.write_text("new")
    desk.plan()
    assert isinstance(desk.settle(), Completed)


def test_an_edit_is_said_in_its_own_words(desk: Desk) -> None:
    desk.place.write_text("one\ntwo\n")
    reply = desk.do(edit_file, path="a.txt", old="two", new="2")
    said = desk.settle()
    assert isinstance(said, Completed)
    assert said.result == reply.text == "Edited a.txt at line 2: 8 bytes became 6."


def test_what_somebody_wrote_since_leaves_it_unknown_and_is_told(desk: Desk) -> None:
    desk.place.write_text("old text")
    desk.do()
    desk.place.write_text("theirs")
    unknown(desk.settle(), str(desk.place), "it held 8 bytes (sha256", "3 bytes (sha256", "holds 6 bytes (sha256")


def test_old_bytes_that_were_put_back_do_not_prove_that_nothing_ran(desk: Desk) -> None:
    desk.place.write_text("old")
    desk.do()
    desk.place.write_text("old")
    unknown(desk.settle(), "something wrote to it meanwhile")


def test_a_new_file_that_was_removed_since_does_not_prove_that_nothing_ran(desk: Desk) -> None:
    desk.do()
    desk.place.unlink()
    unknown(desk.settle(), "there was none before the call", "there is no file now")


def test_a_directory_that_was_moved_away_proves_nothing(desk: Desk) -> None:
    desk.do(path="sub/a.txt", content="new")
    (desk.cwd / "sub").rename(desk.cwd / "elsewhere")
    unknown(desk.settle("sub/a.txt"), "there is no file now")


@pytest.mark.parametrize("kind", ["directory", "pipe", "link"])
def test_what_is_no_regular_file_any_more_is_unknown(desk: Desk, kind: str) -> None:
    desk.do()
    desk.place.rename(desk.cwd / "kept")
    if kind == "directory":
        desk.place.mkdir()
    elif kind == "pipe":
        os.mkfifo(desk.place)
    else:
        desk.place.symlink_to("kept")
    unknown(desk.settle(), "no regular file")


def test_a_link_that_leads_elsewhere_now_is_told(desk: Desk) -> None:
    for name in ("one", "two"):
        (desk.cwd / name).write_text(name)
    link = desk.cwd / "link"
    link.symlink_to("one")
    desk.do(path="link", content="new")
    link.unlink()
    link.symlink_to("two")
    said = desk.settle("link")
    assert isinstance(said, Completed)
    assert f"{desk.cwd / 'one'} holds" in said.evidence
    assert f"link leads to {desk.cwd / 'two'} now" in said.evidence


def test_a_name_that_is_no_text_is_kept(desk: Desk) -> None:
    (desk.cwd / os.fsdecode(b"caf\xe9")).mkdir()
    (desk.cwd / "link").symlink_to(os.fsdecode(b"caf\xe9"))
    desk.do(path="link/a.txt", content="new")
    assert isinstance(desk.settle("link/a.txt"), Completed)


SETTLING = """
import sys
from pathlib import Path
from fencepost.plugins.file_receipts import settle
from fencepost.runtime.settlement import UnsettledCall
cwd, files = Path(sys.argv[1]), Path(sys.argv[2])
print(settle(UnsettledCall("c1", "s1", "write_file", {"path": "sub/deep/a.txt"}, "idempotent", 1, cwd, files)))
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_what_is_called_completed_was_synced_first(desk: Desk) -> None:
    """Who was killed behind the renaming had not synced it: a power cut would take back what the log says."""
    desk.do(path="sub/deep/a.txt", content="new")
    trace = desk.cwd.parent / "trace"
    command = ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=fsync", sys.executable, "-c", SETTLING]
    done = subprocess.run([*command, str(desk.cwd), str(desk.files)], check=True, capture_output=True, text=True)
    assert done.stdout.startswith("Completed(")
    synced = re.findall(r"fsync\(\d+<(.*)>\)", trace.read_text())
    assert synced == [str(desk.cwd / name) for name in ("sub/deep/a.txt", "sub/deep", "sub")] + [str(desk.cwd)]


# --- how far it came ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", [True, False])
def test_what_was_only_planned_did_not_run_whatever_happened_since(desk: Desk, there: bool) -> None:
    if there:
        desk.place.write_text("old")
    desk.plan()
    did_not_run(desk.settle(), "not going to be put in its place yet")
    desk.place.write_text("theirs")
    did_not_run(desk.settle(), "it holds 6 bytes")


def test_that_it_was_only_planned_says_nothing_in_a_copy_of_the_receipts(desk: Desk) -> None:
    """It was announced and put in its place after the copy was made, and then somebody wrote."""
    desk.place.write_text("old")
    desk.plan()
    desk.place.write_text("somebody's")
    did_not_run(desk.settle())
    unknown(desk.settle(vouched=False), "something wrote to it meanwhile")


def test_what_still_waits_was_not_put_in_its_place(desk: Desk) -> None:
    desk.place.write_text("old")
    desk.plan(announced=True, waits=True)
    did_not_run(desk.settle(), "it held 3 bytes", "had not been put in its place")
    desk.place.write_text("theirs")
    did_not_run(desk.settle())


def test_once_the_machine_was_started_anew_only_the_files_count(desk: Desk) -> None:
    desk.place.write_text("old")
    desk.plan()
    desk.started_anew()
    did_not_run(desk.settle(), "not touched since")
    desk.place.write_text("old")
    unknown(desk.settle())


def test_of_a_file_that_never_was_its_directory_tells(desk: Desk) -> None:
    desk.plan()
    desk.started_anew()
    did_not_run(desk.settle(), "no file was made there since")
    (desk.cwd / "neighbour").touch()
    unknown(desk.settle())


def test_a_renaming_that_failed_left_the_file_as_it_was(desk: Desk) -> None:
    desk.place.write_text("old")
    desk.plan(announced=True)
    did_not_run(desk.settle(), "not touched since")


def test_of_a_call_that_ran_twice_the_second_receipt_says_nothing_about_the_first(desk: Desk) -> None:
    desk.do()
    desk.place.write_text("theirs")
    desk.plan()
    unknown(desk.settle(), "the call was run again, which came to nothing")
    desk.do()
    assert isinstance(desk.settle(), Completed)


# --- no receipt ---------------------------------------------------------------------------------------------------


def test_without_a_receipt_it_did_not_run(desk: Desk) -> None:
    did_not_run(desk.settle(), "no receipt")
    (desk.files / "receipts").mkdir(parents=True)
    did_not_run(desk.settle(), "no receipt")


def test_without_a_receipt_of_another_host_it_is_unknown(desk: Desk) -> None:
    (desk.files / "receipts").mkdir(parents=True)
    unknown(desk.settle(owner="12@elsewhere.example"), "elsewhere.example")


def test_where_receipts_may_be_missing_that_there_is_none_says_nothing(desk: Desk) -> None:
    unknown(desk.settle(vouched=False), "perhaps has not all that ever were")


@pytest.mark.parametrize("torn", [b"", b'{"place": "/x"', b"{}", b"\0\0\0", b"[1]"])
def test_a_receipt_that_cannot_be_read_leaves_it_unknown(desk: Desk, torn: bytes) -> None:
    desk.do()
    (receipt,) = (desk.files / "receipts").iterdir()
    receipt.write_bytes(torn)
    unknown(desk.settle(), "its receipt cannot be read")


def test_nothing_is_changed_without_a_receipt(desk: Desk) -> None:
    desk.place.write_text("old")
    desk.files.write_text("a file where the directory should be")
    reply = desk.do()
    assert (reply.code, reply.is_error) == ("NO_RECEIPT", True)
    assert reply.text.startswith("a.txt: nothing was changed, for the receipt of the call could not be saved")
    assert desk.place.read_text() == "old"
    assert os.listdir(desk.cwd) == ["a.txt"]


# --- what is left, and what is not ----------------------------------------------------------------------------------


def test_receipts_are_for_the_owner_only_and_hold_no_content(desk: Desk) -> None:
    desk.do(path="a.txt", content="a secret")
    assert desk.receipts == ["c1.file.put"]
    (receipt,) = (desk.files / "receipts").iterdir()
    assert stat.S_IMODE(receipt.stat().st_mode) == 0o600
    assert stat.S_IMODE(receipt.parent.stat().st_mode) == 0o700
    assert "secret" not in receipt.read_text()


def test_tidying_removes_what_the_receipt_names_and_nothing_else(desk: Desk) -> None:
    desk.place.write_text("old")
    other = desk.cwd / ".fedcba9876543210.fencepost"
    other.write_text("of another call")
    desk.plan(announced=True, waits=True)
    unfinished = desk.files / "receipts" / "c1.file.new"
    unfinished.write_text("{")
    tidy(desk.call())
    assert sorted(os.listdir(desk.cwd)) == [other.name, "a.txt"]
    assert desk.receipts == ["c1.file.put"]
    tidy(desk.call())


def test_tidying_removes_no_name_that_a_body_would_not_make(desk: Desk) -> None:
    """A session that came from elsewhere brings its receipts along."""
    desk.place.write_text("mine")
    desk.do(path="b.txt", content="x")
    (receipt,) = (desk.files / "receipts").iterdir()
    receipt.write_text(json.dumps({**json.loads(receipt.read_bytes()), "waiting": str(desk.place)}))
    tidy(desk.call())
    desk.do(path="b.txt", content="y")
    assert desk.place.read_text() == "mine"


def test_a_path_through_a_file_leaves_no_receipt(desk: Desk) -> None:
    desk.place.write_text("old")
    assert desk.do(path="a.txt/b", content="x").code == "NOT_A_DIRECTORY"
    assert not desk.files.exists()


def test_tidying_leaves_a_directory_that_has_the_name(desk: Desk) -> None:
    receipt = desk.plan(announced=True)
    Path(receipt.waiting).mkdir()
    tidy(desk.call())
    assert Path(receipt.waiting).is_dir()


def test_tidying_without_a_receipt_does_nothing(desk: Desk) -> None:
    tidy(desk.call())
    assert os.listdir(desk.cwd) == []


def test_settling_changes_nothing(desk: Desk) -> None:
    desk.place.write_text("old")
    desk.plan(announced=True, waits=True)

    def state() -> list[tuple[str, int, int]]:
        paths = sorted(desk.cwd.parent.rglob("*"))
        return [(str(path), path.stat().st_mtime_ns, path.stat().st_ctime_ns) for path in paths]

    before = state()
    desk.settle()
    assert state() == before


def test_a_second_run_of_the_same_call_removes_what_the_first_left_waiting(desk: Desk) -> None:
    desk.plan(announced=True, waits=True)
    desk.do()
    assert os.listdir(desk.cwd) == ["a.txt"]


# --- the file itself ------------------------------------------------------------------------------------------------


def test_calls_on_the_same_file_have_the_same_lock(desk: Desk) -> None:
    (desk.cwd / "link").symlink_to("a.txt")
    (desk.cwd / "sub").mkdir()
    for tool in (write_file, edit_file):
        assert tool.lock is not None
        names = {tool.lock({"path": path}, desk.cwd) for path in ("a.txt", "link", "sub/../a.txt", str(desk.place))}
        assert names == {str(desk.place)}
        assert tool.lock({"path": "b.txt"}, desk.cwd) != str(desk.place)
        assert tool.lock({"path": ""}, desk.cwd) is None
        assert tool.parallel is None


def test_other_hard_links_keep_the_old_content(desk: Desk) -> None:
    desk.place.write_text("old")
    os.link(desk.place, desk.cwd / "twin")
    desk.do()
    assert (desk.cwd / "twin").read_text() == "old"
    assert isinstance(desk.settle(), Completed)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_an_owner_who_is_kept_keeps_a_set_user_bit_too(desk: Desk) -> None:
    desk.place.write_text("old")
    os.chown(desk.place, 12345, 12346)
    desk.place.chmod(0o6755)
    desk.do()
    status = desk.place.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (12345, 12346, 0o6755)
