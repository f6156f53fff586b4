"""Rows of "Verdicts" that need a real process and a real SIGKILL."""

from fencepost.core import events as ev
from tests.crash import laws
from tests.crash.processes import Place, await_that, ended, kill
from tests.crash.scenario import asks, call


def test_killed_in_a_tool_call(tmp_path):
    """The body was entered and nothing is known of its end: unknown, one closer, and a strict provider takes it."""
    place = Place(tmp_path, [asks(call("hang")), "Done."])
    with ended(place.start("Go.")) as child:
        await_that(lambda: place.saw("entered"), child)
        kill(child)
    judged = place.check(whole=True)
    assert list(judged.verdicts().values()) == ["outcome_unknown"]
    place.finish("--continue")
    assert place.saw("ended") == [["completed", ""]]
    place.check(whole=True)
    assert len(place.saw("entered")) == 1, "going on repeated a call"


def test_finished_siblings_are_durable_while_the_third_one_hangs(tmp_path):
    """Two of three finished, one hangs, kill: the two are completed, only the third one is unknown."""
    place = Place(tmp_path, [asks(call("look", place="left"), call("hang"), call("look", place="right")), "Done."])
    with ended(place.start("Look.")) as child:
        await_that(lambda: len(place.saw("shown")) == 2, child)
        kill(child)
    judged = place.check(whole=True)
    assert [(item.name, item.verdict) for item in judged.view.calls] == [
        ("look", "completed"),
        ("hang", "outcome_unknown"),
        ("look", "completed"),
    ]
    assert sum(isinstance(event, ev.ToolResult) for event in judged.events) == 2


def test_resume_runs_nothing_by_itself(tmp_path):
    """A reopened session does what it is told: nothing, until somebody says to go on."""
    place = Place(tmp_path, [asks(call("hang")), asks(call("send", text="a")), "Done."])
    with ended(place.start("Go.")) as child:
        await_that(lambda: place.saw("entered"), child)
        kill(child)
    before = place.lines()
    place.finish()
    later = [kind for kind, _ in place.lines()[len(before) :]]
    assert later == ["shown"], "the closer is shown, and nothing else happens"
    repaired = place.judged().events
    place.finish()
    assert place.judged().events == repaired, "a second resume wrote something"
    place.finish("--continue")
    assert len(place.saw("done")) == 1
    assert place.saw("ended") == [["completed", ""]]


def test_a_prompt_that_was_acknowledged_and_killed_at_once_still_waits(tmp_path):
    """Acknowledged, then killed before the model was asked, or while it was: pending or in the transcript, run once."""
    place = Place(tmp_path, [asks(call("hang")), "Done.", "Done."])
    with ended(place.start("Do this for me.")) as child:
        await_that(lambda: place.saw("ack"), child)
        kill(child)
    judged = place.check(whole=True)
    ((_, text),) = place.witness().acknowledged
    waiting = [item.text for item in judged.view.pending_inputs]
    seen = [ev.text_of(event.content) for event in judged.events if isinstance(event, ev.UserMessage)]
    assert waiting + seen == [text]


def test_a_prompt_that_was_queued_during_a_tool_runs_once_after_the_crash(tmp_path):
    """Two acknowledged prompts, the second one while the first one's tool runs: each runs once, after the crash."""
    place = Place(tmp_path, [asks(call("hang")), "Done.", "And that too."])
    with ended(place.start("--early", "First.", "Second.")) as child:
        await_that(lambda: len(place.saw("ack")) == 2 and place.saw("entered"), child)
        kill(child)
    judged = place.check(whole=True)
    assert [item.text for item in judged.view.pending_inputs] == ["Second."]
    place.finish("--continue")
    laws.nothing_acknowledged_is_lost(place.witness(), place.judged())
    texts = [ev.text_of(event.content) for event in place.judged().events if isinstance(event, ev.UserMessage)]
    assert texts == ["First.", "Second."]
    assert place.judged().view.pending_inputs == ()
