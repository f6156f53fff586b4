"""Killed with SIGKILL in the middle of settlement, or of running a call again; then resumed by another process."""

import subprocess
import sys
import time

import pytest
from tests.crash.processes import PATIENCE, ROOT
from tests.runtime.rig import balanced, run
from tests.runtime.settling import Left, leave, runtime
from tests.runtime.settling_child import tools

from fencepost.core import events as ev
from fencepost.core.codec import expand
from fencepost.stores.urls import open_store

URLS = ["jsonl:{}/sessions", "sqlite:{}/sessions.db"]


@pytest.fixture(params=URLS, ids=["jsonl", "sqlite"])
def url(request, tmp_path):
    """A store that survives its process."""
    return request.param.format(tmp_path)


def killed_at(url, place, when, kind, *effects):
    """Have a process resume, and killed at a point."""
    marker = place / "marker"
    marker.unlink(missing_ok=True)
    words = [url, when, kind, str(marker), str(place / "world"), *effects]
    child = subprocess.Popen([sys.executable, "-m", "tests.runtime.settling_child", *words], cwd=ROOT)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (marker.exists() and marker.read_text() == "reached\n"):
            assert child.poll() is None, "it ended before it came to its point"
            assert time.monotonic() < deadline, "it did not come to its point"
            time.sleep(0.005)
    finally:
        child.kill()
        child.wait()


def world(place):
    path = place / "world"
    return path.read_text().splitlines() if path.exists() else []


def prepared(url, *calls):
    async def scenario():
        store = open_store(url)
        await leave(store, *calls)
        await store.close()

    run(scenario)


def events(url):
    async def scenario():
        store = open_store(url)
        stored = await store.read("s1")
        await store.close()
        return [event for entry in stored.entries for event in expand(entry)]

    return run(scenario)


def resumed(url, place, *effects):
    """Resume here; the verdicts, by call id."""

    async def scenario():
        async with runtime(open_store(url), *tools(place / "world")) as agent:
            session = await agent.resume("s1", rerun=frozenset(effects))
            assert balanced(session.journal.log)
            return {item.call.call_id: item.verdict for item in session.recovery.calls}

    return run(scenario)


@pytest.mark.parametrize("when", ["before", "after"])
def test_settlement_that_was_killed_is_done_again_and_gives_one_result(url, tmp_path, when):
    prepared(url, Left("c1"), Left("c2", name="look", effect="read"))
    killed_at(url, tmp_path, when, "tool/result")
    assert world(tmp_path) == [], "nothing is tidied before its result is known to be durable"
    made = [event for event in events(url) if isinstance(event, ev.ToolResult)]
    assert len(made) == (0 if when == "before" else 2)
    verdicts = resumed(url, tmp_path)
    if when == "before":
        assert verdicts == {"c1": "completed", "c2": "outcome_unknown"}
    made = [event for event in events(url) if isinstance(event, ev.ToolResult)]
    assert sorted((event.call_id, event.settled_by) for event in made) == [("c1", "pay"), ("c2", "")]
    assert world(tmp_path) == ["tidied c1"]
    before = events(url)
    resumed(url, tmp_path)
    assert events(url) == before


def test_a_call_that_runs_again_is_durable_before_its_body(url, tmp_path):
    prepared(url, Left("c1"), Left("c2", name="look", effect="read"))
    killed_at(url, tmp_path, "before", "tool/call", "read")
    assert world(tmp_path) == []
    assert [event.retries for event in events(url) if isinstance(event, ev.ToolCall)] == [None, None]

    killed_at(url, tmp_path, "after", "tool/call", "read")
    assert world(tmp_path) == []
    first, second, third = [event for event in events(url) if isinstance(event, ev.ToolCall)]
    assert (third.call_id, third.retries) == ("c2", second.seq)
    assert (third.name, third.arguments, third.effect) == (second.name, second.arguments, second.effect)
    assert first.call_id == "c1"

    assert resumed(url, tmp_path)["c2"] == "outcome_unknown", "it may have run, the first time or the second"
    assert [line for line in world(tmp_path) if line.startswith("ran")] == []


def test_a_second_time_names_the_first(url, tmp_path):
    prepared(url, Left("c2", name="look", effect="read"))
    killed_at(url, tmp_path, "before", "tool/result", "read")
    assert world(tmp_path) == ["ran c2"]
    assert resumed(url, tmp_path, "read") == {"c2": "completed"}
    assert world(tmp_path) == ["ran c2"] * 2
    calls = [event for event in events(url) if isinstance(event, ev.ToolCall)]
    assert [event.retries for event in calls] == [None, calls[0].seq, calls[1].seq]
    assert len([event for event in events(url) if isinstance(event, ev.ToolResult)]) == 1
