"""The file tools on real files: what is read and found, what a write leaves, what is refused and in which words."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from fencepost.plugins.files import file_tools
from fencepost.plugins.files_read import ENTRIES, LINE_BYTES, LINES, MATCHES, READ_BYTES
from fencepost.plugins.files_walk import LARGEST, LINE_SHOWN, glob_matcher
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.schema import validate
from fencepost.runtime.tools import CallContext, ToolReply

TOOLS = {tool.name: tool for tool in file_tools()}
not_root = pytest.mark.skipif(os.geteuid() == 0, reason="root may do everything")


class Desk:
    """A working directory, and the tools in it."""

    def __init__(self, place: Path) -> None:
        self.cwd = place / "work"
        self.cwd.mkdir()
        self.cancel = CancelSignal()

    def call(self, name: str, **arguments: Any) -> ToolReply:
        tool = TOOLS[name]
        assert tool.thread is not None
        assert validate(tool, arguments) is None
        context = CallContext("c1", "s1", self.cwd, self.cancel, lambda text: None, self.cwd.parent / "files")
        reply = tool.thread(context, arguments)
        assert isinstance(reply, ToolReply)
        return reply

    def fine(self, name: str, **arguments: Any) -> str:
        reply = self.call(name, **arguments)
        assert not reply.is_error, reply
        return reply.text

    def refused(self, name: str, **arguments: Any) -> tuple[str, str]:
        reply = self.call(name, **arguments)
        assert reply.is_error, reply
        assert "\n" not in reply.text
        return reply.code, reply.text

    def put(self, path: str, content: str | bytes) -> Path:
        place = self.cwd / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
        return place


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_the_set_and_its_effects() -> None:
    assert {name: tool.effect for name, tool in TOOLS.items()} == {
        "read_file": "read",
        "list_files": "read",
        "search_files": "read",
        "write_file": "idempotent",
        "edit_file": "write",
    }
    for tool in TOOLS.values():
        assert tool.thread is not None
        assert tool.guard is not None
        assert tool.spec.description


# --- read_file --------------------------------------------------------------------------------------------------


def test_reading_gives_the_text_as_it_is(desk: Desk) -> None:
    content = "one\r\ntwo\u2028still two\u0085\x0bstill\n\nfour €"
    desk.put("a.txt", content)
    assert desk.fine("read_file", path="a.txt") == content
    assert desk.fine("read_file", path=str(desk.cwd / "a.txt")) == content


def test_lines_are_cut_at_byte_0x0a_only(desk: Desk) -> None:
    desk.put("a.txt", "one\rone\u2028one\ntwo\n")
    assert desk.fine("read_file", path="a.txt", offset=2) == "two\n"


def test_a_part_is_read_with_a_note_that_says_how_to_go_on(desk: Desk) -> None:
    desk.put("a.txt", "".join(f"line {n}\n" for n in range(1, 11)))
    said = desk.fine("read_file", path="a.txt", offset=3, limit=2)
    assert said == "line 3\nline 4\n[lines 3 to 4; the file goes on: read it with offset=5]\n"
    assert desk.fine("read_file", path="a.txt", offset=10) == "line 10\n"


def test_a_long_file_can_be_read_page_by_page(desk: Desk) -> None:
    content = "".join(f"{n} {'x' * (n % 90)}\n" for n in range(9_000))
    desk.put("a.txt", content)
    pages, offset = [], 1
    while True:
        page = desk.fine("read_file", path="a.txt", offset=offset)
        note = re.search(r"\[lines (\d+) to (\d+); the file goes on: read it with offset=(\d+)\]\n$", page)
        pages.append(page[: note.start()] if note else page)
        if note is None:
            break
        assert int(note[2]) - int(note[1]) < LINES
        assert len(pages[-1].encode()) < READ_BYTES + LINE_BYTES
        offset = int(note[3])
    assert "".join(pages) == content
    assert len(pages) > 4


def test_a_line_without_end_is_cut_and_the_next_one_found(desk: Desk) -> None:
    desk.put("min.js", "€" * 1_000_000 + "\nlast\n")
    said = desk.fine("read_file", path="min.js").split("\n")
    assert said[0] == "€" * (LINE_BYTES // 3) + "…"
    assert said[1] == "last"
    assert said[2] == f"[line 1 is cut: {LINE_BYTES} of its 3000001 bytes are shown]"


def test_what_is_not_utf8_is_shown_replaced_and_said(desk: Desk) -> None:
    desk.put("latin", b"caf\xe9\n")
    assert desk.fine("read_file", path="latin") == (
        "caf\ufffd\n[bytes that are not UTF-8 are shown as \ufffd; edit_file cannot match them]\n"
    )
    desk.put("honest", "a real \ufffd\n")
    assert desk.fine("read_file", path="honest") == "a real \ufffd\n"


def test_an_empty_file_is_said_to_be_empty(desk: Desk) -> None:
    desk.put("a.txt", "")
    assert desk.fine("read_file", path="a.txt") == "[the file is empty]\n"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ({"path": "none.txt"}, "NO_SUCH_FILE", "none.txt: there is no such file."),
        ({"path": "dir"}, "IS_A_DIRECTORY", "dir: it is a directory; list it with list_files."),
        ({"path": "a.txt/b"}, "NOT_A_DIRECTORY", "a.txt/b: a part of that path is not a directory."),
        ({"path": "bin"}, "BINARY", "bin: it is not text (NUL byte at offset 2); look at it with a command."),
        ({"path": "wide"}, "BINARY", "wide: it is UTF-16 text; convert it first, for instance with iconv."),
        ({"path": "pipe"}, "NOT_A_FILE", "pipe: it is a device, pipe or socket, not a file."),
        ({"path": "/dev/zero"}, "NOT_A_FILE", "/dev/zero: it is a device, pipe or socket, not a file."),
        ({"path": "loop"}, "BAD_PATH", "loop: its symbolic links go round in a circle."),
        ({"path": "x" * 300}, "BAD_PATH", "x" * 300 + ": the name is too long."),
        ({"path": ""}, "BAD_PATH", "The path is empty."),
        ({"path": "a\0b"}, "BAD_PATH", "The path holds a NUL character."),
        ({"path": "a\ud800"}, "BAD_PATH", "The path holds half of a surrogate pair."),
        ({"path": "a.txt", "offset": 5}, "PAST_END", "a.txt: it has only 2 lines, so there is no line 5."),
    ],
)
def test_what_cannot_be_read_is_one_sentence(desk: Desk, arguments: Any, code: str, sentence: str) -> None:
    (desk.cwd / "dir").mkdir()
    desk.put("a.txt", "1\n2\n")
    desk.put("bin", b"\x7fE\0LF")
    desk.put("wide", "text".encode("utf-16"))
    os.mkfifo(desk.cwd / "pipe")
    (desk.cwd / "loop").symlink_to("loop")
    assert desk.refused("read_file", **arguments) == (code, sentence)


@not_root
def test_permission_is_named(desk: Desk) -> None:
    desk.put("a.txt", "x").chmod(0)
    assert desk.refused("read_file", path="a.txt") == ("PERMISSION", "a.txt: permission denied.")
    assert desk.refused("edit_file", path="a.txt", old="x", new="y")[0] == "PERMISSION"
    desk.put("b.txt", "x").chmod(0o444)
    for name, arguments in (("write_file", {"content": "y"}), ("edit_file", {"old": "x", "new": "y"})):
        assert desk.refused(name, path="b.txt", **arguments) == ("PERMISSION", "b.txt: it is write-protected.")


# --- leaving the working directory ------------------------------------------------------------------------------


def test_a_path_that_leads_out_is_asked_about_and_one_that_stays_is_not(desk: Desk) -> None:
    away = desk.cwd.parent / "away"
    away.mkdir()
    desk.put("sub/a.txt", "x")
    (desk.cwd / "out").symlink_to(away)
    (desk.cwd / "in").symlink_to("sub")
    guard = TOOLS["write_file"].guard
    assert guard is not None
    for stays in (".", "sub/a.txt", "sub/../sub/new", str(desk.cwd / "sub"), "in/a.txt", "new/deep/er"):
        assert guard({"path": stays}, desk.cwd) is None, stays
    assert guard({}, desk.cwd) is None
    where = f"is outside the working directory {desk.cwd}"
    assert guard({"path": str(away / "f")}, desk.cwd) == f"{away}/f {where}"
    assert guard({"path": ".."}, desk.cwd) == f".. leads to {desk.cwd.parent}, which {where}"
    assert guard({"path": "out/f"}, desk.cwd) == f"out/f leads to {away}/f, which {where}"
    assert guard({"path": str(desk.cwd) + "-not"}, desk.cwd) is not None
    assert guard({"path": "~/x"}, desk.cwd) is not None


def test_a_working_directory_behind_a_link_is_not_left_by_staying_in_it(desk: Desk) -> None:
    door = desk.cwd.parent / "door"
    door.symlink_to(desk.cwd)
    guard = TOOLS["read_file"].guard
    assert guard is not None
    assert guard({"path": "a.txt"}, door) is None
    assert guard({"path": str(desk.cwd / "a.txt")}, door) is None


# --- list_files -------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(desk: Desk) -> Desk:
    for path in ("b.py", "a.txt", "src/x.py", "src/deep/y.py", "src/deep/z.txt", "src-old/x.py", ".git/config"):
        desk.put(path, "text\n")
    (desk.cwd / "link").symlink_to("src")
    return desk


def test_a_listing_is_sorted_and_shows_directories_and_links(tree: Desk) -> None:
    assert tree.fine("list_files").splitlines() == [
        ".git/",
        "a.txt",
        "b.py",
        "link -> src",
        "src/",
        "src/deep/",
        "src/deep/y.py",
        "src/deep/z.txt",
        "src/x.py",
        "src-old/",
        "src-old/x.py",
    ]


def test_a_listing_gives_paths_that_can_be_read(tree: Desk) -> None:
    for path in ("src", "./src/", str(tree.cwd / "src"), "src/../src"):
        listed = tree.fine("list_files", path=path, pattern="*.py").splitlines()
        assert len(listed) == 2
        for line in listed:
            assert tree.fine("read_file", path=line) == "text\n"


def test_depth_and_pattern_narrow_a_listing(tree: Desk) -> None:
    assert tree.fine("list_files", depth=1).splitlines() == [
        ".git/",
        "a.txt",
        "b.py",
        "link -> src",
        "src/",
        "src-old/",
    ]
    assert tree.fine("list_files", pattern="x.py").splitlines() == ["src/x.py", "src-old/x.py"]
    assert tree.fine("list_files", pattern="src/**/*.py").splitlines() == ["src/deep/y.py", "src/x.py"]
    assert tree.fine("list_files", pattern="nothing") == "(nothing)\n"


def test_a_long_listing_is_cut_at_the_deep_end_and_says_so(desk: Desk) -> None:
    for number in range(ENTRIES):
        desk.put(f"deep/{number:04}", "")
    desk.put("zz", "")
    lines = desk.fine("list_files").splitlines()
    assert lines[0] == "deep/"
    assert "zz" in lines
    assert lines[-1] == f"[cut after {ENTRIES} entries; give a deeper path, a smaller depth or a pattern]"
    assert len(lines) == ENTRIES + 1


def test_odd_names_cannot_break_a_listing(desk: Desk) -> None:
    desk.put("two\nlines", "")
    Path(os.fsdecode(os.fsencode(desk.cwd) + b"/caf\xe9")).touch()
    assert desk.fine("list_files").splitlines() == ["caf\ufffd", "two\\nlines"]


def test_listing_a_file_or_nothing_is_refused(tree: Desk) -> None:
    assert tree.refused("list_files", path="a.txt") == ("NOT_A_DIRECTORY", "a.txt: it is a file, not a directory.")
    assert tree.refused("list_files", path="none")[0] == "NO_SUCH_FILE"


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*.py", ["a.py", "x/a.py"], ["a.pyc", "py"]),
        ("x/*.py", ["x/a.py"], ["a.py", "x/y/a.py", "y/x/a.py"]),
        ("x/**", ["x/a", "x/y/a"], ["x", "y/x/a"]),
        ("**/y/*", ["y/a", "x/y/a"], ["x/a"]),
        ("a?[0-9].[!t]xt", ["ab1.rxt"], ["ab1.txt", "a/1.rxt", "abx.rxt"]),
        ("a.b", ["a.b"], ["aXb"]),
        ("[", ["["], ["x"]),
        ("[]x]", ["]", "x"], ["a"]),
    ],
)
def test_globs(glob: str, matching: list[str], others: list[str]) -> None:
    matcher = glob_matcher(glob)
    assert [path for path in matching if not matcher.fullmatch(path)] == []
    assert [path for path in others if matcher.fullmatch(path)] == []


# --- search_files -----------------------------------------------------------------------------------------------


def test_a_search_gives_path_line_and_text(tree: Desk) -> None:
    tree.put("src/x.py", "first\nclass Found:\r\n    pass\n")
    tree.put("a.txt", "a class\u2028Found\n")
    found = tree.fine("search_files", pattern=r"class\s\w+")
    assert found == "a.txt:1:a class\u2028Found\nsrc/x.py:2:class Found:\n"


def test_a_search_can_be_narrowed_to_a_glob_a_directory_or_a_file(tree: Desk) -> None:
    assert tree.fine("search_files", pattern="text", glob="*.txt").splitlines() == [
        "a.txt:1:text",
        "src/deep/z.txt:1:text",
    ]
    assert tree.fine("search_files", pattern="text", path="src/deep", glob="*.py") == "src/deep/y.py:1:text\n"
    assert tree.fine("search_files", pattern="^t", path="src/x.py") == "src/x.py:1:text\n"
    assert tree.fine("search_files", pattern="nowhere") == "(no match)\n"


def test_a_search_leaves_out_version_control_links_binary_and_large_files(tree: Desk) -> None:
    tree.put("bin", b"text\0text")
    tree.put("large", b"text\n" * (LARGEST // 5 + 1))
    found = tree.fine("search_files", pattern="text").splitlines()
    assert not [line for line in found if line.startswith((".git", "link", "bin", "large"))]
    assert found[-2:] == ["[1 binary files were passed over]", "[1 files over 8 MiB were passed over]"]


def test_many_matches_and_long_lines_are_bounded_and_said(desk: Desk) -> None:
    desk.put("many", "hit\n" * (MATCHES + 1))
    lines = desk.fine("search_files", pattern="hit").splitlines()
    assert len(lines) == MATCHES + 1
    assert lines[-1] == "[there are more matches; narrow the search]"
    desk.put("many", "hit\n" * MATCHES)
    assert len(desk.fine("search_files", pattern="hit").splitlines()) == MATCHES
    desk.put("many", "x" * 100_000 + "hit" + "y" * 100_000)
    (line,) = desk.fine("search_files", pattern="hit").splitlines()
    assert "hit" in line
    assert len(line) < LINE_SHOWN + 20


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ({"pattern": "("}, "BAD_PATTERN", "missing ), unterminated subpattern at position 0"),
        ({"pattern": "a\0"}, "BAD_PATTERN", r"write \x00"),
        ({"pattern": "\ud800"}, "BAD_PATTERN", "surrogate"),
        ({"pattern": "a", "path": "none"}, "NO_SUCH_FILE", "no such file"),
        ({"pattern": "a", "path": "pipe"}, "NOT_A_FILE", "pipe"),
    ],
)
def test_a_search_that_cannot_be_is_one_sentence(desk: Desk, arguments: Any, code: str, part: str) -> None:
    os.mkfifo(desk.cwd / "pipe")
    given, sentence = desk.refused("search_files", **arguments)
    assert given == code
    assert part in sentence


def test_a_pattern_without_end_stops_neither_the_process_nor_a_cancel(desk: Desk) -> None:
    """`(a+)+$` on this line takes longer than anyone lives; in a thread it would hold the interpreter lock."""
    desk.put("trap", "a" * 100 + "b\n")
    said: list[ToolReply] = []
    beats = 0
    search = threading.Thread(target=lambda: said.append(desk.call("search_files", pattern="(a+)+$")))
    search.start()
    while beats < 30:
        time.sleep(0.01)  # the beat itself, as any other work of this process
        beats += 1
    desk.cancel.set("user")
    search.join()
    assert said[0].unknown
    assert said[0].text == "the search was ended because the turn was cancelled"


# --- write_file -------------------------------------------------------------------------------------------------


def test_writing_makes_directories_and_says_what_it_did(desk: Desk) -> None:
    assert desk.fine("write_file", path="a/b/c.txt", content="one €\r\n") == "Wrote 9 bytes to a/b/c.txt (a new file)."
    assert (desk.cwd / "a/b/c.txt").read_bytes() == "one €\r\n".encode()
    assert desk.fine("write_file", path="a/b/c.txt", content="") == "Wrote 0 bytes to a/b/c.txt (in place of 9)."
    assert (desk.cwd / "a/b/c.txt").read_bytes() == b""
    assert os.listdir(desk.cwd / "a/b") == ["c.txt"]


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(desk: Desk) -> None:
    usual = desk.put("usual", "").stat().st_mode
    desk.fine("write_file", path="new", content="x")
    assert (desk.cwd / "new").stat().st_mode == usual
    run = desk.put("run.sh", "old")
    run.chmod(0o751)
    desk.fine("write_file", path="run.sh", content="new")
    desk.fine("edit_file", path="run.sh", old="new", new="newer")
    assert run.stat().st_mode & 0o7777 == 0o751


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_an_old_file_keeps_its_owner(desk: Desk) -> None:
    place = desk.put("a.txt", "old")
    os.chown(place, 12345, 12346)
    desk.fine("write_file", path="a.txt", content="new")
    assert (place.stat().st_uid, place.stat().st_gid) == (12345, 12346)


def test_a_link_is_followed_and_stays(desk: Desk) -> None:
    target = desk.put("real/a.txt", "old")
    (desk.cwd / "link").symlink_to("real/a.txt")
    (desk.cwd / "ahead").symlink_to("real/new.txt")
    desk.fine("write_file", path="link", content="new")
    desk.fine("write_file", path="ahead", content="made")
    desk.fine("edit_file", path="link", old="new", new="newer")
    assert (desk.cwd / "link").is_symlink()
    assert target.read_text() == "newer"
    assert (desk.cwd / "real/new.txt").read_text() == "made"


def test_what_cannot_be_written_is_one_sentence_and_changes_nothing(desk: Desk) -> None:
    desk.put("dir/a.txt", "x")
    os.mkfifo(desk.cwd / "pipe")
    before = sorted(str(path) for path in desk.cwd.rglob("*"))
    for path, code in (("dir", "IS_A_DIRECTORY"), ("dir/a.txt/b", "NOT_A_DIRECTORY"), ("pipe", "NOT_A_FILE")):
        assert desk.refused("write_file", path=path, content="y")[0] == code
    assert desk.refused("write_file", path="new", content="half \ud800")[0] == "NOT_TEXT"
    assert sorted(str(path) for path in desk.cwd.rglob("*")) == before


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_leaves_the_old_file_and_nothing_beside_it(desk: Desk) -> None:
    small = desk.cwd / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("cannot mount here")
    try:
        desk.put("small/a.txt", "old")
        code, sentence = desk.refused("write_file", path="small/a.txt", content="y" * 200_000)
        assert (code, "nothing was changed" in sentence) == ("NO_SPACE", True)
        assert desk.refused("write_file", path="small/new/b.txt", content="y" * 200_000)[0] == "NO_SPACE"
        assert (small / "a.txt").read_text() == "old"
        assert os.listdir(small) == ["a.txt"]
    finally:
        subprocess.run(["umount", str(small)], check=True)


SCRIPT = """
import sys
from pathlib import Path
from fencepost.plugins.files_write import write_file
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.tools import CallContext
context = CallContext("c1", "s1", Path(sys.argv[1]), CancelSignal(), print, Path(sys.argv[1]).parent / "files")
{}
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_write_is_synced_before_it_is_visible_and_its_name_after(desk: Desk) -> None:
    script = SCRIPT.format("print(write_file.thread(context, {'path': 'new/a.txt', 'content': 'x'}).text)")
    trace = desk.cwd.parent / "trace"
    command = [
        "strace",
        "-f",
        "-y",
        "-o",
        str(trace),
        "-e",
        "trace=mkdir,write,fsync,fdatasync,rename,renameat,renameat2",
    ]
    subprocess.run([*command, sys.executable, "-c", script, str(desk.cwd)], check=True, stdout=subprocess.DEVNULL)
    steps = []
    for line in trace.read_text().splitlines():
        if "/work" in line or "/files" in line:
            call = re.sub(r"^\d+\s+", "", line).partition("(")[0]
            names = [name for name in ("receipts", ".fencepost", "work/new", "work") if name in line]
            steps.append((call, names[0] if names else "files"))
    assert steps.index(("mkdir", "receipts")) < steps.index(("fsync", "files")) < steps.index(("write", "receipts"))
    assert steps[-11:] == [
        ("write", "receipts"),
        ("fsync", "receipts"),
        ("rename", "receipts"),
        ("fsync", "receipts"),
        ("write", ".fencepost"),
        ("fsync", ".fencepost"),
        ("mkdir", "work/new"),
        ("fsync", "work"),
        ("rename", "receipts"),
        ("rename", ".fencepost"),
        ("fsync", "work/new"),
    ]


def test_a_killed_writer_leaves_the_old_file_or_the_new_one(desk: Desk) -> None:
    old, new = "old\n" * 500_000, "new\n" * 500_000
    place = desk.put("a.txt", old)
    script = SCRIPT.format(
        "print('ready', flush=True)\n"
        "while True:\n"
        "    for word in ('new', 'old'):\n"
        "        write_file.thread(context, {'path': 'a.txt', 'content': (word + chr(10)) * 500_000})\n"
    )
    for delay in range(8):
        writer = subprocess.Popen([sys.executable, "-c", script, str(desk.cwd)], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(delay * 0.004)  # not to wait for something: to be killed at different points
        writer.kill()
        writer.wait()
        writer.stdout.close()
        assert place.read_text() in {old, new}


# --- edit_file --------------------------------------------------------------------------------------------------


def test_an_edit_replaces_the_one_place_and_leaves_every_other_byte(desk: Desk) -> None:
    place = desk.put("a.txt", b"\xef\xbb\xbfone\r\ntwo\nthree\r\xff\xfe last")
    said = desk.fine("edit_file", path="a.txt", old="two", new="zwei €")
    assert said == "Edited a.txt at line 2: 25 bytes became 30."
    assert place.read_bytes() == b"\xef\xbb\xbfone\r\nzwei \xe2\x82\xac\nthree\r\xff\xfe last"
    desk.fine("edit_file", path="a.txt", old="one\r\nzwei", new="1")
    assert place.read_bytes() == b"\xef\xbb\xbf1 \xe2\x82\xac\nthree\r\xff\xfe last"


def test_an_edit_with_plain_line_ends_fits_a_file_with_crlf_and_keeps_them(desk: Desk) -> None:
    place = desk.put("a.txt", b"one\r\ntwo\r\nthree\r\n")
    desk.fine("edit_file", path="a.txt", old="one\ntwo\n", new="1\n1.5\n2\n")
    assert place.read_bytes() == b"1\r\n1.5\r\n2\r\nthree\r\n"


@pytest.mark.parametrize(
    ("old", "code", "sentence"),
    [
        (
            "two",
            "NO_MATCH",
            "a.py: the old text is not there (0 matches). Read the file again and copy the text exactly.",
        ),
        (
            "def f(x):\n  return",
            "NO_MATCH",
            (
                "a.py: the old text is not there (0 matches). Line 1 is like its first line; "
                "compare what follows, and white space, with read_file."
            ),
        ),
        (
            "x",
            "SEVERAL_MATCHES",
            (
                "a.py: the old text is there 3 times, at lines 1, 2, 3. "
                "Nothing was changed; give more of the lines around the one that is meant."
            ),
        ),
        ("aa", "SEVERAL_MATCHES", None),
        ("", "NOTHING_TO_CHANGE", "The old text is empty; write_file makes new files."),
        ("new", "NOTHING_TO_CHANGE", "The old and the new text are the same."),
        ("\ud800", "NOT_TEXT", None),
    ],
)
def test_an_edit_without_exactly_one_place_changes_nothing(desk: Desk, old: str, code: str, sentence: str) -> None:
    content = "def f(x):\n    return x\n# x aaa\n"
    place = desk.put("a.py", content)
    before = place.stat()
    given, said = desk.refused("edit_file", path="a.py", old=old, new="new")
    assert given == code
    assert sentence is None or said == sentence
    assert place.read_text() == content
    assert place.stat().st_ino == before.st_ino


def test_an_edit_of_a_file_that_changes_meanwhile_is_refused(desk: Desk) -> None:
    """Something else rewrites the file all the time; an edit lands on the content it was made for, or not at all."""
    place = desk.put("a.txt", "0 mark\n")
    stop = threading.Event()

    def rewrite() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            beside = place.with_name("beside")
            beside.write_text(f"{number} mark\n" + "x" * 200_000)
            beside.replace(place)

    other = threading.Thread(target=rewrite)
    other.start()
    codes = set()
    deadline = time.monotonic() + 30
    try:
        while "CHANGED" not in codes and time.monotonic() < deadline:
            codes.add(desk.call("edit_file", path="a.txt", old="mark", new="MARK").code)
    finally:
        stop.set()
        other.join()
    assert "CHANGED" in codes
    assert codes <= {"CHANGED", "", "NO_MATCH"}
    assert [name for name in os.listdir(desk.cwd) if name.endswith(".fencepost")] == []


def test_editing_what_is_no_file_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.cwd / "dir").mkdir()
    monkeypatch.chdir(desk.cwd)  # a socket's path has to be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("sock")
        for path, code in (("dir", "IS_A_DIRECTORY"), ("none", "NO_SUCH_FILE"), ("sock", "NOT_A_FILE")):
            assert desk.refused("edit_file", path=path, old="a", new="b")[0] == code
