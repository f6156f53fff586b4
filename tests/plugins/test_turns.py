"""What a turn has used up, folded from a log."""

import pytest

from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.core.log import Log
from fencepost.plugins.folded import Folded
from fencepost.plugins.turns import Turns, calls_of

SECOND = 1000


class Story:
    """A log that is written line by line, with a clock that the story moves."""

    def __init__(self):
        self.now = 0
        self.log = Log(ev.Header("s1", 0, "/", 1), lambda: self.now, CORE)
        self.turns = Folded(Turns)
        self.number = 0

    def start(self, continues=None):
        self.number += 1
        self.log.append(ev.TurnStart, turn=self.number, gates=("tool",), policy="x", continues=continues)
        self.log.append(ev.StepStart, turn=self.number, step=1)

    def answer(self, *names, usage=None):
        asked = tuple(ev.CallRequest(name, "act", "{}") for name in names)
        self.log.append(
            ev.AssistantMessage,
            turn=self.number,
            step=1,
            message_id=f"m{self.number}",
            content=asked,
            finish="stop",
            usage=usage,
        )

    def result(self, name):
        self.log.append(ev.ToolResult, turn=self.number, step=1, call_id=name, content=())

    def end(self):
        self.log.append(ev.StepEnd, turn=self.number, step=1)
        self.log.append(ev.TurnEnd, turn=self.number, reason="completed")

    def spent(self, turn=None):
        return self.turns.of(self.log).spent[turn or self.number]

    def seconds(self, turn=None):
        return self.spent(turn).milliseconds(self.now) / SECOND


def test_time_passes_until_the_turn_ends():
    story = Story()
    story.start()
    story.now = 5 * SECOND
    assert story.seconds() == 5
    story.answer()
    story.end()
    story.now = 60 * SECOND
    assert story.seconds() == 5


def test_the_time_of_a_question_does_not_count():
    story = Story()
    story.start()
    story.answer("a", "b", "c")
    story.now = 1 * SECOND
    story.log.append(ev.ApprovalAsked, call_id="a", question="?")
    story.now = 11 * SECOND
    assert story.seconds() == 1, "while it is asked"
    story.log.append(ev.ApprovalAsked, call_id="b", question="?")
    story.log.append(ev.ApprovalDecided, call_id="a", allowed=True, by="user")
    story.now = 21 * SECOND
    assert story.seconds() == 1, "the other one is still asked"
    story.log.append(ev.ApprovalDecided, call_id="b", allowed=True, by="user")
    story.now = 22 * SECOND
    assert story.seconds() == 2
    story.log.append(ev.ApprovalAsked, call_id="c", question="?")
    story.now = 50 * SECOND
    for name in "abc":
        story.result(name)
    story.now = 51 * SECOND
    assert story.seconds() == 3, "a question that a cancel ended has no answer, and its call a result"
    story.end()
    assert story.seconds() == 3


def test_a_clock_that_is_set_back_makes_no_negative_time():
    story = Story()
    story.now = 100 * SECOND
    story.start()
    story.now = 1 * SECOND
    assert story.seconds() == 0


def test_tokens_are_those_of_answers_and_summaries_of_the_turn():
    story = Story()
    story.start()
    story.answer(usage=ev.Usage(input_tokens=100, output_tokens=20, cached_tokens=90, reasoning_tokens=7))
    assert story.spent().tokens == 120
    story.log.append(ev.StepEnd, turn=1, step=1)
    summary = {"through": story.log.fold.cuts[-1], "content": (), "model": "m", "usage": ev.Usage(5, 1)}
    story.log.append(ev.ContextSummary, **summary)
    story.log.append(ev.TurnEnd, turn=1, reason="completed")
    story.start()
    story.answer()
    assert (story.spent(1).tokens, story.spent(2).tokens) == (126, 0)


@pytest.mark.parametrize("read_between", [True, False])
def test_a_turn_and_what_it_goes_on_with_are_one_line(read_between):
    story = Story()
    for continues in (None, 1, None, 3, 4):
        story.start(continues)
        story.answer(f"c{story.number}")
        story.result(f"c{story.number}")
        if read_between:
            story.spent()
        story.end()
    turns = story.turns.of(story.log)
    assert [turns.line(number) for number in range(1, 6)] == [(1,), (2, 1), (3,), (4, 3), (5, 4, 3)]
    assert [record.call_id for record in calls_of(story.log, turns.line(5))] == ["c5", "c4", "c3"]
    assert [record.call_id for record in calls_of(story.log, turns.line(2))] == ["c2", "c1"]
    assert turns.line(99) == ()
