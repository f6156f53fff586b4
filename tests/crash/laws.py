"""The laws of design.md, section 2, as checks of one boundary and of what a fresh process made of it.

Each raises an `AssertionError` that names the boundary. `Strict` says how much is owed: after a SIGKILL between two
system calls nothing may be lost at all; where a write was torn, more may be unknown, and never less true.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from fencepost.core import events as ev
from fencepost.core.projection import request
from fencepost.core.verdict import NO_EVIDENCE, NOT_ENTERED, TOOL_OUTCOME_UNKNOWN
from fencepost.errors import IllegalEventError
from fencepost.plugins.openai_wire import chat_body
from tests.crash.judging import Judged, bytes_of, log_of
from tests.crash.transcripts import transcript_problem
from tests.crash.world import NOTHING, Witness, twice


def results(events: Iterable[ev.Event]) -> dict[str, ev.ToolResult]:
    """By call id."""
    return {event.call_id: event for event in events if isinstance(event, ev.ToolResult)}


def admitted(events: Iterable[ev.Event]) -> set[str]:
    """Ids of calls with a `tool/call`."""
    return {event.call_id for event in events if isinstance(event, ev.ToolCall)}


def asked(events: Iterable[ev.Event]) -> list[str]:
    """Ids of the calls that some answer asks for."""
    return [call.call_id for event in events if isinstance(event, ev.AssistantMessage) for call in ev.calls_of(event)]


def nested(events: Iterable[ev.Event]) -> list[str]:
    """Ids of the calls that other calls made."""
    return [event.call_id for event in events if isinstance(event, ev.ToolCall) and event.parent is not None]


def no_ghost(witness: Witness, judged: Judged) -> None:
    """Law 1: a body that ran has its `tool/call` durable."""
    missing = set(witness.entered) - admitted(judged.events)
    assert not missing, f"bodies that ran and left no tool/call: {missing}"


def no_false_innocence(witness: Witness, judged: Judged) -> None:
    """Law 2: `not_started` means that the body did not run, before and after the repair."""
    for verdicts in (judged.verdicts(), judged.found, _after(judged)):
        lied = {call for call, verdict in verdicts.items() if verdict == "not_started"} & set(witness.entered)
        assert not lied, f"not_started, and the body had been entered: {lied}"
    told = {call for call, result in results(judged.repaired).items() if result.code in NOT_ENTERED}
    assert not told & set(witness.entered), "the model is told to retry what ran"


def _after(judged: Judged) -> dict[str, str]:
    return {call.call_id: call.verdict for call in judged.after.calls} if judged.after else {}


def no_ghost_request(witness: Witness, judged: Judged) -> None:
    """Law 3: every request that left can be rebuilt from what is durable, byte for byte."""
    if not witness.requests:
        return
    assert judged.stored is not None, "a request left, and there is no session"
    prefixes = list(request_prefixes(judged.events))
    assert len(prefixes) >= len(witness.requests), "a request left that the log knows nothing of"
    for number, sent in enumerate(witness.requests):
        try:
            rebuilt = request(log_of(judged.stored, prefixes[number]))
        except IllegalEventError as error:
            raise AssertionError(f"request {number} cannot be rebuilt: {error}") from None
        assert rebuilt == sent, f"request {number} cannot be rebuilt"
        assert chat_body(rebuilt) == chat_body(sent)


def request_prefixes(events: Sequence[ev.Event]) -> Iterable[list[ev.Event]]:
    """For each step the events up to its request: behind its messages and header, before any piece of an answer."""
    inputs = (ev.StepStart, ev.UserMessage, ev.RequestHeader)
    for start, event in enumerate(events):
        if isinstance(event, ev.StepStart):
            end = start + 1
            while end < len(events) and isinstance(events[end], inputs):
                end += 1
            yield list(events[:end])


def one_result_per_call(witness: Witness, judged: Judged) -> None:
    """Law 5: after the repair, and after going on, each call has exactly one result; another one is refused."""
    for events in (judged.repaired, judged.finished):
        counts = Counter(event.call_id for event in events if isinstance(event, ev.ToolResult))
        assert counts == Counter([*asked(events), *nested(events)]), "not one result per call"
    if judged.refused is None and judged.stored is not None:
        _second_result_refused(judged)


def _second_result_refused(judged: Judged) -> None:
    log = log_of(judged.stored, judged.repaired)
    for result in results(judged.repaired).values():
        try:
            log.append(ev.ToolResult, turn=result.turn, step=result.step, call_id=result.call_id, content=())
        except IllegalEventError:
            continue
        raise AssertionError(f"a second result for {result.call_id} was taken")


def prefix(events: Sequence[ev.Event], judged: Judged) -> None:
    """Law 6: what is durable is a prefix of what was appended, in order, to the byte."""
    durable = bytes_of(judged.events)
    assert durable == bytes_of(events[: len(durable)]), "durable events are no prefix of what was appended"
    kept = bytes_of(judged.repaired[: len(durable)]) if judged.repaired else durable
    assert kept == durable, "the repair changed what was durable"


def opening_is_reading(witness: Witness, judged: Judged) -> None:
    """Law 7: looking, a refused resume and a second resume change no byte."""
    assert judged.changed == []


def nothing_acknowledged_is_lost(witness: Witness, judged: Judged) -> None:
    """Law 9: an acknowledged prompt is pending or in the transcript; a result that was shown is that result."""
    for events in filter(None, (judged.events, judged.repaired)):
        queued = {event.input_id: ev.text_of(event.content) for event in events if isinstance(event, ev.InputQueued)}
        dropped = {event.input_id for event in events if isinstance(event, ev.InputDropped)}
        there = results(events)
        for input_id, text in witness.acknowledged:
            assert queued.get(input_id) == text, f"the acknowledged prompt {input_id} is lost"
            assert input_id not in dropped
        for call_id, text in witness.shown:
            assert call_id in there, f"the result of {call_id} was shown and is lost"
            assert ev.text_of(there[call_id].content) == text
    assert judged.stored is not None or not (witness.acknowledged or witness.shown), "the session is lost"


def acknowledged_prompts_run_once(witness: Witness, judged: Judged) -> None:
    """Law 9, the other half: going on runs each acknowledged prompt, once."""
    if judged.refused is not None or judged.stored is None:
        return
    consumed = Counter(event.input_id for event in judged.finished if isinstance(event, ev.UserMessage))
    for input_id, _ in witness.acknowledged:
        assert consumed[input_id] == 1, f"the prompt {input_id} ran {consumed[input_id]} times"


def gates_are_recorded(gates: tuple[str, ...], judged: Judged) -> None:
    """Law 10: each turn says which gates are in force; without a tool gate, nothing missing proves anything."""
    for event in judged.events:
        if isinstance(event, ev.TurnStart):
            assert event.gates == gates
    if "tool" not in gates:
        real = results(judged.events)
        for call, verdict in judged.verdicts().items():
            assert call in real or verdict == "outcome_unknown", f"{call} is {verdict} without a tool gate"


def unknown_only_if_unavoidable(witness: Witness, judged: Judged, *, whole: bool) -> None:
    """Under a tool gate a call is unknown if it was let go and has no result, or if bytes are missing; never else.

    Args:
        whole: no write was torn, so no bytes can be missing.
    """
    if judged.stored is None:
        return
    evidence = judged.stored.evidence
    assert not whole or evidence == NO_EVIDENCE, "bytes are missing where none were lost"
    there = results(judged.events)
    let_go = admitted(judged.events) - set(there)
    said = {call for call, result in there.items() if result.code == TOOL_OUTCOME_UNKNOWN}
    unknown = {call for call, verdict in judged.verdicts().items() if verdict == "outcome_unknown"} - said
    assert let_go <= unknown, "a call that may have run is not unknown"
    assert unknown == let_go or evidence != NO_EVIDENCE, f"unknown without need: {unknown - let_go}"


def completed_is_real(witness: Witness, judged: Judged) -> None:
    """`completed` means: that very result, from a body that had given it back."""
    there = results(judged.events)
    for call, verdict in judged.verdicts().items():
        if verdict == "completed":
            assert (call, ev.text_of(there[call].content)) in witness.replies


def repair_tells_what_looking_told(witness: Witness, judged: Judged) -> None:
    """The verdicts before the repair are those that it writes, and looking afterwards gives them again."""
    if judged.refused is not None or judged.stored is None:
        return
    before = judged.verdicts()
    assert _after(judged) == before, "the repair wrote another verdict"
    assert judged.found.items() <= before.items()
    assert judged.after is not None
    assert judged.after.state == "clean"


def resume_runs_nothing(witness: Witness, judged: Judged) -> None:
    """Opening and resuming enter no body and send no request."""
    assert judged.by_resume == NOTHING


def strict_providers_take_it(witness: Witness, judged: Judged) -> None:
    """Every transcript after a repair passes a strict pairing check, in OpenAI and in Anthropic form."""
    for sent in judged.requests:
        problem = transcript_problem(sent)
        assert problem is None, problem


def no_effect_twice(witness: Witness, judged: Judged) -> None:
    """Going on finishes the task, and nothing that was let go before the crash runs again by itself."""
    if judged.refused is not None or judged.stored is None:
        return
    assert not twice(witness.done + judged.going_on.done)
    if judged.outcome is not None:
        assert judged.outcome.reason == "completed", judged.outcome
    unknown = [item for item in results(judged.repaired).values() if item.code == TOOL_OUTCOME_UNKNOWN]
    assert not {item.call_id for item in unknown} & set(judged.going_on.entered)
