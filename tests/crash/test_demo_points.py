"""The demo's kill points, each with a real agent, a real HTTP model, real shell and file tools, and a real SIGKILL."""

import asyncio

import pytest

from fencepost.apps.demo.main import judge, kill_at, main, store_url
from fencepost.apps.demo.points import POINTS
from fencepost.core.projection import request
from fencepost.errors import IllegalEventError
from fencepost.journal.inspect import inspect
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
    assert without_lock(tree_of(store)) == before, "looking changed something"
    assert asyncio.run(_verdicts_after_repair(tmp_path, point.key)) == [call.verdict for call in view.calls]


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


def test_the_demo_prints_its_table_and_finishes_a_killed_session(capsys):
    assert main(["--only", "effect-done"]) == 0
    printed = capsys.readouterr().out
    assert "outcome_unknown" in printed
    assert "1 kill points, 0 wrong, task finished" in printed
    assert "sent 1 time" in printed
