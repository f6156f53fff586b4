"""The session picker: any number of rows, of which only those on the screen are drawn.

The first page is asked for first; the rest arrives behind it. Typing filters.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.geometry import Size
from textual.reactive import reactive
from textual.screen import ModalScreen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input, Static

from fencepost.apps.cli import paper
from fencepost.apps.cli.plain import one_line
from fencepost.apps.tui.texts import content
from fencepost.journal.inspect import SessionRow

PAGE = 100
"""Rows that are asked for first."""

Rows = Callable[[int | None], Awaitable[list[SessionRow]]]


class SessionList(ScrollView):
    """The rows, and which one is meant."""

    at: reactive[int] = reactive(0)

    def __init__(self) -> None:
        super().__init__(id="rows")
        self.rows: Sequence[SessionRow] = ()
        self.can_focus = False
        self._now = paper.now_ms()

    def show(self, rows: Sequence[SessionRow]) -> None:
        """Show these."""
        self.rows = rows
        self.virtual_size = Size(self.size.width, len(rows))
        self.at = min(self.at, max(len(rows) - 1, 0))
        self.refresh()

    def move(self, by: int) -> None:
        """Mean another one."""
        self.at = min(max(self.at + by, 0), max(len(self.rows) - 1, 0))
        top = int(self.scroll_y)
        if self.at < top or self.at >= top + self.size.height:
            self.scroll_to(y=self.at if self.at < top else self.at - self.size.height + 1, animate=False)
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the screen."""
        index = y + int(self.scroll_offset.y)
        width = self.size.width
        if index >= len(self.rows):
            return Strip.blank(width, self.rich_style)
        row, meant = self.rows[index], index == self.at
        unknown = f"{row.unknown} unknown: " if row.unknown else ""
        left = f"{'>' if meant else ' '} {paper.ago(row.updated, self._now):>10}  {row.state:<11} "
        title = one_line(row.title, 200) or "(nothing said yet)"
        text = f"{left}{unknown}{title}  {one_line(row.session, 60)}"
        style = self.rich_style + Style(reverse=meant)
        return Strip([Segment(text, style)]).adjust_cell_length(width, style)


class Picker(ModalScreen[str | None]):
    """Choose a session; gives its id, or None.

    Args:
        rows: gives the sessions of the store, the latest first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "none", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("down", "move(1)", show=False, priority=True),
        Binding("pageup", "move(-10)", show=False, priority=True),
        Binding("pagedown", "move(10)", show=False, priority=True),
        Binding("ctrl+home", "move(-1000000000)", show=False, priority=True),
        Binding("ctrl+end", "move(1000000000)", show=False, priority=True),
    ]

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self._rows = rows
        self.found: list[SessionRow] = []

    def compose(self) -> ComposeResult:
        """Filter, rows, how many."""
        with Vertical(classes="dialog tall"):
            yield Input(placeholder="type to filter · ↑↓ Enter · Esc", id="filter")
            yield SessionList()
            yield Static(content("reading …"), id="count", classes="quiet")

    def on_mount(self) -> None:
        """Ask for the rows."""
        self.query_one(Input).focus()
        self.run_worker(self._read(), name="sessions")

    async def _read(self) -> None:
        first = await self._rows(PAGE)
        self._take(first, more=len(first) == PAGE)
        if len(first) == PAGE:
            self._take(await self._rows(None), more=False)

    def _take(self, rows: list[SessionRow], *, more: bool) -> None:
        self.found = rows
        self._filter(more=more)

    def _filter(self, *, more: bool = False) -> None:
        words = self.query_one(Input).value.lower().split()
        shown = [row for row in self.found if all(word in _searched(row) for word in words)] if words else self.found
        self.query_one(SessionList).show(shown)
        count = f"{len(shown)} of {len(self.found)} sessions" + (", reading the rest …" if more else "")
        self.query_one("#count", Static).update(content(count))

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another filter."""
        event.stop()
        if self.found:
            self._filter()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """That one."""
        event.stop()
        listed = self.query_one(SessionList)
        self.dismiss(listed.rows[listed.at].session if listed.rows else None)

    def action_move(self, by: int) -> None:
        """Another row."""
        self.query_one(SessionList).move(by)

    def action_none(self) -> None:
        """None of them."""
        self.dismiss(None)


def _searched(row: SessionRow) -> str:
    return f"{row.session} {row.title} {row.state} {row.cwd}".lower()
