"""Looking at a stored session: its state, and a verdict for every call. Reads only (law 7).

damaged       durable bytes are not whole, or an event stands where it may not; nothing beyond is "not started"
unsupported   written by a newer fencepost, or by a plugin that is not composed here
running       another live process owns it
interrupted   a turn is open and its owner is gone; the verdicts are those that repair will write
clean         nothing is open

The first that fits. Whatever the state: while an owner lives, a call without a result is `running`, for no verdict is
given yet (law 8).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.core.codec import CORE, NotARecordError, Vocabulary, last_seq, refusal
from fencepost.core.lifecycle import State
from fencepost.core.log import CallRecord, Fold
from fencepost.core.verdict import Evidence, Verdict, verdict_of
from fencepost.errors import FencepostError, IllegalEventError, SessionNotFoundError
from fencepost.journal.session import off_loop
from fencepost.stores.base import Owner, Store, StoredLog

SessionState: TypeAlias = Literal["clean", "interrupted", "running", "damaged", "unsupported"]

TITLE = 72
"""Characters of a title at most."""


class CallView(msgspec.Struct, frozen=True):
    """One call and its verdict."""

    call_id: str
    name: str
    arguments: ev.Json
    turn: int
    step: int
    effect: ev.Effect | None
    verdict: Verdict
    code: str
    settled_by: str = ""
    """The tool that said, or would say, what had really happened."""
    evidence: str = ""
    """What it saw."""


class PendingInput(msgspec.Struct, frozen=True):
    """A prompt that was acknowledged and has not run."""

    input_id: str
    text: str


class Inspection(msgspec.Struct, frozen=True):
    """What one look at a session tells. The fields are fixed for programs (issue 2, section 4)."""

    session: str
    state: SessionState
    events: int
    watermark: int
    tail_bytes: int
    gates: tuple[ev.Gate, ...]
    owner: Owner | None
    problem: str | None
    pending_inputs: tuple[PendingInput, ...]
    calls: tuple[CallView, ...]


class SessionRow(msgspec.Struct, frozen=True):
    """One line of a listing."""

    session: str
    state: SessionState
    created: int | None
    updated: int
    title: str
    turns: int
    unknown: int
    cwd: str = ""
    """The working directory; empty where the header cannot be read."""


class Reading(msgspec.Struct, frozen=True):
    """A stored log, folded as far as it goes.

    Attributes:
        stored: what was read.
        fold: over the intact prefix.
        broken: why the fold stopped early, or None.
        unknown: why the log may not be continued with the events that are declared here, or None.
        evidence: the store's, and that something is missing behind the intact prefix, where that is so.
        beyond: whole events on the far side of the first damage, or of where the fold stopped.
    """

    stored: StoredLog
    fold: Fold
    broken: str | None
    unknown: str | None
    evidence: Evidence
    beyond: tuple[ev.Entry, ...]


def fold_stored(stored: StoredLog, vocabulary: Vocabulary = CORE) -> Reading:
    """Fold a stored log; never raises, whatever is in it."""
    fold, unknown = Fold(), None
    for index, stored_entry in enumerate(stored.entries):
        entry = stored_entry
        try:
            if type(entry) is ev.UnknownEvent:
                (entry,) = vocabulary.know((entry,))  # a composed plugin may declare what the store did not know
                unknown = unknown or refusal((entry,))
            fold.take(entry)
        except (IllegalEventError, NotARecordError) as error:
            rest = tuple(stored.entries[index:]) + tuple(stored.beyond)
            return Reading(stored, fold, str(error), unknown, _blinded(stored, fold), rest)
    evidence = _blinded(stored, fold) if stored.damage else stored.evidence
    return Reading(stored, fold, None, unknown, evidence, tuple(stored.beyond))


def _blinded(stored: StoredLog, fold: Fold) -> Evidence:
    """What is missing behind the intact prefix may have held the `tool/call` of any call (law 2)."""
    return stored.evidence.joined(Evidence(blind_at=(fold.next_seq,)))


def state_of(reading: Reading) -> tuple[SessionState, str | None]:
    """The session's state, and the problem in a sentence where there is one."""
    stored = reading.stored
    if stored.damage:
        first = stored.damage[0]
        more = f" (and {len(stored.damage) - 1} more places)" if len(stored.damage) > 1 else ""
        return "damaged", f"at {first.where}: {first.reason}{more}"
    if stored.refusal is not None:
        return "unsupported", stored.refusal
    if stored.header is None:
        return "damaged", "its header cannot be read"
    if reading.broken is not None:
        return "damaged", f"an event stands where it may not: {reading.broken}"
    if reading.unknown is not None:
        return "unsupported", reading.unknown
    if stored.owner is not None:
        return "running", None
    tail = f"{stored.tail_bytes} torn bytes at the end" if stored.tail_bytes else None
    if reading.fold.state is not State.IDLE:
        return "interrupted", tail
    return "clean", tail


async def inspect(store: Store, session: str, vocabulary: Vocabulary = CORE) -> Inspection:
    """Look at one session.

    Raises:
        SessionNotFoundError: there is none.
        PermissionDeniedError, MediumError: it cannot be read.
    """
    stored = await store.read(session)
    return await off_loop(len(stored.entries), lambda: examine(fold_stored(stored, vocabulary)))


def examine(reading: Reading) -> Inspection:
    """The inspection of a session that was read."""
    stored, fold = reading.stored, reading.fold
    state, problem = state_of(reading)
    records = calls_beyond(fold.calls, (*unwrapped(fold.salvaged), *reading.beyond), second_line(reading))
    return Inspection(
        session=stored.session,
        state=state,
        events=_count(stored),
        watermark=stored.watermark,
        tail_bytes=stored.tail_bytes,
        gates=fold.turn.gates if fold.turn else (),
        owner=stored.owner,
        problem=problem,
        pending_inputs=pending_inputs(fold),
        calls=tuple(_view(record, reading) for record in records),
    )


def _count(stored: StoredLog) -> int:
    return last_seq(stored.entries[-1]) + 1 if stored.entries else 0


def pending_inputs(fold: Fold) -> tuple[PendingInput, ...]:
    """The prompts that were acknowledged and have not run, in their order."""
    return tuple(PendingInput(item.input_id, ev.text_of(item.content)) for item in fold.pending.values())


def arguments_of(record: CallRecord) -> ev.Json:
    """The arguments of a call: as they were let go, else as the model wrote them; its text where that is no JSON."""
    if record.admitted is not None:
        return record.admitted.arguments
    try:
        given: ev.Json = msgspec.json.decode(record.arguments or "{}")
    except (msgspec.DecodeError, UnicodeError):
        return record.arguments
    return given


def _declared_effect(fold: Fold, name: str) -> ev.Effect | None:
    """What the tool declared when it was last offered to the model; None for a tool that never was."""
    offered = fold.header.tools if fold.header else ()
    return next((spec.effect for spec in offered if spec.name == name), None)


def _view(record: CallRecord, reading: Reading) -> CallView:
    turn = reading.fold.turns.get(record.turn)
    verdict = verdict_of(record, turn.gates if turn else (), reading.evidence)
    running = reading.stored.owner is not None and record.result is None
    return CallView(
        call_id=record.call_id,
        name=record.name,
        arguments=arguments_of(record),
        turn=record.turn,
        step=record.step,
        effect=record.admitted.effect if record.admitted else _declared_effect(reading.fold, record.name),
        verdict="running" if running else verdict.verdict,
        code="" if running else verdict.code,
        settled_by=verdict.settled_by,
        evidence=verdict.evidence,
    )


def unwrapped(salvaged: Iterable[ev.Salvaged]) -> Iterator[ev.Entry]:
    """The records that salvage could not put into their place, as what they were."""
    for event in salvaged:
        with contextlib.suppress(NotARecordError):  # of a plugin's type that is not whole: nothing about a call
            yield CORE.decode(event.original.encode())


def second_line(reading: Reading) -> int | None:
    """The seq in front of which another line of events leaves the intact prefix; None where there is none."""
    first = min((entry.seq for entry in reading.beyond), default=reading.fold.next_seq)
    return first if first < reading.fold.next_seq else None


def calls_beyond(
    known: dict[str, CallRecord], beyond: Iterable[ev.Entry], since: int | None = None
) -> list[CallRecord]:
    """The calls of the intact prefix, completed and extended by what whole events on the far side of damage say.

    Those events are facts all the same: a result there is a result. What they cannot do is prove an absence, so every
    call that they speak of is doubtful, and with two lines of events every call that both may speak of.
    """
    records = {name: msgspec.structs.replace(record) for name, record in known.items()}
    for record in records.values():
        if since is not None and record.result is not None and record.result.seq >= since:
            record.doubtful = True
    for event in beyond:
        if isinstance(event, ev.AssistantMessage):
            for call in ev.calls_of(event):
                records.setdefault(
                    call.call_id,
                    CallRecord(call.call_id, call.name, call.arguments, event.turn, event.step, -1),
                ).doubtful = True
        elif isinstance(event, ev.ToolCall):
            text = msgspec.json.encode(event.arguments).decode()
            record = records.setdefault(
                event.call_id, CallRecord(event.call_id, event.name, text, event.turn, event.step, -1)
            )
            record.admitted = event
            record.doubtful = True
        elif isinstance(event, ev.ToolResult):
            record = records.setdefault(event.call_id, CallRecord(event.call_id, "", "", event.turn, event.step, -1))
            record.result = record.result or event
            record.doubtful = True
    return list(records.values())


async def rows(store: Store, vocabulary: Vocabulary = CORE) -> list[SessionRow]:
    """All sessions, the latest first. A broken one is a marked row, never the end of the list."""
    found = [await _row(store, session, vocabulary) for session in await store.sessions()]
    return sorted((row for row in found if row), key=lambda row: (row.updated, row.session), reverse=True)


def unreadable(session: str, error: FencepostError) -> SessionRow:
    """The row of a log that cannot be read: marked, never the end of the list."""
    why = f"({error})".encode(errors="backslashreplace").decode()  # it may name a path that is no Unicode
    return SessionRow(session, "damaged", None, 0, why, 0, 0)


async def _row(store: Store, session: str, vocabulary: Vocabulary) -> SessionRow | None:
    try:
        stored = await store.read(session)
    except SessionNotFoundError:
        return None  # gone since it was listed
    except FencepostError as error:
        return unreadable(session, error)
    return await off_loop(len(stored.entries), lambda: row_of(fold_stored(stored, vocabulary)))


def row_of(reading: Reading) -> SessionRow:
    """The row of a session that was read."""
    stored, view = reading.stored, examine(reading)
    return SessionRow(
        session=stored.session,
        state=view.state,
        created=stored.header.created if stored.header else None,
        updated=stored.updated,
        title=title_of(stored.entries),
        turns=len(reading.fold.turns),
        unknown=sum(call.verdict == "outcome_unknown" for call in view.calls),
        cwd=stored.header.cwd if stored.header else "",
    )


def title_of(entries: Iterable[ev.Entry]) -> str:
    """The first prompt of a session, on one line."""
    for entry in entries:
        if isinstance(entry, ev.InputQueued):
            text = " ".join(ev.text_of(entry.content).split())
            return text if len(text) <= TITLE else text[: TITLE - 1] + "…"
    return ""
