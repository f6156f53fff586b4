"""The demo's kill points, each with a real agent, a real HTTP model, real shell and file tools, and a real SIGKILL."""

import asyncio
import shutil

import pytest

from fencepost.apps.demo.child import TOOLS
from fencepost.apps.demo.main import judge, kill_at, main, settled, settled_row, store_url
from fencepost.apps.demo.points import POINTS
from fencepost.core.projection import request
from fencepost.errors import IllegalEventError
from fencepost.journal.inspect import inspect
from fencepost.plugins.shipped import compose
from fencepost.runtime.runtime import Runtime
from fencepost.stores.urls import open_store
from tests.crash.boundaries import tree_of, without_lock
from tests.crash.transcripts import transcript_problem


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.key)
def test_the_log_tells_what_the_world_shows(tmp_path, point):
    work, view = kill_at(tmp_path, point)
    row = judge(point, work, view)
    assert row.right, row
    assert view.state == ("clean" if point.key == "repair-behind" else "interrupted")
    store = tmp_path / "sessions"
    before = without_lock(tree_of(store))
    assert asyncio.run(inspect(open_store(store_url(tmp_path)), point.key)) == view
    seen = asyncio.run(settled(tmp_path, point.key))
    assert without_lock(tree_of(store)) == before, "looking changed something"
    after = settled_row(row, point, work, seen)
    assert after.right, after
    assert "outcome_unknown" not in [call.verdict for call in seen.calls]
    copy = tmp_path / "copy"
    shutil.copytree(store, copy / "sessions")
    assert asyncio.run(_verdicts_after_repair(copy, point.key)) == [call.verdict for call in view.calls]
    assert asyncio.run(_settled_by_resume(tmp_path, point.key)) == seen.calls


async def _verdicts_after_repair(root, session_id: str) -> list[str]:
    """Resume with a runtime that has no model, so nothing can run; the transcript then suits a strict provider."""
    runtime = Runtime(open_store(store_url(root)), None, [])
    async with runtime:
        session = await runtime.resume(session_id)
        try:
            problem = transcript_problem(request(session.journal.log))
        except IllegalEventError:
            problem = "no request was ever prepared"
        assert problem is None
    store = open_store(store_url(root))
    view = await inspect(store, session_id)
    await store.close()
    return [call.verdict for call in view.calls]


async def _settled_by_resume(root, session_id):
    """What a resume of the same bytes makes of the calls."""
    async with Runtime(open_store(store_url(root)), None, compose(TOOLS, "all")) as runtime:
        await (await runtime.resume(session_id)).close()
        return (await runtime.inspect(session_id)).calls


def test_the_demo_prints_its_table_and_finishes_a_killed_session(capsys):
    assert main(["--only", "effect-done"]) == 0
    printed = capsys.readouterr().out
    assert "outcome_unknown" in printed
    assert "1 kill points, 0 wrong, task finished" in printed
    assert "sent 1 time" in printed


def test_the_demo_settles_what_it_does_not_know(capsys):
    assert main(["--settle", "--only", "gate-passed"]) == 0
    printed = capsys.readouterr().out
    row = next(line for line in printed.splitlines() if line.startswith("tool gate passed")).split()
    assert row[-4:] == ["outcome_unknown", "not_started", "shell", "right"]
    assert "1 kill points, 0 wrong, 1 unknown to the log and 0 after settlement" in printed
