"""The verdict table, row by row, and what the words that go with it must say."""

import itertools

import pytest
from tests.core.story import Story, asked

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.log import CallRecord
from fencepost.core.verdict import NO_EVIDENCE, Evidence, lost_bytes, verdict_of, verdicts

GATED = ("step", "request", "tool", "closing")
UNGATED = ("step", "request", "closing")
BLIND = Evidence(blind_at=(9,))


def record(*, admitted=False, code=None, asked_seq=5, settled_by="", **about):
    call = CallRecord("c1", "f", "{}", 1, 1, asked_seq, **about)
    if admitted:
        call.admitted = ev.ToolCall(6, 0, turn=1, step=1, call_id="c1", name="f", arguments={}, effect="write")
    if code is not None:
        call.result = ev.ToolResult(7, 0, turn=1, step=1, call_id="c1", content=(), code=code, settled_by=settled_by)
    return call


ENTERED = ["", "TIMEOUT", "EXIT_1", "anything else"]


@pytest.mark.parametrize("code", sorted(v.NOT_ENTERED))
def test_a_result_that_says_the_body_was_never_entered_is_not_started(code):
    assert verdict_of(record(code=code), GATED).verdict == "not_started"
    assert verdict_of(record(code=code), GATED).code == code


def test_the_codes_that_say_so_are_these():
    assert {
        "DENIED",
        "INVALID_ARGUMENTS",
        "UNKNOWN_TOOL",
        "ABORTED_BEFORE_DISPATCH",
        "NOT_SAVED",
        "TOOL_NOT_STARTED",
    } == v.NOT_ENTERED


@pytest.mark.parametrize("admitted", [True, False])
def test_a_result_that_says_unknown_is_outcome_unknown(admitted):
    found = verdict_of(record(admitted=admitted, code="TOOL_OUTCOME_UNKNOWN"), GATED)
    assert (found.verdict, found.code) == ("outcome_unknown", "TOOL_OUTCOME_UNKNOWN")


@pytest.mark.parametrize("code", ENTERED)
def test_any_other_result_is_completed(code):
    found = verdict_of(record(admitted=True, code=code), GATED)
    assert (found.verdict, found.code) == ("completed", code)


def test_admitted_without_a_result_is_outcome_unknown():
    found = verdict_of(record(admitted=True), GATED)
    assert (found.verdict, found.code) == ("outcome_unknown", "TOOL_OUTCOME_UNKNOWN")


def test_without_a_tool_gate_a_missing_call_proves_nothing():
    """Law 10."""
    assert verdict_of(record(), UNGATED).verdict == "outcome_unknown"
    assert verdict_of(record(), ()).verdict == "outcome_unknown"


@pytest.mark.parametrize("evidence", [BLIND, Evidence(frozenset({"c1"})), Evidence(blind_at=(0, 6))])
def test_bytes_that_may_have_held_the_call_make_it_unknown(evidence):
    """Law 2: missing bytes prove nothing."""
    assert verdict_of(record(), GATED, evidence).verdict == "outcome_unknown"


@pytest.mark.parametrize("evidence", [NO_EVIDENCE, Evidence(frozenset({"c2"})), Evidence(blind_at=(0, 4, 5))])
def test_a_missing_call_under_a_gate_is_not_started(evidence):
    """Bytes that were lost before the call was asked for cannot have held it."""
    found = verdict_of(record(), GATED, evidence)
    assert (found.verdict, found.code) == ("not_started", "TOOL_NOT_STARTED")


@pytest.mark.parametrize("gates", [GATED, UNGATED])
@pytest.mark.parametrize("evidence", [NO_EVIDENCE, BLIND])
@pytest.mark.parametrize("code", [*ENTERED, *sorted(v.NOT_ENTERED), v.TOOL_OUTCOME_UNKNOWN])
def test_a_result_outweighs_gates_and_lost_bytes(gates, evidence, code):
    assert verdict_of(record(code=code), gates, evidence) == verdict_of(record(code=code), GATED)


def test_not_started_is_never_said_of_an_admitted_call_without_a_result():
    """Law 2, over all of the table's columns."""
    for gates, evidence in itertools.product([GATED, UNGATED, ()], [NO_EVIDENCE, BLIND]):
        assert verdict_of(record(admitted=True), gates, evidence).verdict == "outcome_unknown"


@pytest.mark.parametrize("code", sorted(v.NOT_ENTERED))
def test_let_go_twice_and_the_second_time_came_to_nothing(code):
    """Law 2: the first time may have run. Only evidence that a tool left can say that it did not."""
    assert verdict_of(record(admitted=True, code=code, again=True), GATED).verdict == "outcome_unknown"
    settled = verdict_of(record(admitted=True, code=code, again=True, settled_by="f"), GATED)
    assert (settled.verdict, settled.settled_by) == ("not_started", "f")


@pytest.mark.parametrize("settled_by", ["", "f"])
@pytest.mark.parametrize("code", sorted(v.NOT_ENTERED))
def test_at_a_gap_nothing_makes_innocent(code, settled_by):
    found = verdict_of(record(code=code, doubtful=True, settled_by=settled_by), GATED)
    assert found.verdict == "outcome_unknown"


@pytest.mark.parametrize("about", [{}, {"again": True}, {"doubtful": True}])
def test_a_real_result_is_completed_however_often_it_was_let_go(about):
    assert verdict_of(record(admitted=True, code="", **about), GATED).verdict == "completed"


# --- over a log -------------------------------------------------------------------------------------------------


def test_every_call_has_a_verdict_in_the_order_in_which_they_were_asked_for():
    story = asked("c1", "c2", "c3").call("c2").result("c2").call("c3")
    found = [(item.call.call_id, item.verdict) for item in verdicts(story.log.fold)]
    assert found == [("c1", "not_started"), ("c2", "completed"), ("c3", "outcome_unknown")]


def test_an_open_call_is_judged_by_the_gates_of_its_own_turn():
    log = Story().log
    for turn, gates in [(1, ("tool",)), (2, ())]:
        log.append(ev.TurnStart, turn=turn, gates=gates, policy="p")
        log.append(ev.StepStart, turn=turn, step=1)
        content = (ev.CallRequest(f"c{turn}", "f", "{}"),)
        log.append(ev.AssistantMessage, turn=turn, step=1, message_id="m", content=content, finish="tool_calls")
        if turn == 1:
            log.append(ev.ToolResult, turn=1, step=1, call_id="c1", content=(), code=v.DENIED)
            log.append(ev.StepEnd, turn=1, step=1)
            log.append(ev.TurnEnd, turn=1, reason="completed")
    assert [item.verdict for item in verdicts(log.fold)] == ["not_started", "outcome_unknown"]


def test_a_call_that_was_let_go_again_is_open_until_its_result():
    story = asked("c1").call("c1").call("c1", retries=3)
    assert [item.verdict for item in verdicts(story.log.fold)] == ["outcome_unknown"]
    assert story.log.fold.calls["c1"].admitted.seq == 4
    story.result("c1", code=v.NOT_SAVED)
    assert [item.verdict for item in verdicts(story.log.fold)] == ["outcome_unknown"]


def test_a_settled_result_says_who_and_from_what():
    story = asked("c1").call("c1").call("c1", retries=3)
    story.result("c1", code=v.TOOL_NOT_STARTED, settled_by="f", evidence="no receipt")
    (found,) = verdicts(story.log.fold)
    assert (found.verdict, found.settled_by, found.evidence) == ("not_started", "f", "no receipt")


# --- evidence ---------------------------------------------------------------------------------------------------


def test_a_torn_record_names_the_calls_that_stand_in_it():
    torn = b'{"type":"tool/call","seq":8,"time":1,"turn":1,"step":1,"call_id":"c-1.a:b_2","name":"f","argum'
    assert lost_bytes(torn, 8) == Evidence(frozenset({"c-1.a:b_2"}), (8,))


def test_bytes_that_name_nothing_still_may_have_held_anything():
    evidence = lost_bytes(b"\x00\x00\xff", 8)
    assert evidence == Evidence(frozenset(), (8,))
    assert evidence.covers(record(asked_seq=7))
    assert not evidence.covers(record(asked_seq=8))


def test_evidence_adds_up():
    both = Evidence(frozenset({"c1"}), (3,)).joined(Evidence(frozenset({"c2"}), (8,)))
    assert both == Evidence(frozenset({"c1", "c2"}), (3, 8))


# --- words ------------------------------------------------------------------------------------------------------


def test_the_words_for_unknown_carry_the_retry_rule():
    text = v.unknown_text("the power went out")
    assert text.startswith("Outcome unknown: the power went out.")
    for words in ("only if it is read-only or idempotent", "verify", "ask the user"):
        assert words in text


def test_the_words_for_not_started_invite_a_retry():
    text = v.not_started_text("the power went out")
    assert text.startswith("Not started: the power went out.")
    assert "Retry it if it is still needed" in text
