"""The conversation: what `telling` gives, as widgets, the newest below.

Rules:
    1. All of it comes out of `session.events()`. What calls print while they run is the one thing that does not; it is
       gone when they are over.
    2. A result is shown when it is durable, not before (law 9). Text streams: nobody builds on half a sentence.
    3. What is drawn is bounded: the oldest goes when there is too much. `/show` draws all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.containers import VerticalScroll
from textual.widget import Widget
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from fencepost.apps.cli.plain import plain
from fencepost.apps.tui import telling
from fencepost.apps.tui.cards import CallCard, Card, Thought
from fencepost.apps.tui.difference import old_content
from fencepost.apps.tui.texts import bounded, content, parser
from fencepost.core import events as ev
from fencepost.journal.inspect import arguments_of
from fencepost.runtime.session import Session
from fencepost.runtime.subjects import Notice

DRAWN = 400
"""Widgets that are kept at most."""


class Transcript(VerticalScroll):
    """See the module."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._session: Session | None = None
        self._cards: dict[str, CallCard] = {}
        self._before: dict[str, str | None] = {}
        self._waiting: list[telling.Over] = []
        self._answer: Markdown | None = None
        self._stream: MarkdownStream | None = None
        self._thought: Thought | None = None
        self._endings: list[Callable[[], None]] = []

    # --- which session ------------------------------------------------------------------------------------------

    async def show(self, session: Session) -> int:
        """Show what a session says already; the seq from which `follow` goes on."""
        self._let_go()
        await self.remove_children()
        log = session.journal.log
        start, entries = log.fold.next_seq, log.entries[:]
        self._session = session
        self._endings.append(log.subscribe(self._look_before))
        self._endings.append(session.journal.on_watermark(lambda _seq: self._show_durable()))
        for item in telling.history(entries):
            await self._show(item)
        self.anchor()
        return start

    async def follow(self, session: Session, start: int) -> None:
        """Show what comes, until the session is closed."""
        async for event in session.events(start):
            if session is not self._session:
                return
            for item in telling.tell(event):
                await self._show(item)
            await self._prune()

    def _let_go(self) -> None:
        while self._endings:
            self._endings.pop()()
        for kept in (self._cards, self._before):
            kept.clear()
        self._waiting.clear()
        self._answer = self._stream = self._thought = self._session = None

    # --- events -------------------------------------------------------------------------------------------------

    async def _show(self, item: telling.Item) -> None:
        match item:
            case telling.Said():
                await self._add(Static(content(bounded(item.text)), classes="said"))
            case telling.Piece():
                await self._piece(item)
            case telling.Whole():
                await self._whole(item)
            case telling.Failed():
                await self._forget_pieces()
                await self._add(Static(content(f"… {item.why}"), classes="warning"))
            case telling.Line():
                await self._half()
                await self._add(Static(content(item.text), classes=item.tone))
            case telling.Asked():
                await self._card(item.call_id)
            case telling.LetGo():
                (await self._card(item.call_id)).run()
            case telling.Over():
                self._waiting.append(item)
                self._show_durable()

    async def _piece(self, piece: telling.Piece) -> None:
        if piece.kind == "reasoning":
            if self._thought is None:
                self._thought = Thought()
                await self._add(self._thought)
            self._thought.add(piece.text)
            return
        if self._answer is None or self._stream is None:
            self._answer = Markdown(parser_factory=parser, open_links=False, classes="answer")
            await self._add(self._answer)
            self._stream = Markdown.get_stream(self._answer)
        await self._stream.write(plain(piece.text))

    async def _whole(self, whole: telling.Whole) -> None:
        streamed = await self._end_stream()
        if whole.reasoning and self._thought is None:
            await self._add(Thought(whole.reasoning))
        elif self._thought is not None:
            self._thought.say(whole.reasoning)
        if whole.text.strip() and not streamed:
            shown = Markdown(plain(bounded(whole.text)), parser_factory=parser, open_links=False, classes="answer")
            await self._add(shown)
        if whole.interrupted:
            await self._add(Static(content("… interrupted here; the model does not see it again"), classes="warning"))
        self._answer = self._thought = None

    async def _end_stream(self) -> bool:
        """Let the stream draw what it has; whether there was one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.stop()
        return stream is not None

    async def _half(self) -> None:
        """An answer that streamed, and never became one."""
        await self._end_stream()
        self._answer = self._thought = None

    async def _forget_pieces(self) -> None:
        await self._end_stream()
        for widget in (self._answer, self._thought):
            if widget is not None:
                await widget.remove()
        self._answer = self._thought = None

    # --- calls --------------------------------------------------------------------------------------------------

    async def _card(self, call_id: str) -> CallCard:
        card = self._cards.get(call_id)
        if card is None:
            assert self._session is not None
            record = self._session.journal.log.fold.calls[call_id]
            card = self._cards[call_id] = CallCard(record, self._before.pop(call_id, None))
            await self._add(card)
        return card

    def _look_before(self, event: ev.Event, _size: int) -> None:
        """Look at the files that calls are about to write whole, before they are let go: it is appended just now."""
        if not isinstance(event, ev.AssistantMessage) or self._session is None:
            return
        log = self._session.journal.log
        for call in ev.calls_of(event):
            arguments: Any = arguments_of(log.fold.calls[call.call_id])
            if isinstance(arguments, dict):
                self._before[call.call_id] = old_content(call.name, arguments, Path(log.header.cwd))

    def _show_durable(self) -> None:
        """Show the results that are on disk by now."""
        if self._session is None:
            return
        journal = self._session.journal
        for item in [item for item in self._waiting if item.seq <= journal.watermark]:
            self._waiting.remove(item)
            card, record = self._cards.get(item.call_id), journal.log.fold.calls[item.call_id]
            if card is not None and record.result is not None:
                card.over(record.result)

    def hear(self, notice: Notice) -> None:
        """What a call prints, or somebody has to say."""
        card = self._cards.get(notice.call_id)
        if notice.kind == "progress" and card is not None:
            card.print(notice.text)
        elif notice.kind != "progress" or not notice.call_id:
            self.say(notice.text, "bad" if notice.kind == "not_saved" else "quiet")

    # --- widgets ------------------------------------------------------------------------------------------------

    def say(self, text: str, tone: telling.Tone = "quiet") -> None:
        """A line of fencepost's own that the log does not have: an answer to what was typed."""
        self.mount(Static(content(text), classes=tone))

    def fold_all(self) -> None:
        """Unfold every card; if all are, fold them."""
        cards = list(self.query(Card))
        folded = not any(card.folded for card in cards)
        for card in cards:
            card.fold(folded=folded)

    async def _add(self, widget: Widget) -> None:
        await self.mount(widget)

    async def _prune(self) -> None:
        extra = len(self.children) - DRAWN
        if extra <= 0:
            return
        for widget in self.children[: extra + DRAWN // 8]:
            if isinstance(widget, CallCard):
                self._cards.pop(widget.call_id, None)
            await widget.remove()
        await asyncio.sleep(0)
