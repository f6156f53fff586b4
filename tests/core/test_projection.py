"""From log to request: rebuilt byte for byte, strictly paired, with ids that any provider takes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.logs import HEADER, VOCABULARY, logs, moderate
from tests.core.story import Story, asked
from tests.core.test_repair import repair

from fencepost.core import events as ev
from fencepost.core.codec import encode, pack
from fencepost.core.log import Log
from fencepost.core.projection import AssistantTurn, ToolAnswer, UserTurn, messages, request, wire_ids
from fencepost.errors import IllegalEventError


def whole(log):
    """The log, repaired, and with a header if it had none: a request can be built from it."""
    repair(log)
    if log.fold.header is None:
        turn = log.fold.turn.number + 1 if log.fold.turn else 1
        log.append(ev.TurnStart, turn=turn, gates=(), policy="p")
        log.append(ev.StepStart, turn=turn, step=1)
        log.append(ev.RequestHeader, provider="p", model="m", settings={}, system="", tools=(), reason="initial")
    return log


def calls_of(message):
    return [block for block in message.content if isinstance(block, ev.CallRequest)]


def unpaired(transcript, wire):
    """What a strict provider says about a transcript: the first call or result that does not fit; None if all do."""
    owed, used = [], set()
    for message in transcript:
        if isinstance(message, ToolAnswer):
            if not owed or wire[message.call_id] != owed.pop(0):
                return message
            continue
        if owed:
            return message
        if isinstance(message, AssistantTurn):
            owed = [wire[call.call_id] for call in calls_of(message)]
            if "" in owed or used & set(owed) or len(set(owed)) < len(owed):
                return message
            used |= set(owed)
    return owed or None


def summed_up(log):
    """Of the newest summary its seq, what it reaches to, and what stands in front because of it."""
    found = [event for event in log.entries if isinstance(event, ev.ContextSummary)]
    return (found[-1].seq, found[-1].through, [found[-1].content]) if found else (-1, -1, [])


# --- any legal log ----------------------------------------------------------------------------------------------


@moderate
@given(logs())
def test_every_transcript_pairs_strictly(log):
    built = request(whole(log))
    assert unpaired(built.messages, built.wire_ids) is None


@moderate
@given(logs())
def test_a_request_is_rebuilt_from_the_stored_log_byte_for_byte(log):
    lines = [encode(entry) for entry in pack(whole(log).entries)]
    again = Log(HEADER, lambda: 0, VOCABULARY, [VOCABULARY.decode(line) for line in lines])
    assert msgspec.json.encode(request(again)) == msgspec.json.encode(request(log))


@moderate
@given(logs(), st.data())
def test_what_was_said_is_never_unsaid(log, data):
    """A transcript of an earlier point is the beginning of every later one, up to the next summary."""
    whole(log)
    ends = [event.seq for event in log.entries if isinstance(event, ev.StepEnd) and event.seq > summed_up(log)[0]]
    if not ends:
        return
    point = data.draw(st.sampled_from(ends))
    earlier = messages(Log(HEADER, lambda: 0, VOCABULARY, log.entries[: point + 1]))
    assert messages(log)[: len(earlier)] == earlier


@moderate
@given(logs())
def test_every_message_of_the_log_that_may_be_sent_is_sent_once_and_in_order(log):
    whole(log)
    through, said = summed_up(log)[1:]
    said += [
        event.content
        for event in log.entries[through + 1 :]
        if isinstance(event, ev.UserMessage)
        or (isinstance(event, ev.AssistantMessage) and not event.interrupted and event.content)
    ]
    assert [message.content for message in messages(log) if not isinstance(message, ToolAnswer)] == said


@moderate
@given(logs(40), st.data())
def test_a_summary_at_any_cut_parts_no_call_from_its_result_and_touches_nothing_behind_it(log, data):
    whole(log)
    repair(log)
    through = data.draw(st.sampled_from(log.fold.cuts))
    before = messages(log)
    try:
        log.append(ev.ContextSummary, through=through, content=(ev.Text("so far"),), model="m")
    except IllegalEventError:
        assert through <= summed_up(log)[1]
        return
    built = request(log)
    assert unpaired(built.messages, built.wire_ids) is None
    first, *rest = built.messages
    assert first == UserTurn((ev.Text("so far"),))
    assert tuple(rest) == before[len(before) - len(rest) :]


# --- what is sent -----------------------------------------------------------------------------------------------


def answer(story, content, **fields):
    fields = {"turn": 1, "step": 1, "message_id": "m", "finish": "stop", **fields}
    story.log.append(ev.AssistantMessage, content=content, **fields)
    return story


def test_results_stand_in_the_order_of_the_calls_not_of_their_ends():
    story = asked("c1", "c2", "c3").result("c3").result("c1").result("c2")
    transcript = messages(story.log)
    assert [message.call_id for message in transcript[1:]] == ["c1", "c2", "c3"]


def test_a_late_user_message_does_not_come_between_a_call_and_its_result():
    story = asked("c1").result("c1").step_end().step(2)
    story.log.append(ev.UserMessage, message_id="u", content=(ev.Text("hi"),), source="user")
    assert [type(message) for message in messages(story.log)] == [AssistantTurn, ToolAnswer, UserTurn]


def test_half_an_answer_is_never_sent():
    story = Story().turn().step()
    story.log.append(ev.AssistantChunk, turn=1, step=1, delta="half")
    answer(story, (ev.Text("half"),), interrupted=True, finish="cancelled")
    assert messages(story.log) == ()


def test_the_results_of_calls_in_half_an_answer_are_not_sent_either():
    story = answer(Story().turn().step(), (ev.CallRequest("c1", "f", "{}"),), interrupted=True).result("c1")
    assert messages(story.log) == ()


def test_an_empty_answer_is_not_sent():
    assert messages(answer(Story().turn().step(), ()).log) == ()


def test_nested_calls_are_between_tools_and_not_sent():
    story = asked("c1").call("c1").call("c2", parent="c1").result("c2").result("c1")
    assert [message.call_id for message in messages(story.log) if isinstance(message, ToolAnswer)] == ["c1"]


def test_a_call_without_a_result_makes_no_request():
    with pytest.raises(IllegalEventError, match="call c2 has no result"):
        messages(asked("c1", "c2").result("c1").log)


def test_without_a_header_there_is_no_request():
    with pytest.raises(IllegalEventError, match="no request/header"):
        request(Story().log)


def test_the_newest_header_is_in_force():
    story = Story().turn().step()
    for model in ("old", "new"):
        story.log.append(ev.RequestHeader, provider="p", model=model, settings={}, system="", tools=(), reason="change")
    built = request(story.log)
    assert (built.session, built.model, built.answered) == ("s1", "new", 0)


# --- summaries --------------------------------------------------------------------------------------------------


def closed_steps():
    story = Story().turn().step().hears("do it").asks("c1").result("c1").step_end()
    story.step(2).says("done", step=2).step_end(2)
    return story


def test_a_summary_stands_in_place_of_what_it_reaches_to():
    story = closed_steps()
    first, last = story.log.fold.cuts
    story.summary(first, "they had me do it")
    said = messages(story.log)
    assert said == (UserTurn((ev.Text("they had me do it"),)), AssistantTurn((ev.Text("done"),)))
    story.turn_end().summary(last, "all of it")
    assert messages(story.log) == (UserTurn((ev.Text("all of it"),)),)


def test_a_second_summary_takes_the_place_of_the_first():
    story = closed_steps()
    first, last = story.log.fold.cuts
    story.summary(first, "one").summary(last, "two").step(3).says("more", step=3)
    assert [ev.text_of(message.content) for message in messages(story.log)] == ["two", "more"]


def test_answers_are_counted_over_the_whole_log():
    story = closed_steps()
    story.summary(story.log.fold.cuts[-1])
    assert story.log.fold.answers == 2


# --- ids on the wire --------------------------------------------------------------------------------------------


def wires(*provider_ids):
    """Wire ids of calls c1, c2, … with these ids of the provider, one answer each."""
    calls = [ev.CallRequest(f"c{number}", "f", "{}", theirs) for number, theirs in enumerate(provider_ids, 1)]
    return list(wire_ids([AssistantTurn((call,)) for call in calls]).values())


def test_a_usable_id_of_the_provider_goes_back_to_it():
    assert wires("call_a", "call_b") == ["call_a", "call_b"]


def test_one_constant_id_is_replaced_by_ours():
    assert wires("call_0", "call_0", "call_0") == ["c1", "c2", "c3"]


def test_an_empty_id_is_replaced_by_ours():
    assert wires("", "call_b", "") == ["c1", "call_b", "c3"]


def test_an_id_that_looks_like_one_of_ours_is_not_used():
    assert wires("c2", "c1", "c3") == ["c1", "c2", "c3"]


def test_duplicates_in_one_answer_are_told_apart():
    calls = (ev.CallRequest("c1", "f", "{}", "x"), ev.CallRequest("c2", "f", "{}", "x"))
    assert wire_ids([AssistantTurn(calls)]) == {"c1": "c1", "c2": "c2"}
