"""A live session for people. On a terminal: text as it streams, calls, progress, results. Piped: the answer alone.

Rules:
    1. A result is shown when it is durable, not before (law 9); text streams, for nobody builds on half a sentence.
    2. What decorates goes to standard output only if that is a terminal, else to standard error if that is one, else
       nowhere. Sentences about saving and errors always go to standard error.
    3. Text from models and tools is made safe for a terminal; the answer that is piped is not touched.
"""

from __future__ import annotations

import asyncio
import os

from fencepost.apps.cli.outlet import Outlet
from fencepost.apps.cli.plain import arguments_line, one_line, plain
from fencepost.apps.cli.views import Opening, Outcome
from fencepost.core import events as ev
from fencepost.runtime.session import Session
from fencepost.runtime.subjects import Notice

RESULT = 68
"""Characters of a result that are shown."""

DIM, RED, BOLD, GREEN, YELLOW = "2", "1;31", "1", "32", "33"


class Screen:
    """One descriptor and how it wants its text: coloured or not, on a fresh line or not.

    Args:
        out: where the text goes.
        fd: the same, to ask what it is.
    """

    def __init__(self, out: Outlet, fd: int) -> None:
        self._out = out
        self.terminal = os.isatty(fd)
        self._colour = self.terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._fresh = True

    def text(self, text: str, style: str = "") -> None:
        """Go on where the last text ended."""
        if text:
            self._out.put(self._dressed(plain(text), style).encode(errors="replace"))
            self._fresh = text.endswith("\n")

    def line(self, text: str, style: str = "") -> None:
        """A line of its own."""
        self.fresh()
        self._out.put(f"{self._dressed(plain(text), style)}\n".encode(errors="replace"))

    def fresh(self) -> None:
        """End the line that is open."""
        if not self._fresh:
            self._out.put(b"\n")
            self._fresh = True

    def raw(self, text: str) -> None:
        """Text for a program: untouched."""
        self._out.put(text.encode(errors="replace"))

    def _dressed(self, text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if style and self._colour else text


class TextView:
    """See the module.

    Args:
        out: standard output.
        err: standard error.
    """

    def __init__(self, out: Screen, err: Screen) -> None:
        self._out = out
        self._err = err
        self._stage = out if out.terminal else err if err.terminal else None
        self._names: dict[str, str] = {}
        self._streamed = False
        self._kind = "text"

    def opened(self, opening: Opening) -> None:
        """Name the session, so that it can be found again whatever happens next."""
        self._err.line(f"session {opening.session}", DIM)
        if not opening.guarantees.durable:
            self._err.line(f"NOT SAVED: {opening.store} store, nothing survives this process", RED)
        missing = {"step", "request", "tool"}.difference(opening.guarantees.gates)
        if missing and opening.model is not None:
            names = ", ".join(sorted(missing))
            self._err.line(f"no {names} gate: after a crash, calls without a result are unknown", YELLOW)

    async def follow(self, session: Session, start: int) -> None:
        """Show events as they come, and results as they become durable."""
        results = asyncio.create_task(self._results(session, start))
        async for event in session.events(start):
            self._show(event)
        await results
        if self._stage is not None:
            self._stage.fresh()

    async def _results(self, session: Session, start: int) -> None:
        async for event in session.events(start, durable=True):
            if isinstance(event, ev.ToolResult):
                self._result(event)

    def _show(self, event: ev.Event | ev.UnknownEvent) -> None:
        stage = self._stage
        if isinstance(event, ev.AssistantMessage):
            self._names.update((call.call_id, call.name) for call in ev.calls_of(event))
        if stage is None:
            return
        if isinstance(event, ev.AssistantChunk):
            if event.kind != self._kind:
                stage.fresh()
                self._kind = event.kind
            self._streamed = self._streamed or event.kind == "text"
            stage.text(event.delta, DIM if event.kind == "reasoning" else "")
        elif isinstance(event, ev.AssistantMessage):
            if not self._streamed and not event.interrupted:
                stage.text(ev.text_of(event.content))
            self._streamed = False
            stage.fresh()
        elif isinstance(event, ev.ToolCall):
            stage.line(f"→ {event.name}  {arguments_line(event.arguments, RESULT)}", BOLD)
        elif isinstance(event, ev.ContextSummary):
            stage.line(f"… the conversation up to seq {event.through} was summed up", DIM)
        elif isinstance(event, ev.RequestRetry):
            self._streamed = False
            stage.line(f"… {event.code}: {event.message}; again in {event.delay_ms / 1000:.1f} s", YELLOW)

    def _result(self, event: ev.ToolResult) -> None:
        if self._stage is None:
            return
        text = one_line(ev.text_of(event.content), RESULT)
        if not event.is_error:
            self._stage.line(f"  ✓ {text or 'done'}", GREEN)
            return
        name = self._names.get(event.call_id, event.call_id)
        self._stage.line(f"  ✗ {name} {event.code}: {text}", YELLOW)

    def notice(self, notice: Notice) -> None:
        """Progress where it decorates; whether the session is saved, always."""
        if notice.kind == "not_saved":
            self._err.line(f"NOT SAVED: {notice.text}", RED)
        elif notice.kind == "saved":
            self._err.line(notice.text, GREEN)
        elif self._stage is not None:
            for line in notice.text.splitlines():
                self._stage.line(f"  │ {line}", DIM)

    def say(self, sentence: str) -> None:
        """To standard error."""
        self._err.line(sentence)

    def ended(self, outcome: Outcome) -> None:
        """The answer, where nobody saw it stream; and how it ended, where that is not well."""
        if not self._out.terminal and outcome.text and outcome.reason in {"completed", "max_tokens"}:
            self._out.raw(outcome.text if outcome.text.endswith("\n") else outcome.text + "\n")
        if outcome.reason in {"completed", "resumed"}:
            return
        said = ": ".join(part for part in (outcome.code, outcome.message) if part)
        self._err.line(f"fencepost: the turn ended, {outcome.reason}" + (f" ({said})" if said else ""), RED)


def screens(out: Outlet, err: Outlet) -> tuple[Screen, Screen]:
    """Standard output and standard error as screens."""
    return Screen(out, 1), Screen(err, 2)
