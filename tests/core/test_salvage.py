"""Salvage: any prefix, hole and remainder make a legal, closed log; nothing whole is lost, nobody made innocent."""

import json

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import HEADER, VOCABULARY, logs, moderate
from tests.stores.sample import call, note, notes, turn_with_call

from fencepost.core import events as ev
from fencepost.core.codec import encode, expand
from fencepost.core.lifecycle import State
from fencepost.core.log import Log
from fencepost.core.projection import GAP, AssistantTurn, ToolAnswer, UserTurn, messages
from fencepost.core.repair import closers
from fencepost.core.salvage import Break, salvage
from fencepost.core.verdict import DENIED, Evidence, verdicts

HOLE = Break(100, "not JSON", 14)
UNKNOWN = "outcome_unknown"


def fold_of(line):
    return Log(HEADER, lambda: 0, VOCABULARY, line.entries).fold


NUMBERS = {"seq": None, "through": None, "retries": None}


def without_seq(entry):
    return {**json.loads(encode(entry)), **NUMBERS}


def kept(line):
    """Every record that a line keeps, wherever it stands, without its seq, and those by which it names others."""
    out = []
    for entry in line.entries:
        whole = msgspec.json.decode(entry.original) if isinstance(entry, ev.Salvaged) else json.loads(encode(entry))
        out.append({**whole, **NUMBERS})
    return out


def let_go(seq, call_id, turn):
    """The call of a later turn, admitted."""
    return msgspec.structs.replace(call(seq, call_id), turn=turn)


def result(seq, call_id="call-1", code="", turn=1, step=1):
    return ev.ToolResult(seq, 1, turn, step, call_id, (ev.Text("sent"),), bool(code), code)


def turn(first, number, call_id):
    """A turn, as `turn_with_call`, without its owner."""
    _, start, step, user, answer = turn_with_call(first - 1, call_id)
    replace = msgspec.structs.replace
    return [replace(start, turn=number), replace(step, turn=number), user, replace(answer, turn=number)]


# --- any hole ---------------------------------------------------------------------------------------------------


@moderate
@given(logs(40), st.data())
def test_any_hole_leaves_a_legal_closed_log_that_keeps_every_whole_record(log, data):
    gone = data.draw(st.sets(st.integers(0, max(len(log.entries) - 1, 0)), min_size=1, max_size=4))
    first = min(gone)
    prefix = log.entries[:first]
    beyond = [entry for index, entry in enumerate(log.entries) if index > first and index not in gone]
    (line,) = salvage(prefix, beyond, [HOLE])
    fold = fold_of(line)
    assert fold.state is State.IDLE
    assert not closers(fold)
    assert not fold.owed
    assert list(line.entries[:first]) == prefix
    assert fold.gaps
    have = kept(line)
    for entry in (*prefix, *beyond):
        have.remove(without_seq(entry))
    messages(Log(HEADER, lambda: 0, VOCABULARY, line.entries))


@moderate
@given(logs(40), st.data())
def test_no_call_that_is_open_at_a_gap_or_beyond_it_is_not_started(log, data):
    at = data.draw(st.integers(0, len(log.entries)))
    prefix, beyond = log.entries[:at], log.entries[at + 1 :]
    before = Log(HEADER, lambda: 0, VOCABULARY, prefix).fold
    done = {name for name, one in before.calls.items() if one.result is not None}
    (line,) = salvage(prefix, beyond, [HOLE])
    for found in verdicts(fold_of(line)):
        if found.call.call_id not in done:
            assert found.verdict != "not_started"


@moderate
@given(logs(30), logs(30), st.data())
def test_two_lines_are_two_legal_logs_and_neither_makes_the_other_innocent(one, other, data):
    shared = data.draw(st.integers(0, min(len(one.entries), 3)))
    second = [entry for entry in other.entries[shared:] if entry not in one.entries]
    lines = salvage(one.entries, second, [HOLE] if second else [])
    have = [record for line in lines for record in kept(line)]
    for entry in (*one.entries, *second):
        assert without_seq(entry) in have
    for line in lines:
        assert fold_of(line).state is State.IDLE


# --- what is marked, and how ------------------------------------------------------------------------------------


def test_a_hole_in_a_turn_lets_later_results_stand_and_names_what_is_missing():
    (line,) = salvage(turn_with_call(), [result(6), note(7)], [HOLE])
    gap, answer, after = line.entries[5:8]
    assert (gap.offset, gap.length, gap.lost_from, gap.lost_to, gap.reason) == (100, 14, 5, 5, "not JSON")
    assert (type(answer), answer.seq, after.seq) == (ev.ToolResult, 6, 7)
    assert gap.until == 7
    assert [item.verdict for item in verdicts(fold_of(line))] == ["completed"]


def test_a_model_is_told_of_the_gap_behind_the_results_of_its_calls():
    (line,) = salvage(turn_with_call(), [note(6)], [HOLE])
    said = messages(Log(HEADER, lambda: 0, VOCABULARY, line.entries))
    assert [type(message) for message in said] == [UserTurn, AssistantTurn, ToolAnswer, UserTurn]
    assert said[-1].content[0].text == GAP


def test_calls_that_are_open_at_the_gap_are_unknown_and_said_to_be():
    (line,) = salvage(turn_with_call(), [note(6)], [HOLE])
    (found,) = verdicts(fold_of(line))
    assert found.verdict == UNKNOWN
    assert "missing" in found.call.result.content[0].text


def test_a_denial_from_the_far_side_is_no_innocence():
    (line,) = salvage(turn_with_call(), [result(6, code=DENIED)], [HOLE])
    (found,) = verdicts(fold_of(line))
    assert (found.verdict, found.code) == (UNKNOWN, DENIED)


def test_what_was_over_before_the_gap_is_judged_as_ever():
    (line,) = salvage([*turn_with_call(), result(5, code=DENIED)], [note(8)], [HOLE])
    assert [item.verdict for item in verdicts(fold_of(line))] == ["not_started"]


def test_what_begins_after_the_salvage_is_judged_as_ever():
    """The gap does not weigh on the session for ever."""
    (line,) = salvage(turn_with_call(), [note(6)], [HOLE])
    log = Log(HEADER, lambda: 0, VOCABULARY, line.entries)
    for entry in turn(log.fold.next_seq, 2, "call-2"):
        log.fold.take(entry)
    assert [item.verdict for item in verdicts(log.fold)] == [UNKNOWN, "not_started"]


def test_a_later_turn_beyond_the_gap_goes_on_where_a_lost_one_stood():
    far = [
        *turn(20, 4, "call-2"),
        result(24, "call-2", turn=4),
        ev.StepEnd(25, 1, 4, 1),
        ev.TurnEnd(26, 1, 4, "completed"),
    ]
    (line,) = salvage([*turn_with_call(), call(5)], far, [HOLE])
    fold = fold_of(line)
    assert line.wrapped == 0
    assert list(fold.turns) == [1, 4]
    assert fold.turns[1].ended == "interrupted"
    assert [item.verdict for item in verdicts(fold)] == [UNKNOWN, "completed"]


def test_records_of_a_turn_whose_beginning_is_lost_are_wrapped_to_the_letter():
    lost = result(30, "call-9", turn=7)
    (line,) = salvage(turn_with_call(), [lost], [HOLE])
    (wrapped,) = [entry for entry in line.entries if isinstance(entry, ev.Salvaged)]
    assert wrapped.original.encode() == encode(lost)


def test_every_further_hole_has_a_gap_of_its_own():
    (line,) = salvage(notes(0, 2), [note(4), note(5), note(9)], [HOLE, Break(700, "rotten")])
    gaps = [entry for entry in line.entries if isinstance(entry, ev.Gap)]
    assert [(gap.lost_from, gap.lost_to, gap.offset) for gap in gaps] == [(2, 3, 100), (6, 8, 700)]


def test_damage_with_nothing_beyond_it_is_marked_too():
    (line,) = salvage((), (), [Break(0, "the log is empty")])
    gap, owner = line.entries
    assert (gap.seq, gap.lost_from, gap.lost_to, gap.until) == (0, 0, None, -1)
    assert isinstance(owner, ev.SessionOwner)


def test_an_event_that_may_not_stand_there_is_a_break_like_any_other():
    (line,) = salvage([*turn_with_call(), result(5), result(6), note(7)])
    (gap,) = [entry for entry in line.entries if isinstance(entry, ev.Gap)]
    assert "law 5" in gap.reason
    assert (line.kept, line.wrapped, line.renumbered) == (6, 1, 1)


def test_a_run_of_chunks_is_renumbered_as_a_run():
    run = [ev.AssistantChunk(5 + seq, 1, 1, 1, f"w{seq}") for seq in range(3)]
    (line,) = salvage(turn_with_call()[:4], run, [HOLE])
    assert [
        event.delta for entry in line.entries for event in expand(entry) if isinstance(event, ev.AssistantChunk)
    ] == [
        "w0",
        "w1",
        "w2",
    ]


def test_lost_bytes_that_name_a_call_make_it_unknown():
    (line,) = salvage(turn_with_call(), (), (), Evidence(named=frozenset({"call-1"})))
    assert [item.verdict for item in verdicts(fold_of(line))] == [UNKNOWN]


# --- records that name others -----------------------------------------------------------------------------------


@moderate
@given(logs(40), st.data())
def test_a_record_that_names_another_names_the_same_one_afterwards_or_is_wrapped(log, data):
    at = data.draw(st.integers(0, len(log.entries)))
    (line,) = salvage(log.entries[:at], log.entries[at + 1 :], [HOLE])
    now = {event.seq: without_seq(event) for event in line.entries}
    before = {event.seq: without_seq(event) for event in log.entries}
    pairs = [(ev.ContextSummary, "through"), (ev.ToolCall, "retries")]
    for kind, field in pairs:
        old = [e for e in log.entries if type(e) is kind and getattr(e, field) is not None]
        new = [e for e in line.entries if type(e) is kind and getattr(e, field) is not None]
        for event in new:
            named = now[getattr(event, field)]
            assert any(without_seq(one) == without_seq(event) and before[getattr(one, field)] == named for one in old)


def far_turn(first, number, call_id):
    """A turn with one call, from end to end."""
    return [
        *turn(first, number, call_id),
        let_go(first + 4, call_id, number),
        result(first + 5, call_id, turn=number),
        ev.StepEnd(first + 6, 1, number, 1),
        ev.TurnEnd(first + 7, 1, number, "completed"),
    ]


def summary(seq, through):
    return ev.ContextSummary(seq, 1, through, (ev.Text("so far"),), "m")


def test_a_summary_beyond_the_gap_still_reaches_to_the_step_that_it_named():
    far = [*far_turn(20, 4, "call-2"), summary(28, 26), *far_turn(29, 5, "call-3")]
    (line,) = salvage([*turn_with_call(), call(5)], far, [HOLE])
    assert line.wrapped == 0
    said = messages(Log(HEADER, lambda: 0, VOCABULARY, line.entries))
    assert [type(message) for message in said] == [UserTurn, UserTurn, UserTurn, AssistantTurn, ToolAnswer]
    assert [message.content[0].text for message in said[:2]] == ["so far", GAP]


def test_a_summary_whose_step_is_lost_is_wrapped_and_nothing_is_hidden():
    """Its number is that of another step by now."""
    far = far_turn(20, 4, "call-2")
    del far[6:]
    (line,) = salvage([*turn_with_call(), call(5)], [*far, summary(28, 26)], [HOLE])
    assert [type(e) for e in line.entries if isinstance(e, ev.ContextSummary | ev.Salvaged)] == [ev.Salvaged]
    said = messages(Log(HEADER, lambda: 0, VOCABULARY, line.entries))
    assert sum(isinstance(message, AssistantTurn) for message in said) == 2


def test_a_second_letting_go_beyond_the_gap_names_the_first_one_by_its_new_seq():
    again = msgspec.structs.replace(let_go(25, "call-2", 4), retries=24)
    far = [*turn(20, 4, "call-2"), let_go(24, "call-2", 4), again, result(26, "call-2", turn=4, code=DENIED)]
    (line,) = salvage([*turn_with_call(), call(5)], far, [HOLE])
    assert line.wrapped == 0
    first, second = [e for e in line.entries if isinstance(e, ev.ToolCall) and e.call_id == "call-2"]
    assert second.retries == first.seq != 24
    assert [item.verdict for item in verdicts(fold_of(line))] == [UNKNOWN, UNKNOWN]


def test_a_second_letting_go_whose_first_is_lost_is_wrapped():
    again = msgspec.structs.replace(let_go(25, "call-2", 4), retries=24)
    far = [*turn(20, 4, "call-2"), again]
    (line,) = salvage([*turn_with_call(), call(5)], far, [HOLE])
    assert line.wrapped == 1
    assert [item.verdict for item in verdicts(fold_of(line))] == [UNKNOWN, UNKNOWN]


def test_what_a_tool_established_is_no_innocence_beside_another_line():
    """It looked, and said that the call had not run; then the writer that was still alive ran it."""
    settled = msgspec.structs.replace(result(5, code=DENIED), settled_by="send", evidence="no record")
    main, fork = salvage([*turn_with_call(), settled], [call(5), result(6)], [HOLE])
    assert [item.verdict for item in verdicts(fold_of(main))] == [UNKNOWN]
    assert [item.verdict for item in verdicts(fold_of(fork))] == ["completed"]


# --- two lines --------------------------------------------------------------------------------------------------


def test_a_second_line_becomes_a_log_of_its_own():
    second = [note(5, "mine"), note(6, "mine too")]
    main, fork = salvage([*turn_with_call(), call(5), result(6)], second, [Break(900, "seq 5 where 7 is next")])
    gap = main.entries[7]
    assert (gap.since, gap.lost_from, gap.offset) == (5, None, 900)
    assert fork.kept == 5
    assert [type(entry) for entry in fork.entries[5:8]] == [ev.Gap, ev.ToolNote, ev.ToolNote]
    assert [item.verdict for item in verdicts(fold_of(main))] == ["completed"]
    assert [item.verdict for item in verdicts(fold_of(fork))] == [UNKNOWN]


def test_the_line_that_says_not_started_is_not_believed_beside_another():
    """Repair raced the living: one writer called the call not started, the other one ran it."""
    main, fork = salvage([*turn_with_call(), result(5, code=DENIED)], [call(5), result(6)], [HOLE])
    assert [item.verdict for item in verdicts(fold_of(main))] == [UNKNOWN]
    assert [item.verdict for item in verdicts(fold_of(fork))] == ["completed"]


def test_what_was_written_twice_the_same_is_kept_once():
    lines = salvage(notes(0, 4), [*notes(2, 2), note(4)], [HOLE])
    assert len(lines) == 1
    assert lines[0].renumbered == 1


def test_the_main_line_goes_on_behind_the_second_one():
    main, fork = salvage(notes(0, 5), [note(3, "b"), note(5), note(6)], [HOLE])
    texts = [entry.text for entry in main.entries if isinstance(entry, ev.ToolNote)]
    assert texts == [f"note {seq}" for seq in range(7)]
    assert [entry.text for entry in fork.entries if isinstance(entry, ev.ToolNote)][3:] == ["b"]


def test_one_wrong_seq_makes_no_second_line():
    """A flipped bit in a number."""
    (line,) = salvage(notes(0, 5), [note(77), note(6), note(7)], [HOLE])
    assert (line.wrapped, line.renumbered) == (1, 2)
