"""A SIGKILL inside a call that another call made."""

import pytest

from fencepost.core import events as ev
from tests.crash.processes import Place, await_that, ended, kill
from tests.crash.scenario import asks, call


@pytest.fixture(params=["own", "parent"])
def gate(request):
    return request.param


def killed_inside(home, gate) -> Place:
    place = Place(home, [asks(call("nest", gate=gate), call("send", text="a")), "Done."])
    with ended(place.start("Go.")) as child:
        await_that(lambda: len(place.saw("entered")) == 2, child)
        kill(child)
    return place


def test_with_its_own_gate_the_call_is_in_the_log_before_its_body_runs(tmp_path):
    """Law 1, and all the others: the nested body ran, so its `tool/call` is durable."""
    place = killed_inside(tmp_path, "own")
    judged = place.check(whole=True)
    (outer,), (inner,) = place.saw("entered")
    calls = {event.call_id: event for event in judged.events if isinstance(event, ev.ToolCall)}
    assert calls[inner].parent == outer
    assert judged.verdicts()[inner] == "outcome_unknown"


def test_the_verdicts_and_going_on(tmp_path, gate):
    """Who had made the call is unknown with it, and who was asked for behind it had not started."""
    place = killed_inside(tmp_path, gate)
    (outer,), (inner,) = place.saw("entered")
    judged = place.judged()
    found = {item.call_id: (item.name, item.verdict) for item in judged.view.calls}
    assert found.pop(inner, ("hang", "outcome_unknown")) == ("hang", "outcome_unknown")
    assert list(found.values()) == [("nest", "outcome_unknown"), ("send", "not_started")]
    place.finish("--continue")
    assert place.saw("ended") == [["completed", ""]]
    results = [event.call_id for event in place.judged().events if isinstance(event, ev.ToolResult)]
    assert results.index(outer) > (results.index(inner) if inner in results else -1)
    assert len(place.saw("entered")) == 2, "going on repeated a call"
