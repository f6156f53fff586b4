"""`write_file` and `edit_file` under SIGKILL: at each of their system calls, what is settled is what the file holds.

strace kills the child at the entry of the N-th call of one kind, so that all before it has happened and nothing of it.
Counting N up until a run ends by itself goes through every point of a receipt's life: before it is begun, written and
not renamed, renamed, the new content waiting, in its place, its directory synced, and the result not yet in the log.
"""

import asyncio
import json
import shutil
import stat
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from fencepost.core import events as ev
from fencepost.journal.inspect import CallView, inspect
from fencepost.plugins.files import file_tools
from fencepost.plugins.shipped import ToolsPlugin
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.whereabouts import mark
from fencepost.stores.urls import open_store
from tests.crash.file_agent import SESSION, main

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
CALLS = ("mkdir", "write", "fsync", "rename", "fdatasync")
"""What the body does to the world, and what the store does to the log; `fdatasync` is the store's alone."""

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


class Job(msgspec.Struct, frozen=True):
    """One call, and the file that it changes.

    Attributes:
        tool, arguments: the call.
        file: what it changes, below the working directory.
        before, after: what that holds; None: it is not there.
        said: what the call answers.
    """

    tool: str
    arguments: dict[str, str]
    file: str
    before: bytes | None
    after: bytes
    said: str


NEW = Job(
    "write_file",
    {"path": "a/b/new.txt", "content": "made\n"},
    "a/b/new.txt",
    None,
    b"made\n",
    "Wrote 5 bytes to a/b/new.txt (a new file).",
)
OVER = Job(
    "write_file",
    {"path": "link", "content": "other\n"},
    "real.txt",
    b"old text\n",
    b"other\n",
    "Wrote 6 bytes to link (in place of 9).",
)
EDIT = Job(
    "edit_file",
    {"path": "real.txt", "old": "one\ntwo", "new": "1\n2"},
    "real.txt",
    b"zero\r\none\r\ntwo\r\n",
    b"zero\r\n1\r\n2\r\n",
    "Edited real.txt at line 2: 16 bytes became 12.",
)


class Desk:
    """The working directory, the store and the script of one agent."""

    def __init__(self, home: Path, *jobs: Job) -> None:
        self.cwd = home / "work"
        self.cwd.mkdir(parents=True)
        self.url = f"jsonl:{home / 'sessions'}"
        self.receipts = home / "sessions" / SESSION / "files" / "receipts"
        self.script = home / "script.jsonl"
        self.jobs = jobs
        calls = [{"function": {"name": job.tool, "arguments": job.arguments}} for job in jobs]
        lines = ({"content": "Hello."}, {"tool_calls": calls}, {"content": "Done."})
        self.script.write_text("".join(json.dumps(line) + "\n" for line in lines))
        for job in jobs:
            if job.before is not None:
                (self.cwd / job.file).write_bytes(job.before)
                (self.cwd / job.file).chmod(0o751)
        (self.cwd / "link").symlink_to("real.txt")
        asyncio.run(main(self.url, str(self.cwd), str(self.script), ["Hello?"]))
        if NEW not in jobs:  # as an earlier call had left it; else the kills go through its making too
            asyncio.run(mark(self.receipts.parent, lambda: time.time_ns() // 1_000_000))

    def run(self, *arguments: str, inject: str = "") -> int:
        """An agent to its end; the number of the signal that ended it, or 0."""
        traced = inject.partition(":")[0]
        under = ["strace", "-f", "-qqq", "-o", "/dev/null", "-e", f"trace={traced}", "-e", f"inject={inject}"]
        command = [sys.executable, "-m", "tests.crash.file_agent", self.url, str(self.cwd), str(self.script)]
        done = subprocess.run(
            [*(under if inject else ()), *command, *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode in {0, -9}, done.stderr.decode()
        return -done.returncode

    def holds(self, job: Job) -> bytes | None:
        place = self.cwd / job.file
        return place.read_bytes() if place.exists() else None

    def waiting(self) -> list[Path]:
        return [path for path in self.cwd.rglob(".*") if path.is_file()]

    async def _settled(self) -> list[CallView]:
        runtime = Runtime(open_store(self.url), None, [ToolsPlugin("files", file_tools())])
        async with runtime:
            told = await runtime.inspect(SESSION, settle=True)
            session = await runtime.resume(SESSION)
            self.results = [event for event in session.journal.log.entries if isinstance(event, ev.ToolResult)]
        store = open_store(self.url)
        found = await inspect(store, SESSION)
        await store.close()
        for before, after in zip(told.calls, found.calls, strict=True):
            assert (before.verdict, before.evidence) == (after.verdict, after.evidence), "looking said something else"
        return list(found.calls)

    def settled(self) -> list[CallView]:
        """The calls as a resume leaves them, with an inspection before it that says the same."""
        return asyncio.run(self._settled())


def judge(desk: Desk, job: Job, call: CallView) -> str:
    """What was claimed of a call is what its file shows, and it is claimed of every call."""
    holds = desk.holds(job)
    assert holds in {job.before, job.after}
    if call.verdict == "completed":
        assert holds == job.after
        if call.settled_by:
            (result,) = (one for one in desk.results if one.call_id == call.call_id)
            text = ev.text_of(result.content)
            assert text.startswith(f"[Established after a crash by {job.tool}: {desk.cwd / job.file} holds ")
            assert text.endswith(f"]\n{job.said}")
            assert not result.is_error
    else:
        assert call.verdict == "not_started", call.evidence
        assert holds == job.before
    if job.before is not None:
        assert stat.S_IMODE((desk.cwd / job.file).stat().st_mode) == 0o751
    return f"{call.verdict} {call.settled_by}".strip()


def killed_at(home: Path, job: Job, name: str, number: int) -> str:
    """Kill one agent, and judge what is settled; empty if it ended before its point."""
    desk = Desk(home / f"{name}{number}", job)
    code = desk.run("--resume", "Go.", inject=f"{name}:signal=SIGKILL:when={number}")
    if code == 0:
        assert desk.holds(job) == job.after
        return ""
    found = [judge(desk, job, call) for call in desk.settled()]
    assert desk.waiting() == []
    assert list(desk.receipts.glob("*.new")) == []
    assert (desk.cwd / "link").is_symlink()
    return found[0] if found else "not asked"


@pytest.mark.parametrize("job", [NEW, OVER, EDIT], ids=["new", "over", "edit"])
@pytest.mark.parametrize("name", CALLS)
def test_killed_at_every_step_the_outcome_is_known(tmp_path, job, name):
    seen: Counter[str] = Counter()
    with ThreadPoolExecutor(2) as pool:
        for first in range(1, 40, 2):
            found = list(pool.map(lambda number: killed_at(tmp_path, job, name, number), (first, first + 1)))
            seen.update(found)
            if "" in found:
                break
    print(name, dict(seen))
    assert seen[""]
    if name in {"rename", "fsync"}:
        assert seen[f"not_started {job.tool}"] >= 3
    if name in {"fsync", "write"}:
        assert seen[f"completed {job.tool}"] == 1


def test_killed_while_several_files_are_written_each_outcome_is_known(tmp_path):
    """Calls that change different files overlap: a directory in which others make files tells nothing of one's own."""
    jobs = [
        Job("write_file", {"path": f"{name}.txt", "content": name}, f"{name}.txt", None, name.encode(), said)
        for name in "abcd"
        for said in (f"Wrote 1 bytes to {name}.txt (a new file).",)
    ]
    seen: Counter[str] = Counter()
    for number in range(1, 5):
        desk = Desk(tmp_path / str(number), *jobs)
        assert desk.run("--resume", "Go.", inject=f"fsync:signal=SIGKILL:when={number}") == 9
        calls = desk.settled()
        seen.update(judge(desk, job, call) for job, call in zip(jobs, calls, strict=True))
        assert desk.waiting() == []
    print(dict(seen))
    assert seen["not_started write_file"] >= 4


def test_killed_in_tidying_the_next_resume_finishes_it(tmp_path):
    desk = Desk(tmp_path, OVER)
    assert desk.run("--resume", "Go.", inject="rename:signal=SIGKILL:when=3") == 9
    (waiting,) = desk.waiting()
    assert desk.run("--resume", inject="unlink:signal=SIGKILL:when=1") == 9
    assert desk.waiting() == [waiting]
    assert desk.run("--resume") == 0
    assert desk.waiting() == []
    (call,) = desk.settled()
    assert judge(desk, OVER, call) == "not_started write_file"


def test_what_became_unknown_may_be_written_again_and_leaves_nothing(tmp_path):
    """Somebody wrote meanwhile, so nobody knows; run again, and killed in it, the first run is not forgotten."""
    desk = Desk(tmp_path, OVER)
    assert desk.run("--resume", "Go.", inject="fsync:signal=SIGKILL:when=4") == 9
    assert desk.holds(OVER) == OVER.after
    (desk.cwd / OVER.file).write_bytes(b"mine")
    assert desk.run("--resume", "--rerun", inject="rename:signal=SIGKILL:when=3") == 9
    assert len(desk.waiting()) == 1
    call = asyncio.run(_looked_at(desk))
    assert call.verdict == "outcome_unknown"
    assert "the call was run again" in call.evidence
    assert desk.run("--resume", "--rerun") == 0
    assert desk.waiting() == []
    assert desk.holds(OVER) == OVER.after
    (call,) = desk.settled()
    assert (call.verdict, call.settled_by) == ("completed", "")


async def _looked_at(desk: Desk) -> CallView:
    async with Runtime(open_store(desk.url), None, [ToolsPlugin("files", file_tools())]) as runtime:
        (call,) = (await runtime.inspect(SESSION, settle=True)).calls
    return call
