"""The log in memory: what may be appended, what the fold then knows, and that a refusal changes nothing."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import HEADER, VOCABULARY, Weather, empty, logs, moderate, moves
from tests.core.story import Story, asked, snapshot

from fencepost.core import events as ev
from fencepost.core.codec import CORE, encode, pack
from fencepost.core.lifecycle import State
from fencepost.core.log import Log
from fencepost.errors import IllegalEventError, UndeclaredEventError


def reopened(log, entries):
    return Log(log.header, lambda: 0, VOCABULARY, entries)


# --- any legal log ----------------------------------------------------------------------------------------------


@moderate
@given(logs())
def test_a_reopened_log_knows_what_the_living_one_knew(log):
    lines = [encode(entry) for entry in pack(log.entries)]
    again = reopened(log, [VOCABULARY.decode(line) for line in lines])
    assert snapshot(again)[0] == snapshot(log)[0]
    assert list(again.events()) == list(log.events())


@moderate
@given(logs())
def test_seqs_are_dense_from_zero(log):
    assert [event.seq for event in log.entries] == list(range(len(log.entries)))


@moderate
@given(logs(), st.data())
def test_events_from_a_seq_on_are_the_tail_of_all_events(log, data):
    packed = reopened(log, list(pack(log.entries)))
    start = data.draw(st.integers(0, len(log.entries) + 1))
    assert list(packed.events(start)) == log.entries[start:]


@moderate
@given(logs(), logs(), st.data())
def test_an_append_is_legal_or_changes_nothing(log, other, data):
    """What is legal in one log is tried on another: mostly it may not stand there."""
    told = []
    log.subscribe(lambda event, size: told.append((event, size)))
    kind, fields = data.draw(st.sampled_from(moves(other)))
    fields = fields(data.draw)
    before = snapshot(log)
    try:
        event = log.append(kind, at=1, **fields)
    except IllegalEventError:
        assert snapshot(log) == before
        assert told == []
    else:
        assert told == [(event, len(encode(event)))]
        assert snapshot(reopened(log, log.entries))[0] == snapshot(log)[0]


@moderate
@given(logs(), st.data())
def test_a_log_with_an_event_left_out_is_refused(log, data):
    if len(log.entries) < 2:
        return
    gap = data.draw(st.integers(0, len(log.entries) - 2))
    with pytest.raises(IllegalEventError, match="is next"):
        reopened(log, log.entries[:gap] + log.entries[gap + 1 :])


# --- one refusal for each rule ----------------------------------------------------------------------------------


PLACE = {"turn": 1, "step": 1}
CALL = {**PLACE, "name": "f", "arguments": {}, "effect": "write"}
MESSAGE = {**PLACE, "message_id": "m", "finish": "stop"}
ASKS_C1 = (ev.CallRequest("c1", "f", "{}"),)

REFUSALS = {
    "turns count up": (Story(), ev.TurnStart, {"turn": 2, "gates": (), "policy": "p"}, "turn 2 where 1 is next"),
    "a turn opens once": (
        Story().turn().turn_end(),
        ev.TurnStart,
        {"turn": 1, "gates": (), "policy": "p"},
        "turn 1 where 2 is next",
    ),
    "steps count up": (Story().turn(), ev.StepStart, {"turn": 1, "step": 2}, "step 2 where 1 is next"),
    "a step is of its turn": (Story().turn(), ev.StepStart, {"turn": 2, "step": 1}, "turn 2 is not open"),
    "a turn ends itself": (Story().turn(), ev.TurnEnd, {"turn": 2, "reason": "error"}, "turn 2 is not open"),
    "a step ends itself": (Story().turn().step(), ev.StepEnd, {"turn": 1, "step": 2}, "turn 1 step 2 is not open"),
    "no chunk of another step": (
        Story().turn().step(),
        ev.AssistantChunk,
        {"turn": 1, "step": 2, "delta": "x"},
        "turn 1 step 2 is not open",
    ),
    "no retry of another step": (
        Story().turn().step(),
        ev.RequestRetry,
        {"turn": 1, "step": 2, "attempt": 1, "code": "", "message": "", "delay_ms": 0},
        "turn 1 step 2 is not open",
    ),
    "one call_id, one call": (
        asked("c1").result("c1").step_end().step(2),
        ev.AssistantMessage,
        {**MESSAGE, "step": 2, "content": ASKS_C1},
        "call c1 was asked for before",
    ),
    "one call_id in one answer": (
        Story().turn().step(),
        ev.AssistantMessage,
        {**MESSAGE, "content": ASKS_C1 * 2},
        "one call_id is used twice",
    ),
    "only what was asked for is admitted": (
        asked("c1"),
        ev.ToolCall,
        {**CALL, "call_id": "c2"},
        "c2 was not asked for",
    ),
    "admitted once": (asked("c1").call("c1"), ev.ToolCall, {**CALL, "call_id": "c1"}, "c1 was admitted before"),
    "not admitted after its result": (
        asked("c1").result("c1"),
        ev.ToolCall,
        {**CALL, "call_id": "c1"},
        "c1 was admitted before",
    ),
    "no call of another step": (asked("c1"), ev.ToolCall, {**CALL, "step": 2, "call_id": "c1"}, "step 2 is not open"),
    "law 5: one result": (
        asked("c1").result("c1"),
        ev.ToolResult,
        {**PLACE, "call_id": "c1", "content": ()},
        r"c1 has its result already \(law 5\)",
    ),
    "no result without a call": (
        asked("c1"),
        ev.ToolResult,
        {**PLACE, "call_id": "c2", "content": ()},
        "c2 was not asked for",
    ),
    "a step owes its results": (asked("c1", "c2").result("c1"), ev.StepEnd, PLACE, "calls without a result: c2"),
    "a nested call has a running parent": (
        asked("c1"),
        ev.ToolCall,
        {**CALL, "call_id": "c2", "parent": "c1"},
        "parent c1 is not running",
    ),
    "a nested call is new": (
        asked("c1", "c2").call("c1"),
        ev.ToolCall,
        {**CALL, "call_id": "c2", "parent": "c1"},
        "c2 is known already",
    ),
    "nested calls end first": (
        asked("c1").call("c1").call("c2", parent="c1"),
        ev.ToolResult,
        {**PLACE, "call_id": "c1", "content": ()},
        "nested calls without a result: c2",
    ),
    "no question after the result": (
        asked("c1").result("c1"),
        ev.ApprovalAsked,
        {"call_id": "c1", "question": "?"},
        "c1 has its result already",
    ),
    "an input is queued once": (
        Story().queued("i"),
        ev.InputQueued,
        {"input_id": "i", "target": "turn", "content": ()},
        "input i was queued before",
    ),
    "an input that was dropped is gone": (
        Story(),
        ev.InputDropped,
        {"input_id": "i", "reason": ""},
        "input i is not pending",
    ),
    "an input is consumed once": (
        Story().turn().step(),
        ev.UserMessage,
        {"message_id": "u", "content": (), "source": "user", "input_id": "i"},
        "input i is not pending",
    ),
    "epochs grow by one": (
        Story(),
        ev.SessionOwner,
        {"owner": "o", "epoch": 2, "resumed": False},
        "epoch 2 where 1 is next",
    ),
    "let go again: only what was let go": (
        asked("c1"),
        ev.ToolCall,
        {**CALL, "call_id": "c1", "retries": 2},
        "c1 was not admitted at seq 2",
    ),
    "let go again: names the newest letting go": (
        asked("c1").call("c1").call("c1", retries=3),
        ev.ToolCall,
        {**CALL, "call_id": "c1", "retries": 3},
        "c1 was not admitted at seq 3",
    ),
    "let go again: the same call": (
        asked("c1").call("c1"),
        ev.ToolCall,
        {**CALL, "call_id": "c1", "arguments": {"x": 1}, "retries": 3},
        "c1 is another call than the one at seq 3",
    ),
    "let go again: of the same parent": (
        asked("c1", "c2").call("c1").call("c2"),
        ev.ToolCall,
        {**CALL, "call_id": "c1", "parent": "c2", "retries": 3},
        "c1 is another call than the one at seq 3",
    ),
    "let go again: without a result": (
        asked("c1").call("c1").result("c1"),
        ev.ToolCall,
        {**CALL, "call_id": "c1", "retries": 3},
        "c1 was admitted before",
    ),
    "a summary reaches to the end of a step": (
        asked("c1").result("c1").step_end(),
        ev.ContextSummary,
        {"through": 3, "content": (), "model": "m"},
        "no closed step behind seq -1 ends at seq 3",
    ),
    "a summary reaches to what is there": (
        asked().step_end(),
        ev.ContextSummary,
        {"through": 9, "content": (), "model": "m"},
        "no closed step behind seq -1 ends at seq 9",
    ),
    "a summary reaches further than the one before it": (
        asked().step_end().summary(3),
        ev.ContextSummary,
        {"through": 3, "content": (), "model": "m"},
        "no closed step behind seq 3 ends at seq 3",
    ),
    "no summary inside a step": (
        asked().step_end().step(2),
        ev.ContextSummary,
        {"through": 3, "content": (), "model": "m"},
        "may not follow in state step",
    ),
    "the table": (Story(), ev.StepStart, {"turn": 1, "step": 1}, "may not follow in state idle"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS.keys())
def test_what_breaks_a_rule_is_refused_by_name_and_changes_nothing(case):
    story, kind, fields, why = case
    before = snapshot(story.log)
    with pytest.raises(IllegalEventError, match=why) as caught:
        story.log.append(kind, **fields)
    assert str(caught.value).startswith(kind.type_name())
    assert snapshot(story.log) == before


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (ev.StepStart, {"turn": 1}),
        (ev.StepStart, {"turn": 1, "step": 1, "colour": "red"}),
        (ev.InputQueued, {"input_id": 5, "target": "turn", "content": ()}),
        (ev.InputQueued, {"input_id": "i", "target": "moon", "content": ()}),
        (ev.InputQueued, {"input_id": "i", "target": "turn", "content": "text"}),
        (ev.InputQueued, {"input_id": "i", "target": "turn", "content": ("text",)}),
        (ev.ToolNote, {"call_id": "c", "text": None}),
        (ev.ToolNote, {"call_id": "c", "text": b"bytes"}),
        (ev.ToolNote, {"call_id": "c", "text": "x", "at": 0.5}),
        (Weather, {"degrees": "warm"}),
    ],
)
def test_an_event_that_no_reader_would_take_is_never_appended(kind, fields):
    log = empty()
    with pytest.raises(IllegalEventError, match=kind.type_name()):
        log.append(kind, **fields)
    assert log.entries == []


def test_an_undeclared_event_is_refused_at_append():
    log = Log(HEADER, lambda: 0, CORE)
    with pytest.raises(UndeclaredEventError, match="test/weather: no composed plugin declares"):
        log.append(Weather, degrees=20)
    assert log.entries == []


# --- what the fold knows ----------------------------------------------------------------------------------------


def test_a_call_is_owed_from_the_question_to_its_result():
    story = asked("c1", "c2")
    assert list(story.log.fold.owed) == ["c1", "c2"]
    story.call("c2").result("c2")
    assert list(story.log.fold.owed) == ["c1"]
    record = story.log.fold.calls["c2"]
    assert record.admitted is not None
    assert record.result is not None
    assert story.log.fold.calls["c1"].asked_seq == 2


def test_a_nested_call_is_owed_like_any_other():
    story = asked("c1").call("c1").call("c2", parent="c1")
    assert list(story.log.fold.owed) == ["c1", "c2"]
    story.result("c2").result("c1").step_end()
    assert story.log.fold.state is State.TURN


def test_an_input_is_pending_until_it_is_consumed_or_dropped():
    story = Story().queued("i1").queued("i2").turn().step()
    assert list(story.log.fold.pending) == ["i1", "i2"]
    story.log.append(ev.UserMessage, message_id="u", content=(), source="user", input_id="i1")
    story.log.append(ev.InputDropped, input_id="i2", reason="cleared")
    assert story.log.fold.pending == {}


def test_only_whole_answers_count_as_answers():
    story = Story().turn().step()
    story.log.append(ev.AssistantMessage, content=(), interrupted=True, **MESSAGE)
    assert story.log.fold.answers == 0
    story.step_end().step(2)
    story.log.append(ev.AssistantMessage, content=(), **{**MESSAGE, "step": 2})
    assert story.log.fold.answers == 1


def test_the_newest_owner_is_known_and_the_next_one_has_the_next_epoch():
    log = empty()
    for epoch in (1, 2, 3):
        owner = log.append(ev.SessionOwner, owner=f"o{epoch}", epoch=epoch, resumed=epoch > 1)
        assert log.fold.owner == owner
    with pytest.raises(IllegalEventError, match="epoch 3 where 4 is next"):
        log.append(ev.SessionOwner, owner="stale", epoch=3, resumed=True)


def test_a_log_that_ends_in_a_run_knows_the_time_of_its_last_chunk():
    log = Story().turn().step().log
    for at in (50, 40, 70):
        log.append(ev.AssistantChunk, turn=1, step=1, delta="x", at=at)
    again = reopened(log, list(pack(log.entries)))
    assert isinstance(again.entries[-1], ev.ChunkRun)
    assert (again.fold.last_time, again.fold.next_seq) == (70, 5)


def test_a_run_stands_only_where_its_chunks_may():
    log = Story().turn().step().log
    for _ in range(2):
        log.append(ev.AssistantChunk, turn=1, step=1, delta="x")
    *start, run = pack(log.entries)
    for entries, why in [
        ([*start, run, run], "seq 2"),
        ([start[0], msgspec.structs.replace(run, seq=1)], "state turn"),
        ([*start, msgspec.structs.replace(run, step=2)], "turn 1 step 2 is not open"),
    ]:
        with pytest.raises(IllegalEventError, match=why):
            reopened(log, entries)


def test_an_ignorable_event_of_an_unknown_type_is_stepped_over():
    raw = b'{"type":"weather/sun","seq":0,"time":7,"ignorable":true}'
    log = Log(HEADER, lambda: 0, CORE, [CORE.decode(raw)])
    assert (log.fold.next_seq, log.fold.last_time) == (1, 7)
    assert log.append(ev.ToolNote, call_id="c", text="x").seq == 1


# --- subscribers ------------------------------------------------------------------------------------------------


def test_a_subscriber_hears_each_append_until_it_leaves():
    log, heard = empty(), []
    leave = log.subscribe(lambda event, size: heard.append((event.seq, size)))
    event = log.append(ev.ToolNote, call_id="c", text="x")
    leave()
    log.append(ev.ToolNote, call_id="c", text="y")
    assert heard == [(0, len(encode(event)))]


def test_a_subscriber_may_not_append():
    """The others would hear of the second event before the first, and what is written follows what is heard."""
    log, heard = empty(), []

    def echo(event, size):
        log.append(ev.ToolNote, call_id="c", text="echo")

    leave = log.subscribe(echo)
    log.subscribe(lambda event, size: heard.append(event.seq))
    with pytest.raises(IllegalEventError, match="subscriber"):
        log.append(ev.ToolNote, call_id="c", text="x")
    leave()
    log.append(ev.ToolNote, call_id="c", text="y")
    assert len(log.entries) == len(heard) + 1


def test_an_event_shares_nothing_with_whoever_made_it():
    arguments = {"list": [1]}
    story = asked("c1")
    event = story.log.append(ev.ToolCall, **{**CALL, "call_id": "c1", "arguments": arguments})
    arguments["list"].append(2)
    assert event.arguments == {"list": [1]}
    content = [ev.Text("a")]
    queued = story.log.append(ev.InputQueued, input_id="i", target="turn", content=content)
    content.append(ev.Text("b"))
    assert queued.content == (ev.Text("a"),)


def test_events_cannot_be_changed():
    event = empty().append(ev.ToolNote, call_id="c", text="x")
    with pytest.raises(AttributeError):
        event.text = "y"
    assert msgspec.structs.replace(event, text="y").text == "y"


def test_its_repr_says_where_it_stands():
    assert repr(asked("c1").log) == "<Log s1 | 3 events | answered>"
