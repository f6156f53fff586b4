"""Hypothesis strategies for logs: any legal sequence of events, with the texts and values that break things.

A log is grown move by move. What is legal next is asked of the fold, except for the rules that this module repeats
on purpose (each as a guard in `moves`), so that a log that grows here is legal by two opinions.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from fencepost.core import events as ev
from fencepost.core.codec import Vocabulary
from fencepost.core.lifecycle import State
from fencepost.core.log import CallRecord, Log
from fencepost.core.verdict import NOT_ENTERED, TOOL_OUTCOME_UNKNOWN, Evidence


class Weather(ev.Event, frozen=True, tag="test/weather"):
    """An event of a plugin."""

    degrees: int
    station: ev.Json = None


VOCABULARY = Vocabulary([Weather])
HEADER = ev.Header("s1", 0, "/", 1)

moderate = settings(max_examples=40, deadline=None)
"""For properties over whole logs; growing one takes some milliseconds."""

Draw = Callable[[st.SearchStrategy[Any]], Any]
Move = tuple[type[ev.Event], Callable[[Draw], dict[str, Any]]]

NASTY = (
    "",
    "\ud800",
    "a\udfffb",
    "\ud83d\ude00",
    "\\ud800",
    "\x00",
    "line\nline\r\n",
    "\u2028\u2029\x85",
    '"}\n{"type":"commit"',
    "é😀",
)
texts = st.one_of(st.sampled_from(NASTY), st.text(st.characters(), max_size=8))
contents = st.lists(texts.map(ev.Text), max_size=2).map(tuple)
times = st.integers(0, 2**53)
numbers = st.one_of(st.integers(), st.sampled_from([2**63, 2**64, -(2**63) - 1]), st.floats())
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
objects = st.dictionaries(texts, values, max_size=3)
gates = st.lists(st.sampled_from(["step", "request", "tool", "closing"]), unique=True).map(tuple)
codes = st.sampled_from(["", "TIMEOUT", TOOL_OUTCOME_UNKNOWN, *sorted(NOT_ENTERED)])
provider_ids = st.sampled_from(["", "call_0", "call_0", "x", "c1", "c2"])
evidence = st.builds(
    Evidence,
    st.frozensets(st.sampled_from([f"c{number}" for number in range(1, 8)]), max_size=3),
    st.lists(st.integers(0, 40), max_size=2).map(tuple),
)


def moves(log: Log) -> list[Move]:
    """What may come next, with a strategy for its fields."""
    fold = log.fold
    by_state = {State.IDLE: _idle, State.TURN: _turn, State.STEP: _step, State.ANSWERED: _answered}
    return [*by_state[fold.state](log), *_anywhere(log)]


def _anywhere(log: Log) -> list[Move]:
    fold = log.fold
    epoch = fold.owner.epoch + 1 if fold.owner else 1
    out: list[Move] = [
        (ev.SessionOwner, lambda draw: {"owner": draw(texts), "epoch": epoch, "resumed": draw(st.booleans())}),
        (ev.InputQueued, lambda draw: _input(draw, f"i{fold.next_seq}")),
        (ev.ToolNote, lambda draw: {"call_id": draw(texts), "text": draw(texts)}),
        (Weather, lambda draw: {"degrees": draw(st.integers(-99, 99)), "station": draw(objects)}),
    ]
    if fold.pending:
        pending = st.sampled_from(sorted(fold.pending))
        out.append((ev.InputDropped, lambda draw: {"input_id": draw(pending), "reason": draw(texts)}))
    return out


def _input(draw: Draw, input_id: str) -> dict[str, Any]:
    return {"input_id": input_id, "target": draw(st.sampled_from(["turn", "step"])), "content": draw(contents)}


def _idle(log: Log) -> list[Move]:
    number = log.fold.turn.number + 1 if log.fold.turn else 1
    start = (ev.TurnStart, lambda draw: {"turn": number, "gates": draw(gates), "policy": draw(texts)})
    return [start, start, start, *_summing_up(log)]


def _turn(log: Log) -> list[Move]:
    turn = log.fold.turn
    assert turn is not None
    reasons = st.sampled_from(["completed", "aborted", "blocked", "error", "max_tokens"])
    step = (ev.StepStart, lambda draw: {"turn": turn.number, "step": turn.step + 1})
    end = (ev.TurnEnd, lambda draw: {"turn": turn.number, "reason": draw(reasons)})
    return [step, step, step, end, *_summing_up(log)]


def _summing_up(log: Log) -> list[Move]:
    """Between steps: up to the end of any step that no summary covers yet."""
    events = [event for event in log.entries if isinstance(event, ev.Event)]
    last = max((event.through for event in events if isinstance(event, ev.ContextSummary)), default=-1)
    ends = [event.seq for event in events if isinstance(event, ev.StepEnd) and event.seq > last]
    if not ends:
        return []
    usages = st.one_of(st.none(), st.builds(ev.Usage, st.integers(0, 9)))
    return [
        (
            ev.ContextSummary,
            lambda draw: {
                "through": draw(st.sampled_from(ends)),
                "content": draw(contents),
                "model": draw(texts),
                "usage": draw(usages),
            },
        )
    ]


def _step(log: Log) -> list[Move]:
    place = _place(log)
    known = set(log.fold.calls)
    inputs = st.sampled_from([None, *sorted(log.fold.pending)])
    user = (
        ev.UserMessage,
        lambda draw: {"message_id": "u", "content": draw(contents), "source": "user", "input_id": draw(inputs)},
    )
    retry = (
        ev.RequestRetry,
        lambda draw: {**place, "attempt": 1, "code": "HTTP", "message": draw(texts), "delay_ms": draw(times)},
    )
    chunk = (
        ev.AssistantChunk,
        lambda draw: {**place, "delta": draw(texts), "kind": draw(st.sampled_from(["text", "text", "reasoning"]))},
    )
    answer = (ev.AssistantMessage, lambda draw: {**place, **_answer(draw, known)})
    end = (ev.StepEnd, lambda draw: place)
    return [user, (ev.RequestHeader, _header), retry, *[chunk] * 4, *[answer] * 3, end]


def _header(draw: Draw) -> dict[str, Any]:
    tools = st.lists(st.builds(ev.ToolSpec, texts, texts, objects), max_size=2).map(tuple)
    return {
        "provider": draw(texts),
        "model": draw(texts),
        "settings": draw(objects),
        "system": draw(texts),
        "tools": draw(tools),
        "reason": draw(st.sampled_from(["initial", "resume", "change"])),
    }


def _answer(draw: Draw, known: set[str]) -> dict[str, Any]:
    first = len(known) + 1
    calls = st.integers(0, 3).map(lambda count: [f"c{number}" for number in range(first, first + count)])
    asked = [ev.CallRequest(name, draw(texts), draw(texts), draw(provider_ids)) for name in draw(calls)]
    said = draw(st.lists(st.one_of(st.builds(ev.Text, texts), st.builds(ev.Reasoning, texts, values)), max_size=2))
    return {
        "message_id": "m",
        "content": (*said, *asked),
        "finish": "tool_calls" if asked else "stop",
        "usage": draw(st.one_of(st.none(), st.builds(ev.Usage, st.integers(0, 9)))),
        "interrupted": draw(st.sampled_from([False, False, False, True])),
    }


def _answered(log: Log) -> list[Move]:
    place, fold = _place(log), log.fold
    out: list[Move] = []
    for name in fold.owed:
        call = fold.calls[name]
        about = {"call_id": name}
        out.append((ev.ApprovalAsked, lambda draw, about=about: {**about, "question": draw(texts)}))
        out.append((ev.ApprovalDecided, lambda draw, about=about: {**about, **_decision(draw)}))
        if call.admitted is None:
            out += [(ev.ToolCall, lambda draw, call=call: {**place, **_call(draw, call.call_id, call.name)})] * 3
        else:
            out.append((ev.ToolCall, lambda draw, call=call: {**place, **_again(draw, call)}))
            nested = f"c{len(fold.calls) + 1}"
            about = {"parent": name}
            out.append(
                (
                    ev.ToolCall,
                    lambda draw, about=about, nested=nested: {**place, **_call(draw, nested, "inner"), **about},
                )
            )
        if not any(fold.calls[other].parent == name for other in fold.owed):
            out += [(ev.ToolResult, lambda draw, name=name: {**place, **_result(draw, name)})] * 3
    return out or [(ev.StepEnd, lambda draw: place)]


def _decision(draw: Draw) -> dict[str, Any]:
    scope = draw(st.sampled_from(["call", "tool", "prefix", "directory"]))
    return {"allowed": draw(st.booleans()), "by": "me", "remember": True, "scope": scope, "pattern": draw(texts)}


def _call(draw: Draw, call_id: str, name: str) -> dict[str, Any]:
    effects = st.sampled_from(ev.EFFECTS)
    return {"call_id": call_id, "name": name, "arguments": draw(objects), "effect": draw(effects)}


def _again(draw: Draw, call: CallRecord) -> dict[str, Any]:
    before = call.admitted
    assert before is not None
    same = {"name": before.name, "arguments": before.arguments, "parent": before.parent, "retries": before.seq}
    return {"call_id": call.call_id, "effect": draw(st.sampled_from(ev.EFFECTS)), **same}


def _result(draw: Draw, call_id: str) -> dict[str, Any]:
    settled = draw(st.sampled_from([{}, {}, {"settled_by": "f"}, {"settled_by": "f", "evidence": "a receipt"}]))
    said = {"content": draw(contents), "is_error": draw(st.booleans()), "code": draw(codes)}
    return {"call_id": call_id, **said, **settled}


def _place(log: Log) -> dict[str, Any]:
    turn = log.fold.turn
    assert turn is not None
    return {"turn": turn.number, "step": turn.step}


def empty() -> Log:
    """A new log whose clock counts seconds."""
    return Log(HEADER, iter(range(1_000, 10**9, 1_000)).__next__, VOCABULARY)


@st.composite
def logs(draw: Draw, max_moves: int = 25) -> Log:
    """A log after any legal sequence of events, open or closed."""
    log = empty()
    for _ in range(draw(st.integers(0, max_moves))):
        grow(draw, log)
    return log


def grow(draw: Draw, log: Log) -> ev.Event:
    """Append one more legal event."""
    kind, fields = draw(st.sampled_from(moves(log)))
    return log.append(kind, at=draw(times), **fields(draw))
