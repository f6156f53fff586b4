"""Where a receipt that is missing says "it did not run": only where every receipt of the session is certain to be.

Each test takes a session whose agent died behind the gate and before its tool left anything, as some place could show
it although the tool did run later, elsewhere, or left a receipt that was lost.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import time

import pytest
from tests.runtime.rig import call, calls, identity
from tests.runtime.settling import Left, digest, leave, runtime, store_at

from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.journal.session import Journal
from fencepost.plugins.file_receipts import Receipt, content_of, directory_at, waiting_in
from fencepost.plugins.file_receipts import leave as leave_receipt
from fencepost.plugins.files import file_tools
from fencepost.plugins.shell import shell_tool
from fencepost.runtime.whereabouts import mark, mark_of, vouched_for
from fencepost.stores.jsonl import JsonlStore
from fencepost.testing import ScriptedModel

TOOLS = (shell_tool(), *file_tools())
OPEN = (
    Left("c1", name="shell", arguments='{"command":"pay"}'),
    Left("c2", name="write_file", arguments='{"path":"a","content":"x"}'),
)
NOW = 1_700_000_000_000
"""What the sessions' clock says."""


def interrupted(store, *, marked=True, **more):
    """A session as an agent leaves it that was killed behind the gate."""

    async def go():
        await leave(store, *OPEN, **more)
        if marked:
            await mark(store.files("s1"), lambda: NOW)

    asyncio.run(go())


def verdicts(store, session="s1", *, resume=True):
    """What is said by looking; and by resuming, which is to be the same."""

    async def go():
        async with runtime(store, *TOOLS) as agent:
            seen = {one.call_id: one.verdict for one in (await agent.inspect(session, settle=True)).calls}
            if resume:
                recovery = (await agent.resume(session)).recovery
                assert {one.call.call_id: one.verdict for one in recovery.calls} == seen
            return seen

    return asyncio.run(go())


NEITHER_RAN = {"c1": "not_started", "c2": "not_started"}
UNKNOWN = {"c1": "outcome_unknown", "c2": "outcome_unknown"}


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_where_it_would_be_seen_a_missing_receipt_says_that_nothing_ran(tmp_path, kind):
    interrupted(store_at(kind, tmp_path))
    assert verdicts(store_at(kind, tmp_path)) == NEITHER_RAN


def test_a_session_s_directory_that_was_moved_by_its_store_s_own_means_is_still_the_one(tmp_path):
    store = JsonlStore(tmp_path / "sessions")
    interrupted(store)
    (tmp_path / "sessions").rename(tmp_path / "aside")
    (tmp_path / "aside").rename(tmp_path / "sessions")
    assert verdicts(store) == NEITHER_RAN


def test_a_directory_whose_name_is_no_text_is_one_too(tmp_path):
    place = tmp_path / os.fsdecode(b"caf\xe9")
    place.mkdir()
    interrupted(store_at("jsonl", place))
    assert verdicts(store_at("jsonl", place)) == NEITHER_RAN


def test_of_a_copy_nothing_is_claimed(tmp_path):
    interrupted(JsonlStore(tmp_path / "sessions"))
    shutil.copytree(tmp_path / "sessions", tmp_path / "copied")
    assert verdicts(JsonlStore(tmp_path / "copied")) == UNKNOWN


def test_of_a_backup_that_was_put_back_nothing_is_claimed(tmp_path):
    """It was taken behind the gate; then the tool ran, and all of that is lost."""
    store = JsonlStore(tmp_path / "sessions")
    interrupted(store)
    place = mark_of(store.files("s1"))
    said = place.read_bytes().replace(b'"made":', b'"made":1')  # as if it had been made long before
    place.write_bytes(said)
    assert verdicts(store) == UNKNOWN


@pytest.mark.parametrize("what", ["files", "receipts", "mark"])
def test_where_receipts_were_removed_nothing_is_claimed(tmp_path, what):
    store = JsonlStore(tmp_path / "sessions")
    interrupted(store)
    place = mark_of(store.files("s1"))
    if what == "mark":
        place.unlink()
    else:
        shutil.rmtree(place.parent if what == "receipts" else place.parent.parent)
    assert verdicts(store) == UNKNOWN


def test_a_mark_of_later_calls_says_nothing_of_earlier_ones(tmp_path):
    store = JsonlStore(tmp_path / "sessions")
    interrupted(store, marked=False)
    asyncio.run(mark(store.files("s1"), lambda: NOW + 1))
    assert verdicts(store) == UNKNOWN


@pytest.mark.parametrize("planned", [False, True])
def test_a_mark_that_a_second_run_made_says_nothing_of_the_first(tmp_path, planned):
    """In a copy the call is run again, which marks the place, and killed before it comes to anything."""
    again = {"turn": 1, "step": 1, "call_id": "c2", "name": "write_file", "arguments": {"path": "a", "content": "x"}}
    store = JsonlStore(tmp_path / "sessions")

    async def run_again(journal, _):
        seq = journal.log.fold.calls["c2"].admitted.seq
        journal.append(ev.ToolCall, effect="idempotent", retries=seq, **again)
        if planned:
            place, directory = tmp_path / "a", directory_at(tmp_path)
            receipt = Receipt(str(place), None, content_of(b"x"), 0o644, str(waiting_in(tmp_path)), directory, "")
            leave_receipt(store.files("s1"), "c2", receipt, "a")
        raise ConnectionAbortedError

    async def killed_twice():
        await leave(store, *OPEN)
        await mark(store.files("s1"), lambda: NOW + 1)
        await Journal.resume(store, "s1", identity(lambda: NOW + 2), CORE, settle=run_again)

    with pytest.raises(ConnectionAbortedError):
        asyncio.run(killed_twice())
    assert verdicts(JsonlStore(tmp_path / "sessions")) == UNKNOWN


def test_a_torn_mark_says_nothing(tmp_path):
    store = JsonlStore(tmp_path / "sessions")
    interrupted(store)
    mark_of(store.files("s1")).write_bytes(b'{"place":')
    assert verdicts(store) == UNKNOWN


def test_of_a_fork_looking_claims_no_more_than_the_fork_says(tmp_path):
    """The receipts are with its parent, and its own directory has none."""

    async def forked():
        async with runtime(JsonlStore(tmp_path / "sessions"), *TOOLS) as agent:
            await agent.fork("s1", "s2")

    interrupted(JsonlStore(tmp_path / "sessions"))
    asyncio.run(forked())
    assert verdicts(JsonlStore(tmp_path / "sessions"), "s2", resume=False) == UNKNOWN
    asyncio.run(mark(JsonlStore(tmp_path / "sessions").files("s2"), lambda: NOW + 1))
    assert verdicts(JsonlStore(tmp_path / "sessions"), "s2", resume=False) == UNKNOWN


def test_a_call_of_which_nobody_knows_when_it_was_let_go_is_not_vouched_for(tmp_path):
    store = JsonlStore(tmp_path / "sessions")
    interrupted(store)
    assert vouched_for(store.files("s1"), NOW, "")
    assert not vouched_for(store.files("s1"), None, "")


def test_whoever_may_still_act_is_not_vouched_for(tmp_path):
    """On another host, or alive: it was taken over from, and is perhaps only paused. It may be this very process."""
    store, host = JsonlStore(tmp_path / "sessions"), socket.gethostname()
    interrupted(store)
    files = store.files("s1")
    assert not vouched_for(files, NOW, f"1@{host}x")
    assert vouched_for(files, NOW, f"{os.getpid()}@{host}"), "an earlier process of that id, in a container"
    assert not vouched_for(files, time.time_ns() // 1_000_000, f"{os.getpid()}@{host}")
    with subprocess.Popen(["sleep", "1000"]) as paused:
        assert not vouched_for(files, NOW, f"{paused.pid}@{host}")
        paused.kill()
        os.waitid(os.P_PID, paused.pid, os.WEXITED | os.WNOWAIT)
        assert vouched_for(files, NOW, f"{paused.pid}@{host}"), "dead, and not collected yet"
    assert vouched_for(files, NOW, f"{paused.pid}@{host}")


def test_looking_makes_no_mark(tmp_path):
    store = JsonlStore(tmp_path / "sessions")
    interrupted(store, marked=False)
    before = digest(tmp_path)
    assert verdicts(store, resume=False) == UNKNOWN
    assert digest(tmp_path) == before


def test_it_is_marked_before_the_first_call_is_let_go_and_stays(tmp_path):
    """Of a nested call too, and not for tools that leave nothing."""
    marks = []

    async def go():
        store = JsonlStore(tmp_path / "sessions")
        answers = [
            calls(call("list_files")),
            calls(call("write_file", {"path": "a", "content": "x"})),
            calls(call("write_file", {"path": "b", "content": "x"})),
            "Done.",
        ]
        async with runtime(store, *TOOLS, model=ScriptedModel(answers)) as agent:
            session = await agent.create("s1", tmp_path)

            def look(event, _):
                if isinstance(event, ev.ToolCall):
                    place = mark_of(store.files("s1"))
                    marks.append(place.stat().st_ctime_ns if place.exists() else None)

            session.journal.log.subscribe(look)
            await session.prompt("Go.")

    asyncio.run(go())
    first, second, third = marks
    assert first is None
    assert second == third is not None
