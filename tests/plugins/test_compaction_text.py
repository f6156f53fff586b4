"""What is shown to be summed up, and how large it is: for any log, at any cut."""

from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import logs, moderate
from tests.core.story import Story, asked
from tests.core.test_repair import repair

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.plugins.compaction_text import (
    HEAD,
    UNKNOWNS,
    context_size,
    conversation,
    cut_at,
    size,
    summary_text,
    tokens,
)


@moderate
@given(logs(40), st.integers(0, 3))
def test_any_cut_is_one_that_the_log_takes(log, keep):
    repair(log)
    cut = cut_at(log.fold, keep)
    if cut is None:
        return
    ends = [event.seq for event in log.entries if isinstance(event, ev.StepEnd)]
    assert ends[len(ends) - 1 - keep] == cut.through
    before = sum(size(log.fold, said) for said in log.fold.said)
    assert cut.part + cut.rest == before
    text = summary_text("so far", log, cut.through)
    log.append(ev.ContextSummary, through=cut.through, content=(ev.Text(text),), model="m")
    assert context_size(log.fold) >= cut.rest
    assert cut_at(log.fold, keep) is None


@moderate
@given(logs(40), st.integers(0, 200))
def test_what_is_shown_fits_whatever_it_is(log, room):
    repair(log)
    cut = cut_at(log.fold, 0)
    if cut is not None:
        around = tokens(conversation(Story().log.fold, 0, None))
        assert tokens(conversation(log.fold, cut.through, room)) <= room + around + 10


@moderate
@given(logs(40))
def test_without_a_limit_nothing_is_left_out(log):
    repair(log)
    cut = cut_at(log.fold, 0)
    if cut is None:
        return
    text = conversation(log.fold, cut.through, None)
    for said in log.fold.said:
        if isinstance(said, ev.UserMessage) and said.seq <= cut.through:
            assert ev.text_of(said.content) in text
        if isinstance(said, ev.AssistantMessage) and said.seq <= cut.through:
            assert all(call.arguments in text for call in ev.calls_of(said))


def test_counted_by_the_provider_is_what_counts_and_what_came_since_is_added():
    story = Story().turn().step().hears("x" * 4_000)
    usage = ev.Usage(input_tokens=50, output_tokens=10)
    about = {"turn": 1, "step": 1, "message_id": "m", "finish": "tool_calls", "usage": usage}
    story.log.append(ev.AssistantMessage, content=(ev.CallRequest("c1", "f", "{}"),), **about)
    assert context_size(story.log.fold) == 60 + 4
    story.result("c1", content=(ev.Text("y" * 400),)).step_end().step(2).hears("z" * 40)
    assert context_size(story.log.fold) == 60 + 4 + 100 + 4 + 10


def test_what_was_counted_before_a_summary_is_not_counted_on():
    story = Story().turn().step().hears("x" * 4_000)
    usage = ev.Usage(input_tokens=50_000, output_tokens=10)
    about = {"turn": 1, "step": 1, "message_id": "m", "finish": "stop", "usage": usage}
    story.log.append(ev.AssistantMessage, content=(ev.Text("ok"),), **about)
    story.step_end().step(2).hears("z" * 40).step_end(2)
    story.summary(story.log.fold.cuts[0], "s" * 80)
    assert context_size(story.log.fold) == 4 + 20 + 4 + 10


def test_a_prompt_that_waits_for_the_step_counts_too():
    story = Story().queued("i1")
    queued = ev.InputQueued(0, 0, "i1", "turn", (ev.Text("x" * 400),))
    assert context_size(story.log.fold, [queued]) == 104


def test_text_is_measured_in_bytes():
    """A letter of Chinese is nearer to a token than to a quarter of one."""
    assert (tokens("word"), tokens("字字"), tokens("")) == (1, 2, 0)


def test_unknown_outcomes_survive_any_number_of_summaries():
    story = asked("c1").call("c1").result("c1", code=v.TOOL_OUTCOME_UNKNOWN).step_end()
    text = summary_text("one", story.log, story.log.fold.cuts[0])
    assert text.startswith(HEAD)
    assert "- f {}" in text
    story.summary(story.log.fold.cuts[0], text).step(2).says("hm", step=2).step_end(2)
    assert "- f {}" in summary_text("two", story.log, story.log.fold.cuts[-1])


def test_many_unknown_outcomes_are_counted_and_the_newest_are_named():
    names = [f"c{number}" for number in range(UNKNOWNS + 5)]
    story = asked(*names)
    for name in names:
        story.result(name, code=v.TOOL_OUTCOME_UNKNOWN)
    story.step_end()
    text = summary_text("one", story.log, story.log.fold.cuts[0])
    assert text.count("- f {}") == UNKNOWNS
    assert "(5 older ones are not named)" in text


def test_a_message_of_the_user_that_is_kept_anyway_is_not_repeated():
    story = Story().turn().step().hears("first").step_end().step(2).hears("second").step_end(2)
    first, last = story.log.fold.cuts
    assert "second" not in summary_text("so far", story.log, first)
    assert "second" in summary_text("so far", story.log, last)
