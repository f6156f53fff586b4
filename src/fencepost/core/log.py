"""The in-memory log of one session, and the fold over it that everything else asks.

`Log.append` is synchronous: it makes the event, checks it against the lifecycle table and the bookkeeping below,
commits it to memory and tells the subscribers. It never waits and does no IO; durability is the journal's business.

Bookkeeping rules (the second half of legality; the first is `lifecycle.TABLE`):
    1. seq is dense from 0.
    2. Turns count up by one over the session's life, steps by one within a turn.
    3. A call is asked for once, admitted at most once, answered exactly once (law 5). One that a crash left without a
       result may be admitted again by a `tool/call` that names the earlier one. A nested call names a parent that is
       admitted and not yet answered.
    4. An input is queued once, and consumed or dropped once.
    5. A step ends only when every call of it has its result; nested calls end before their parent.
    6. Owner epochs grow by one.
    7. A summary reaches to the end of a closed step, and further than the one before it.
    8. Across a gap, rules 2 and 6 hold as far as anyone can know: the next turn, step or epoch is a later one. An input
       may be consumed whose queueing is missing.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import msgspec

from fencepost.core import events as ev
from fencepost.core.calls import CallRecord as CallRecord
from fencepost.core.calls import Turn as Turn
from fencepost.core.codec import Vocabulary, expand, last_seq
from fencepost.core.lifecycle import STEP, State, next_state
from fencepost.core.normalise import make
from fencepost.errors import IllegalEventError, UndeclaredEventError

E = TypeVar("E", bound=ev.Event)
Subscriber = Callable[[ev.Event, int], None]


class Fold:
    """The state of a session after some events. Mutated by `apply` only, which also refuses what is illegal."""

    def __init__(self) -> None:
        self.next_seq = 0
        self.state = State.IDLE
        self.turn: Turn | None = None
        self.turns: dict[int, Turn] = {}
        self.calls: dict[str, CallRecord] = {}
        self.owed: dict[str, None] = {}
        """Calls of the open step without a result, in the order in which they were asked for."""
        self.pending: dict[str, ev.InputQueued] = {}
        self.owner: ev.SessionOwner | None = None
        self.header: ev.RequestHeader | None = None
        self.said: list[ev.UserMessage | ev.AssistantMessage | ev.Gap | ev.ContextSummary] = []
        """The messages of the transcript, in their order; half an answer is none, and a summary stands for many."""
        self.cuts: list[int] = []
        """Where each closed step ended: what a summary may reach to."""
        self.answers = 0
        """Whole answers so far; the scripted model counts its lines by it."""
        self.gaps: list[ev.Gap] = []
        self.salvaged: list[ev.Salvaged] = []
        self._until = -1
        """Up to this seq, events come from the far side of a gap."""
        self._leaps: set[str] = set()
        """What may be counted on from a later number, because numbers in between may be missing."""
        self.inputs: set[str] = set()
        """Every input that was ever queued here."""
        self._last: ev.Entry | None = None
        self._plan: dict[type[ev.Event], Callable[[Any], None]] = {
            ev.SessionOwner: self._owner,
            ev.InputQueued: self._queued,
            ev.InputDropped: self._dropped,
            ev.TurnStart: self._turn_start,
            ev.TurnEnd: self._turn_end,
            ev.StepStart: self._step_start,
            ev.StepEnd: self._step_end,
            ev.UserMessage: self._user,
            ev.RequestHeader: self._header,
            ev.RequestRetry: self._in_step,
            ev.AssistantChunk: self._in_step,
            ev.AssistantMessage: self._answer,
            ev.ApprovalAsked: self._about_call,
            ev.ApprovalDecided: self._about_call,
            ev.ToolCall: self._call,
            ev.ToolResult: self._result,
            ev.ContextSummary: self._summary,
            ev.Gap: self._gap,
            ev.Salvaged: self.salvaged.append,
        }

    @property
    def last_time(self) -> int:
        """Time of the newest event, in epoch milliseconds; 0 without one."""
        if self._last is None:
            return 0
        return self._last.last_time if isinstance(self._last, ev.ChunkRun) else self._last.time

    def apply(self, event: ev.Event) -> None:
        """Take one event in.

        Raises:
            IllegalEventError: it may not follow; the fold is as it was.
        """
        if event.seq != self.next_seq:
            raise _out_of_order(event.type_name(), event.seq, self.next_seq)
        kind = type(event)
        after = next_state(self.state, kind)
        if after is None:
            raise IllegalEventError(f"{kind.type_name()} may not follow in state {self.state.value} (seq {event.seq})")
        step = self._plan.get(kind)
        if step is not None:
            step(event)
        self.state = after
        self.next_seq += 1
        self._last = event

    def apply_run(self, run: ev.ChunkRun) -> None:
        """Take a packed run of chunks in: the same as its members one by one."""
        if run.seq != self.next_seq or self.state is not STEP:
            raise IllegalEventError(f"a run of chunks may not follow here (seq {run.seq}, state {self.state.value})")
        self._in_step(run)
        self.next_seq += run.n
        self._last = run

    def skip(self, event: ev.UnknownEvent) -> None:
        """Step over an ignorable event of an unknown type."""
        if event.seq != self.next_seq:
            raise _out_of_order(event.type, event.seq, self.next_seq)
        self.next_seq += 1
        self._last = event

    def take(self, entry: ev.Entry) -> None:
        """Take an entry of any kind in."""
        if type(entry) is ev.ChunkRun:
            self.apply_run(entry)
        elif type(entry) is ev.UnknownEvent:
            self.skip(entry)
        else:
            self.apply(entry)

    # --- one rule each ------------------------------------------------------------------------------------------

    def _owner(self, event: ev.SessionOwner) -> None:
        expected = self.owner.epoch + 1 if self.owner else 1
        if not self._follows("epoch", event.epoch, expected):
            raise _illegal(event, f"epoch {event.epoch} where {expected} is next")
        self.owner = event

    def _queued(self, event: ev.InputQueued) -> None:
        if event.input_id in self.inputs:
            raise _illegal(event, f"input {event.input_id} was queued before")
        self.inputs.add(event.input_id)
        self.pending[event.input_id] = event

    def _dropped(self, event: ev.InputDropped) -> None:
        self._consume(event, event.input_id)

    def _turn_start(self, event: ev.TurnStart) -> None:
        expected = self.turn.number + 1 if self.turn else 1
        if not self._follows("turn", event.turn, expected):
            raise _illegal(event, f"turn {event.turn} where {expected} is next")
        self._leaps.discard("step")
        self.turn = Turn(event.turn, event.gates, event.policy)
        self.turns[event.turn] = self.turn

    def _turn_end(self, event: ev.TurnEnd) -> None:
        turn = self._open_turn(event)
        turn.ended = event.reason

    def _step_start(self, event: ev.StepStart) -> None:
        turn = self._open_turn(event)
        if not self._follows("step", event.step, turn.step + 1):
            raise _illegal(event, f"step {event.step} where {turn.step + 1} is next")
        turn.step = event.step

    def _step_end(self, event: ev.StepEnd) -> None:
        self._in_step(event)
        if self.owed:
            raise _illegal(event, f"calls without a result: {', '.join(self.owed)}")
        self.cuts.append(event.seq)

    def _user(self, event: ev.UserMessage) -> None:
        if event.input_id is not None:
            self._consume(event, event.input_id)
        self.said.append(event)

    def _consume(self, event: ev.Event, input_id: str) -> None:
        if input_id in self.pending:
            del self.pending[input_id]
        elif self.gaps and input_id not in self.inputs:
            self.inputs.add(input_id)
        else:
            raise _illegal(event, f"input {input_id} is not pending")

    def _header(self, event: ev.RequestHeader) -> None:
        self.header = event

    def _answer(self, event: ev.AssistantMessage) -> None:
        self._in_step(event)
        asked = ev.calls_of(event)
        names = {call.call_id for call in asked}
        if len(names) < len(asked):
            raise _illegal(event, "one call_id is used twice")
        for name in names:
            if name in self.calls:
                raise _illegal(event, f"call {name} was asked for before")
        for call in asked:
            self.calls[call.call_id] = CallRecord(
                call.call_id, call.name, call.arguments, event.turn, event.step, event.seq, call.provider_id
            )
            self.calls[call.call_id].owner = self._writer
            self._touch(self.calls[call.call_id], event)
            self.owed[call.call_id] = None
        if not event.interrupted:
            self.answers += 1
            self.said.append(event)

    def _about_call(self, event: ev.ApprovalAsked | ev.ApprovalDecided) -> None:
        if event.call_id in self.calls and event.call_id not in self.owed:
            raise _illegal(event, f"call {event.call_id} has its result already")

    def _call(self, event: ev.ToolCall) -> None:
        self._in_step(event)
        record = self.calls.get(event.call_id)
        if event.retries is not None:
            self._again(event, record)
        elif event.parent is not None:
            record = self._nested(event, record)
        if record is None:
            raise _illegal(event, f"call {event.call_id} was not asked for")
        if record.result is not None or (record.admitted is not None and event.retries is None):
            raise _illegal(event, f"call {event.call_id} was admitted before")
        record.admitted, record.owner, record.again = event, self._writer, event.retries is not None
        record.let_go = event.time if record.let_go is None else record.let_go
        self._touch(record, event)

    @property
    def _writer(self) -> str:
        return self.owner.owner if self.owner else ""

    def _again(self, event: ev.ToolCall, record: CallRecord | None) -> None:
        before = record.admitted if record is not None else None
        if record is None or before is None or before.seq != event.retries:
            raise _illegal(event, f"call {event.call_id} was not admitted at seq {event.retries}")
        if (event.name, event.arguments, event.parent) != (before.name, before.arguments, before.parent):
            raise _illegal(event, f"call {event.call_id} is another call than the one at seq {event.retries}")

    def _nested(self, event: ev.ToolCall, record: CallRecord | None) -> CallRecord:
        parent = self.calls.get(event.parent or "")
        if parent is None or parent.admitted is None or parent.result is not None:
            raise _illegal(event, f"parent {event.parent} is not running")
        if record is not None:
            raise _illegal(event, f"call {event.call_id} is known already")
        arguments = msgspec.json.encode(event.arguments).decode()
        nested = CallRecord(
            event.call_id, event.name, arguments, event.turn, event.step, event.seq, parent=event.parent
        )
        self.calls[event.call_id] = nested
        self.owed[event.call_id] = None
        return nested

    def _result(self, event: ev.ToolResult) -> None:
        self._in_step(event)
        record = self.calls.get(event.call_id)
        if record is None:
            raise _illegal(event, f"call {event.call_id} was not asked for")
        if record.result is not None:
            raise _illegal(event, f"call {event.call_id} has its result already (law 5)")
        children = [name for name in self.owed if self.calls[name].parent == event.call_id]
        if children:
            raise _illegal(event, f"nested calls without a result: {', '.join(children)}")
        record.result = event
        self._touch(record, event)
        del self.owed[event.call_id]

    def _summary(self, event: ev.ContextSummary) -> None:
        last = next((said.through for said in self.said if isinstance(said, ev.ContextSummary)), -1)
        at = bisect.bisect_left(self.cuts, event.through)
        if event.through <= last or at == len(self.cuts) or self.cuts[at] != event.through:
            raise _illegal(event, f"no closed step behind seq {last} ends at seq {event.through}")
        kept = [said for said in self.said if said.seq > event.through or isinstance(said, ev.Gap)]
        self.said = [event, *(said for said in kept if not isinstance(said, ev.ContextSummary))]

    def _gap(self, event: ev.Gap) -> None:
        for call in self.calls.values():
            if call.result is None or (event.since is not None and call.result.seq >= event.since):
                call.doubtful = True
        self.gaps.append(event)
        self.said.append(event)
        self._until = max(self._until, event.until)
        self._leaps = {"turn", "step", "epoch"}

    def _touch(self, call: CallRecord, event: ev.Event) -> None:
        if event.seq <= self._until:
            call.doubtful = True

    def _follows(self, what: str, number: int, expected: int) -> bool:
        """Whether a number counts on; across a gap it may leave some out (rule 8), once."""
        if number != expected and (what not in self._leaps or number < expected):
            return False
        self._leaps.discard(what)
        return True

    def _open_turn(self, event: ev.TurnEnd | ev.StepStart) -> Turn:
        if self.turn is None or self.turn.number != event.turn:
            raise _illegal(event, f"turn {event.turn} is not open")
        return self.turn

    def _in_step(self, event: Any) -> None:
        turn = self.turn
        if turn is None or turn.number != event.turn or turn.step != event.step:
            raise _illegal(event, f"turn {event.turn} step {event.step} is not open")


def _illegal(event: Any, why: str) -> IllegalEventError:
    return IllegalEventError(f"{type(event).__struct_config__.tag} (seq {event.seq}): {why}")


def _out_of_order(name: str, seq: int, expected: int) -> IllegalEventError:
    return IllegalEventError(f"{name}: seq {seq} where {expected} is next")


class Log:
    """The ordered events of one session, with its header and its fold.

    Args:
        header: the session's header.
        clock: epoch milliseconds; handed in, so that the core reads no clock.
        vocabulary: the event types that may be appended.
        entries: what is durable already.

    Raises:
        IllegalEventError: `entries` do not make a legal log.
    """

    def __init__(
        self,
        header: ev.Header,
        clock: Callable[[], int],
        vocabulary: Vocabulary,
        entries: Iterable[ev.Entry] = (),
    ) -> None:
        self.header = header
        self.vocabulary = vocabulary
        self.entries = list(entries)
        self.fold = Fold()
        self._clock = clock
        self._subscribers: list[Subscriber] = []
        self._telling = False
        for entry in self.entries:
            self.fold.take(entry)

    def __repr__(self) -> str:
        return f"<Log {self.header.session} | {self.fold.next_seq} events | {self.fold.state.value}>"

    def append(self, cls: type[E], /, *, at: int | None = None, **fields: Any) -> E:
        """Make one event and commit it to memory.

        Args:
            cls: the event's type.
            at: its time in epoch milliseconds; the clock's if left out (repair reuses the last event's time).
            fields: its fields.

        Raises:
            UndeclaredEventError: no plugin declares the type.
            IllegalEventError: the event is malformed or may not follow; nothing changed.
        """
        if cls not in self.vocabulary:
            raise UndeclaredEventError(f"{cls.type_name()}: no composed plugin declares this event type")
        if self._telling:
            raise IllegalEventError(f"{cls.type_name()}: a subscriber may not append, or others would hear it early")
        event, encoded = make(cls, self.fold.next_seq, self._clock() if at is None else at, fields)
        self.fold.apply(event)
        self.entries.append(event)
        self._telling = True
        try:
            for subscriber in self._subscribers:
                subscriber(event, len(encoded))
        finally:
            self._telling = False
        return event

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Call `subscriber(event, encoded_size)` after each append; returns what ends that. It must not append."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def events(self, start: int = 0) -> Iterator[ev.Event | ev.UnknownEvent]:
        """All events from seq `start` on, runs expanded."""
        first = bisect.bisect_left(self.entries, start, key=last_seq)
        for entry in itertools.islice(self.entries, first, None):
            if isinstance(entry, ev.ChunkRun):
                yield from (chunk for chunk in expand(entry) if chunk.seq >= start)
            else:
                yield entry
