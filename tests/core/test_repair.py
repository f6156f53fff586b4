"""Closers: wherever a session was cut, they make it a legal, closed log, say the verdicts, and do so once."""

from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import HEADER, VOCABULARY, evidence, logs, moderate
from tests.core.story import Story, asked, snapshot

from fencepost.core import events as ev
from fencepost.core.codec import encode, pack
from fencepost.core.lifecycle import State
from fencepost.core.log import Log
from fencepost.core.repair import closers
from fencepost.core.verdict import NO_EVIDENCE, Evidence, verdicts


def repair(log, lost=NO_EVIDENCE):
    """Append the closers as the journal does; returns the events."""
    at = log.fold.last_time
    return [log.append(closer.cls, at=at, **closer.fields) for closer in closers(log.fold, lost)]


def cut(log, length):
    """The log after a crash that left `length` events."""
    return Log(HEADER, lambda: 0, VOCABULARY, log.entries[:length])


@st.composite
def crashed(draw):
    """What is left of a log that was cut anywhere."""
    log = draw(logs())
    return cut(log, draw(st.integers(0, len(log.entries))))


# --- any log, cut anywhere --------------------------------------------------------------------------------------


@moderate
@given(crashed(), evidence)
def test_a_repaired_log_is_legal_and_closed(log, lost):
    repair(log, lost)
    assert log.fold.state is State.IDLE
    assert not log.fold.owed
    assert all(call.result is not None for call in log.fold.calls.values())
    assert snapshot(Log(HEADER, lambda: 0, VOCABULARY, log.entries))[0] == snapshot(log)[0]


@moderate
@given(crashed(), evidence)
def test_repairing_twice_is_repairing_once(log, lost):
    repair(log, lost)
    assert closers(log.fold, lost) == []
    assert closers(log.fold) == []


@moderate
@given(crashed(), evidence)
def test_the_same_log_always_gives_the_same_closers(log, lost):
    """Cut off in the middle of repair, then repaired: the same bytes as repaired in one go."""
    again = Log(HEADER, lambda: 0, VOCABULARY, [VOCABULARY.decode(encode(entry)) for entry in pack(log.entries)])
    before = snapshot(log)
    planned = closers(log.fold, lost)
    assert snapshot(log) == before
    assert closers(again.fold, lost) == planned
    whole = repair(log, lost)
    for done in range(len(whole)):
        half = cut(log, len(log.entries) - len(whole) + done)
        assert [encode(event) for event in repair(half, lost)] == [encode(event) for event in whole[done:]]


@moderate
@given(crashed(), evidence)
def test_repair_writes_the_verdicts_that_were_given_before_it(log, lost):
    before = [(item.call.call_id, item.verdict, item.code) for item in verdicts(log.fold, lost)]
    repair(log, lost)
    assert [(item.call.call_id, item.verdict, item.code) for item in verdicts(log.fold, lost)] == before


@moderate
@given(crashed(), evidence)
def test_repair_says_not_started_only_of_calls_that_were_not_let_go(log, lost):
    """Law 2."""
    for event in repair(log, lost):
        if isinstance(event, ev.ToolResult) and event.code == "TOOL_NOT_STARTED":
            call = log.fold.calls[event.call_id]
            assert call.admitted is None
            assert "tool" in log.fold.turns[call.turn].gates
            assert not lost.covers(call)


@moderate
@given(crashed(), evidence)
def test_closers_are_marked_and_take_the_time_of_the_last_event(log, lost):
    at = log.fold.last_time
    for event in repair(log, lost):
        assert isinstance(event, ev.ToolResult | ev.StepEnd | ev.TurnEnd)
        assert event.synthetic
        assert event.time == at


@moderate
@given(crashed())
def test_what_was_queued_stays_queued(log):
    pending = dict(log.fold.pending)
    repair(log)
    assert log.fold.pending == pending


# --- shapes -----------------------------------------------------------------------------------------------------


def shape(events):
    return [f"{event.type_name()} {getattr(event, 'call_id', '')}".strip() for event in events]


def test_a_clean_log_needs_nothing():
    assert repair(Story().log) == []
    assert repair(asked().step_end().turn_end().log) == []


def test_an_open_turn_is_ended():
    (end,) = repair(Story().turn().log)
    assert (end.turn, end.reason, end.synthetic) == (1, "interrupted", True)


def test_a_request_in_flight_is_ended_without_an_answer():
    assert shape(repair(Story().turn().step().log)) == ["step/end", "turn/end"]


def test_results_come_first_and_in_call_order():
    story = asked("c1", "c2", "c3").call("c3").result("c2")
    assert shape(repair(story.log)) == ["tool/result c1", "tool/result c3", "step/end", "turn/end"]


def test_nested_calls_are_answered_before_the_call_that_they_belong_to():
    story = asked("c1", "c2").call("c1").call("c3", parent="c1").call("c4", parent="c3").call("c5", parent="c1")
    owed = [f"tool/result {name}" for name in ("c4", "c3", "c5", "c1", "c2")]
    assert shape(repair(story.log)) == [*owed, "step/end", "turn/end"]


def texts(events):
    return {event.call_id: ev.text_of(event.content) for event in events if isinstance(event, ev.ToolResult)}


def test_each_result_says_why_and_what_to_do():
    said = texts(repair(asked("c1", "c2").call("c1").log))
    assert said["c1"].startswith("Outcome unknown: fencepost was interrupted after this call was let go")
    assert "verify first what really happened, or ask the user" in said["c1"]
    assert said["c2"].startswith("Not started: fencepost was interrupted before this call was let go")
    assert said["c2"].endswith("Retry it if it is still needed.")


def test_lost_bytes_and_missing_gates_are_named_as_the_reason():
    lost = texts(repair(asked("c1").log, Evidence(frozenset({"c1"}))))
    assert "a part of its log" in lost["c1"]
    log = Story().log
    log.append(ev.TurnStart, turn=1, gates=("step", "request"), policy="p")
    log.append(ev.StepStart, turn=1, step=1)
    content = (ev.CallRequest("c1", "f", "{}"),)
    log.append(ev.AssistantMessage, turn=1, step=1, message_id="m", content=content, finish="tool_calls")
    assert "no tool gate was in force" in texts(repair(log))["c1"]


def test_every_closing_result_is_an_error_for_the_model():
    results = [event for event in repair(asked("c1", "c2").call("c1").log) if isinstance(event, ev.ToolResult)]
    assert [(event.is_error, event.code) for event in results] == [
        (True, "TOOL_OUTCOME_UNKNOWN"),
        (True, "TOOL_NOT_STARTED"),
    ]
