"""Events to what a client is shown: the same for a turn that runs and for a history that is replayed.

    user/message         user_message_chunk     in a replay, and where it was not this client that said it
    assistant/chunk      agent_message_chunk, agent_thought_chunk
    assistant/message    what was not streamed of it; then one tool_call for each call it asks for, pending
    tool/call            in progress
    tool/result          completed or failed, with its text: a verdict after a crash is a result like any other
    turn/end             a line of its own where the turn did not simply end

Rules:
    1. A replay shows whole answers; chunks only of an answer that never became one: somebody saw them.
    2. All pieces of one answer carry one `messageId`. An attempt that failed has another than the one after it.
    3. `update_plan` is shown as the plan that it gives, not as a call.

What it refuses to be: it waits for nothing and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec
from acp import schema
from acp.helpers import text_block

from fencepost.apps.acp import cards
from fencepost.apps.acp.plan import PLAN, plan_of
from fencepost.core import events as ev
from fencepost.core.log import CallRecord

PIECE = 1 << 20
"""Characters of a message that go into one line at most."""

Update: TypeAlias = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | cards.Card
    | schema.ToolCallProgress
    | schema.AgentPlanUpdate
)


class Said:
    """What was streamed of an answer so far."""

    def __init__(self) -> None:
        self._pieces: dict[ev.Delta, list[str]] = {"text": [], "reasoning": []}

    def add(self, kind: ev.Delta, text: str) -> None:
        """One piece more."""
        self._pieces[kind].append(text)

    @property
    def text(self) -> str:
        """The answer itself."""
        return "".join(self._pieces["text"])

    @property
    def reasoning(self) -> str:
        """What was thought aloud."""
        return "".join(self._pieces["reasoning"])


class Teller:
    """See the module. One for each reading of a log, which it is given in order.

    Args:
        calls: the calls of the log; may be ahead of what is told.
        cwd: the session's working directory.
        replay: whether this is history.
        own: the first seq that this client's own prompts can have.
        before: the old content of a file, by the call that writes it.
    """

    def __init__(
        self,
        calls: Mapping[str, CallRecord],
        cwd: Path,
        *,
        replay: bool,
        own: int = 0,
        before: Callable[[str], cards.Before | None] = lambda _: None,
    ) -> None:
        self._calls = calls
        self._cwd = cwd
        self._replay = replay
        self._own = own
        self._before = before
        self._said = Said()
        self._attempt = 1
        self._at = (0, 0)
        self.running: set[str] = set()
        """Calls that were shown as in progress, and not yet as over."""

    def tell(self, entry: ev.Entry) -> Iterator[Update]:
        """What is shown of one event, or of one run of chunks."""
        match entry:
            case ev.UserMessage():
                if self._replay or entry.source != "user" or entry.seq < self._own:
                    yield from said_by_user(ev.text_of(entry.content), entry.message_id)
            case ev.StepStart():
                self._attempt, self._at = 1, (entry.turn, entry.step)
            case ev.AssistantChunk():
                yield from self._chunk(entry.kind, entry.delta)
            case ev.ChunkRun():
                yield from self._chunk(entry.kind, "".join(entry.deltas))
            case ev.RequestRetry():
                yield from self._retry(entry)
            case ev.AssistantMessage():
                yield from self._answer(entry)
            case ev.ToolCall():
                yield from self._let_go(entry)
            case ev.ToolResult():
                yield from self._over(entry)
            case ev.StepEnd():
                yield from self._half()
            case _:
                yield from self._aside(entry)

    # --- answers ------------------------------------------------------------------------------------------------

    def _chunk(self, kind: ev.Delta, text: str) -> Iterator[Update]:
        self._said.add(kind, text)
        if not self._replay:
            yield from self._piece(kind, text)

    def _piece(self, kind: ev.Delta, text: str) -> Iterator[Update]:
        name = f"{self._at[0]}.{self._at[1]}.{self._attempt}"
        if kind == "text":
            yield from said_by_agent(text, name)
            return
        for part in _parts(text):
            yield schema.AgentThoughtChunk(
                session_update="agent_thought_chunk", content=text_block(part), message_id=f"{name}.thought"
            )

    def _retry(self, event: ev.RequestRetry) -> Iterator[Update]:
        self._said = Said()
        self._attempt += 1
        if not self._replay:
            seconds = event.delay_ms / 1000
            yield from note(f"the request failed ({event.message}); it is tried again in {seconds:g} s", event.seq)

    def _answer(self, event: ev.AssistantMessage) -> Iterator[Update]:
        shown, self._said = (Said() if self._replay else self._said), Said()
        self._at = (event.turn, event.step)
        reasoning = "".join(block.text for block in event.content if isinstance(block, ev.Reasoning))
        yield from self._piece("reasoning", _rest(reasoning, shown.reasoning))
        yield from self._piece("text", _rest(ev.text_of(event.content), shown.text))
        for call in ev.calls_of(event):
            if call.name != PLAN:
                yield self._announced(self._calls[call.call_id], "pending")

    def _half(self) -> Iterator[Update]:
        """The visible part of an answer that never became one."""
        said, self._said = self._said, Said()
        if self._replay:
            yield from self._piece("reasoning", said.reasoning)
            yield from self._piece("text", said.text)

    def rest(self) -> Iterator[Update]:
        """What the end of a log leaves open."""
        yield from self._half()

    # --- calls --------------------------------------------------------------------------------------------------

    def _announced(self, record: CallRecord, status: schema.ToolCallStatus) -> cards.Card:
        return cards.card(record, self._cwd, status, self._before(record.call_id))

    def _let_go(self, event: ev.ToolCall) -> Iterator[Update]:
        if event.name == PLAN:
            plan = plan_of(event.arguments)
            if plan is not None:
                yield plan
            return
        self.running.add(event.call_id)
        if event.parent is not None and event.retries is None:
            yield self._announced(self._calls[event.call_id], "in_progress")
        else:
            yield cards.progress(event.call_id, status="in_progress", content=())

    def _over(self, event: ev.ToolResult) -> Iterator[Update]:
        record = self._calls[event.call_id]
        self.running.discard(event.call_id)
        if record.name != PLAN:
            told = msgspec.structs.replace(record, result=event)
            yield cards.outcome(told, self._cwd, self._before(event.call_id))

    # --- what stands beside the conversation --------------------------------------------------------------------

    def _aside(self, entry: ev.Entry) -> Iterator[Update]:
        text = ""
        match entry:
            case ev.TurnEnd(reason="interrupted"):
                yield from self._half()
                text = "this turn was interrupted: fencepost ended in the middle of it"
            case ev.TurnEnd(reason="error" | "blocked" | "max_tokens") if self._replay:
                text = entry.message
            case ev.InputDropped() if self._replay:
                text = "a prompt was taken back before the model saw it"
            case ev.ToolNote():
                text = entry.text
            case ev.ContextSummary():
                text = "what was said until here is summed up for the model; the session keeps all of it"
            case ev.Gap():
                text = "a part of this session's log is missing here"
        if text:
            yield from note(text, entry.seq)


def said_by_user(text: str, message: str) -> Iterator[Update]:
    """What a person said."""
    for part in _parts(text):
        yield schema.UserMessageChunk(session_update="user_message_chunk", content=text_block(part), message_id=message)


def said_by_agent(text: str, message: str) -> Iterator[Update]:
    """What the agent said."""
    for part in _parts(text):
        yield schema.AgentMessageChunk(
            session_update="agent_message_chunk", content=text_block(part), message_id=message
        )


def note(text: str, name: object) -> Iterator[Update]:
    """A line of fencepost's own: protocol version 1 has no other place for it than the agent's messages.

    Set apart by empty lines, for there are clients which run messages with different names into each other.
    """
    return said_by_agent(f"\n\n[fencepost: {text}]\n\n", f"note.{name}")


def _parts(text: str) -> Iterator[str]:
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def _rest(whole: str, shown: str) -> str:
    """What was not shown yet. Where what was shown is no beginning of it, nothing: showing it twice helps nobody."""
    return whole[len(shown) :] if whole.startswith(shown) else ""
