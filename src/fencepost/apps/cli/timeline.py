"""A session drawn as rows: turns, steps, messages, calls with their verdicts, gates, and where the watermark stood.

A fold over the stored log, like everything else; it decides nothing. What is missing or torn is a row too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fencepost.apps.cli.lines import gaps, intact
from fencepost.apps.cli.plain import arguments_line, one_line
from fencepost.core import events as ev
from fencepost.core.codec import encode, last_seq
from fencepost.journal.inspect import CallView, Reading, examine

WIDTH = 60
"""Characters of a text that are shown in a row."""

NARROW = 40
"""Characters of arguments, which share their row with more."""


class Row(msgspec.Struct, frozen=True):
    """One row.

    Attributes:
        seq: of the event; None for a row that stands for no event.
        depth: 0 session, 1 turn, 2 step, 3 call.
        text: what happened.
        gate: the gate that it stands behind, or that stands behind it.
        verdict: on the call that the row is about.
        marked: worth a look: interrupted, failed, missing.
        turn: the turn that it stands in, or behind; 0 before the first.
    """

    seq: int | None
    depth: int
    text: str
    gate: str = ""
    verdict: str = ""
    marked: bool = False
    turn: int = 0


def timeline(reading: Reading) -> list[Row]:
    """The rows of a session, damaged ones included."""
    everything = (*reading.stored.entries, *reading.stored.beyond)
    admitted = frozenset(entry.call_id for entry in everything if isinstance(entry, ev.ToolCall))
    draw = _Drawing({call.call_id: call for call in examine(reading).calls}, admitted)
    watermark = reading.stored.watermark
    if watermark < 0:
        draw.mark("— nothing was acknowledged —")
    drawn = watermark < 0
    for entry in intact(reading):
        draw.entry(entry)
        if not drawn and last_seq(entry) >= watermark:
            draw.half_answer()
            draw.mark(f"— durable up to seq {watermark} —")
            drawn = True
    draw.half_answer()
    for gap in gaps(reading):
        where = "" if gap.offset is None else f" at {gap.unit} {gap.offset}"
        draw.mark(f"═══ damaged{where}: {gap.reason} ═══", marked=True)
    draw.beyond(reading)
    if reading.stored.tail_bytes:
        draw.mark(f"— {reading.stored.tail_bytes} torn bytes at the end, no event —", marked=True)
    return draw.rows


class _Drawing:
    """The rows so far, and what later rows need to know of earlier events."""

    def __init__(self, calls: dict[str, CallView], admitted: frozenset[str]) -> None:
        self.rows: list[Row] = []
        self._calls = calls
        self._admitted = admitted
        self._gates: tuple[ev.Gate, ...] = ()
        self._half: list[str] = []
        self._half_seq: int | None = None
        self._awaited = False
        self._turn = 0
        self._draw: dict[type[Any], Callable[[Any], None]] = {
            ev.SessionOwner: self._owner,
            ev.InputQueued: lambda e: self._row(e, 0, f"prompt  {_text(e.content)}"),
            ev.InputDropped: lambda e: self._row(e, 0, f"prompt {e.input_id} dropped: {e.reason}"),
            ev.TurnStart: self._turn_start,
            ev.TurnEnd: self._turn_end,
            ev.StepStart: self._step_start,
            ev.StepEnd: self._step_end,
            ev.UserMessage: lambda e: self._row(e, 2, f"{e.source}  {_text(e.content)}"),
            ev.RequestHeader: self._header,
            ev.RequestRetry: self._retry,
            ev.AssistantChunk: lambda e: self._chunks(e.seq, e.kind, [e.delta]),
            ev.ChunkRun: lambda e: self._chunks(e.seq, e.kind, e.deltas),
            ev.AssistantMessage: self._answer,
            ev.ApprovalAsked: lambda e: self._row(e, 3, f"asked: {one_line(e.question, WIDTH)}"),
            ev.ApprovalDecided: self._decided,
            ev.ToolCall: self._call,
            ev.ToolResult: self._result,
            ev.ContextSummary: self._summary,
            ev.ToolNote: lambda e: self._row(e, 3, f"note  {one_line(e.text, WIDTH)}"),
            ev.Gap: self._gap,
            ev.Salvaged: lambda e: self._row(e, 3, f"salvaged  {one_line(e.original, WIDTH)}", marked=True),
            ev.UnknownEvent: lambda e: self._row(e, 0, f"{e.type}  {one_line(e.raw.decode(), WIDTH)}"),
        }

    def beyond(self, reading: Reading) -> None:
        """Draw what stands behind damage; where seqs step back, another writer's line begins."""
        last = reading.fold.next_seq - 1
        for entry in reading.beyond:
            if entry.seq <= last:
                self.half_answer()
                self.mark(f"═══ another line of events, from seq {entry.seq} on ═══", marked=True)
            self.entry(entry)
            last = last_seq(entry)
        self.half_answer()

    def entry(self, entry: ev.Entry) -> None:
        """Draw one entry; one of a plugin's type as its bytes."""
        draw = self._draw.get(type(entry))
        if draw is None:
            self._row(entry, 0, one_line(encode(entry).decode(errors="replace"), WIDTH))
        else:
            draw(entry)

    def mark(self, text: str, *, marked: bool = False) -> None:
        """A row that stands for no event."""
        self.rows.append(Row(None, 0, text, marked=marked, turn=self._turn))

    def half_answer(self) -> None:
        """Text that streamed and never became an answer."""
        if self._half:
            text = one_line("".join(self._half), WIDTH)
            gate = self._request_gate()
            half = f"model  {text} *interrupted*"
            self.rows.append(Row(self._half_seq, 2, half, gate, marked=True, turn=self._turn))
        self._half, self._half_seq = [], None

    def _row(self, event: Any, depth: int, text: str, **more: Any) -> None:
        self.rows.append(Row(event.seq, depth, text, turn=self._turn, **more))

    def _gate(self, gate: ev.Gate) -> str:
        return f"{gate} gate" if gate in self._gates else ""

    def _request_gate(self) -> str:
        """Named once in a step: at the first sign that the request left."""
        first, self._awaited = self._awaited, False
        return self._gate("request") if first else ""

    def _verdict(self, call_id: str) -> str:
        view = self._calls.get(call_id)
        return view.verdict if view is not None else ""

    # --- one event each -----------------------------------------------------------------------------------------

    def _owner(self, event: ev.SessionOwner) -> None:
        aside = f", {event.set_aside} torn bytes set aside" if event.set_aside else ""
        what = "takes over" if event.resumed else "begins"
        self._row(event, 0, f"owner {event.owner} {what} (epoch {event.epoch}{aside})", marked=bool(aside))

    def _turn_start(self, event: ev.TurnStart) -> None:
        self._gates = event.gates
        self._turn = event.turn
        on = f", goes on with turn {event.continues}" if event.continues is not None else ""
        gates = ", ".join(event.gates) or "none"
        self._row(event, 1, f"turn {event.turn}{on}  gates: {gates} ({event.policy})", marked="tool" not in event.gates)

    def _turn_end(self, event: ev.TurnEnd) -> None:
        self.half_answer()
        why = f" {event.code}: {one_line(event.message, WIDTH)}" if event.code else ""
        by = " (written by repair)" if event.synthetic else ""
        text = f"turn {event.turn} ends: {event.reason}{why}{by}"
        self._row(event, 1, text, gate=self._gate("closing"), marked=event.reason != "completed")

    def _step_start(self, event: ev.StepStart) -> None:
        self._awaited = True
        self._row(event, 2, f"step {event.step}", gate=self._gate("step"))

    def _step_end(self, event: ev.StepEnd) -> None:
        self.half_answer()
        if event.synthetic:
            self._row(event, 2, f"step {event.step} ends (written by repair)", marked=True)

    def _header(self, event: ev.RequestHeader) -> None:
        self._row(event, 2, f"request to {event.provider}:{event.model}, {len(event.tools)} tools ({event.reason})")

    def _retry(self, event: ev.RequestRetry) -> None:
        self.half_answer()
        wait = f"again in {event.delay_ms / 1000:.1f} s"
        text = f"attempt {event.attempt} failed, {event.code}: {one_line(event.message, WIDTH)}; {wait}"
        self._row(event, 2, text, gate=self._request_gate(), marked=True)
        self._awaited = True

    def _chunks(self, seq: int, kind: str, deltas: list[str]) -> None:
        if kind == "text":
            self._half_seq = seq if self._half_seq is None else self._half_seq
            self._half.extend(deltas)

    def _answer(self, event: ev.AssistantMessage) -> None:
        self._half, self._half_seq = [], None
        finish = "" if event.finish in {"stop", "tool_calls"} else f" ({event.finish})"
        mark = " *interrupted*" if event.interrupted else ""
        text = f"model  {_text(event.content)}{finish}{mark}".rstrip()
        self._row(event, 2, text, gate=self._request_gate(), marked=bool(finish or mark))
        for call in ev.calls_of(event):
            asked = f"asks for {call.name}  {one_line(call.arguments, NARROW)}  [{call.call_id}]"
            self._row(event, 3, asked, verdict="" if call.call_id in self._admitted else self._verdict(call.call_id))

    def _summary(self, event: ev.ContextSummary) -> None:
        self._row(event, 1, f"summary of all up to seq {event.through}, by {event.model}  {_text(event.content)}")

    def _gap(self, event: ev.Gap) -> None:
        self.half_answer()
        lost = (
            ""
            if event.lost_from is None
            else f", events {event.lost_from} to {'?' if event.lost_to is None else event.lost_to} of it are missing"
        )
        self._row(event, 0, f"═══ gap: {one_line(event.reason, WIDTH)}{lost} ═══", marked=True)

    def _decided(self, event: ev.ApprovalDecided) -> None:
        said = "allowed" if event.allowed else "denied"
        always = _always(event) if event.remember else ""
        self._row(event, 3, f"{said} by {event.by}{always}", marked=not event.allowed)

    def _call(self, event: ev.ToolCall) -> None:
        inside = f" inside {event.parent}" if event.parent else ""
        again = f" again (as seq {event.retries})" if event.retries is not None else ""
        shown = f"{arguments_line(event.arguments, NARROW)}  [{event.call_id}]"
        text = f"call {event.name}{again}  {shown}{inside} {event.effect}"
        self._row(event, 3, text, gate=self._gate("tool"), verdict=self._verdict(event.call_id))

    def _result(self, event: ev.ToolResult) -> None:
        source = "written by repair" if event.synthetic else event.settled_by and f"settled by {event.settled_by}"
        saw = f": {one_line(event.evidence, NARROW)}" if event.evidence else ""
        by = f" ({source}{saw})" if source else ""
        sign = f"✗ {event.code}" if event.is_error else "✓"
        text = f"result {sign}  {_text(event.content)}{by}  [{event.call_id}]"
        self._row(event, 3, text, marked=event.is_error)


def _always(event: ev.ApprovalDecided) -> str:
    what = one_line(event.pattern, NARROW) if event.pattern else "this call" if event.scope == "call" else "this tool"
    return f", always ({what})"


def _text(content: tuple[ev.Block, ...] | tuple[ev.Text, ...]) -> str:
    return one_line(ev.text_of(content), WIDTH)
