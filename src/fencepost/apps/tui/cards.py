"""What folds: a call with its arguments, difference, output and result; and what the model thought.

A card is one line when it is folded, and says in words, not only in colour, how the call stands.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.widgets import Static

from fencepost.apps.cli.plain import arguments_line, one_line
from fencepost.apps.tui.difference import changed_lines, counted
from fencepost.apps.tui.texts import bounded, content
from fencepost.core import events as ev
from fencepost.core.calls import CallRecord
from fencepost.core.verdict import NOT_ENTERED, TOOL_OUTCOME_UNKNOWN
from fencepost.journal.inspect import arguments_of

TAIL = 12
"""Lines of the output of a running call that are shown."""
OPEN = 16
"""Lines of a difference up to which a card stays unfolded."""


class Card(Vertical, can_focus=True):
    """A line that folds and unfolds what is below it.

    Args:
        title: of the line.
        folded: whether it begins folded.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter,space", "fold", "fold", show=False)]

    def __init__(self, title: str, *, folded: bool, classes: str = "") -> None:
        super().__init__(classes=f"card {classes}")
        self._title = title
        self._style = ""
        self._head = Static(classes="head")
        self._body = Vertical(classes="body")
        self.folded = folded

    def compose(self) -> ComposeResult:
        """The line, and what is below it."""
        yield self._head
        with self._body:
            yield from self.below()

    def below(self) -> ComposeResult:
        """What is below the line."""
        yield from ()

    def on_mount(self) -> None:
        """Begin. (Textual calls this for each class of the family, so no other one has it.)"""
        self.fold(folded=self.folded)
        self.begin()

    def begin(self) -> None:
        """Show what is known."""

    def fold(self, *, folded: bool) -> None:
        """Fold or unfold."""
        self.folded = folded
        self._body.display = not folded
        self._draw()

    def action_fold(self) -> None:
        """Fold, or unfold."""
        self.fold(folded=not self.folded)

    def on_click(self, event: Click) -> None:
        """A click on the line folds, too."""
        if event.widget is self._head:
            self.action_fold()

    def retitle(self, title: str, style: str = "") -> None:
        """Say something else on the line."""
        self._title, self._style = title, style
        self._draw()

    def _draw(self) -> None:
        self._head.update(content(f"{'▸' if self.folded else '▾'} {self._title}", self._style))


class Thought(Card):
    """What the model thought."""

    def __init__(self, text: str = "") -> None:
        super().__init__("thought", folded=True, classes="thought")
        self._text = text
        self._shown = Static(classes="quiet")

    def below(self) -> ComposeResult:
        """The thought."""
        yield self._shown

    def begin(self) -> None:
        """Show what is known of it."""
        self.say(self._text)

    def add(self, piece: str) -> None:
        """It goes on."""
        self.say(self._text + piece)

    def say(self, text: str) -> None:
        """All of it."""
        self._text = text
        self.retitle(f"thought  {one_line(text[:400], 60)}")
        self._shown.update(content(bounded(text)))


class CallCard(Card):
    """A call.

    Args:
        record: what the log says of it.
        before: the old content of a file that it writes whole, where that is known.
    """

    def __init__(self, record: CallRecord, before: str | None) -> None:
        super().__init__(record.name, folded=True, classes="call nested" if record.parent else "call")
        self.call_id = record.call_id
        self._record = record
        self._arguments = arguments_of(record)
        known = self._arguments if isinstance(self._arguments, dict) else {}
        self._changes = changed_lines(record.name, known, before)
        self._output = ""
        self._live = Static(classes="output")
        self._result = Static(classes="result")

    def below(self) -> ComposeResult:
        """Arguments or difference, output, result."""
        if self._changes:
            yield Static(drawn_difference(self._changes), classes="difference")
        else:
            yield Static(content(bounded(_listed(self._arguments))), classes="quiet")
        yield self._live
        yield self._result

    def begin(self) -> None:
        """It is asked for."""
        self._say("asked")
        for empty in (self._live, self._result):
            _fill(empty, "")

    def run(self) -> None:
        """It was let go."""
        self._say("runs …", "bold")
        self.fold(folded=False)

    def print(self, text: str) -> None:
        """It printed something. Only the end is kept here: the session's files have all of it."""
        self._output = (self._output + text)[-8000:]
        _fill(self._live, "\n".join(deque(self._output.splitlines(), TAIL)))

    def over(self, result: ev.ToolResult) -> None:
        """It has its result."""
        text = ev.text_of(result.content)
        _fill(self._live, "")
        _fill(self._result, bounded(text))
        word, style = outcome_of(result)
        small = 0 < len(self._changes) <= OPEN and result.code not in NOT_ENTERED
        self._say(word if small and not result.is_error else f"{word}  {one_line(text, 60)}".rstrip(), style)
        self.fold(folded=not small)

    def _say(self, state: str, style: str = "") -> None:
        what = arguments_line(self._arguments, 46)
        if self._changes and isinstance(self._arguments, dict):
            what = f"{one_line(str(self._arguments.get('path', '')), 40)}  {counted(self._changes)}"
        self.retitle(f"{self._record.name}  {what}  · {state}", style)


def _fill(widget: Static, text: str) -> None:
    """Show a text; no line for none."""
    widget.display = bool(text)
    widget.update(content(text))


def outcome_of(result: ev.ToolResult) -> tuple[str, str]:
    """How a call ended, in a word and a style."""
    settled = f" (settled by {result.settled_by})" if result.settled_by else ""
    if result.code == TOOL_OUTCOME_UNKNOWN:
        return f"? OUTCOME UNKNOWN{settled}", "bold yellow"
    if result.code in NOT_ENTERED:
        return f"✗ did not run, {result.code}{settled}", "yellow"
    if result.is_error:
        return f"✗ failed {result.code}{settled}".rstrip(), "red"
    return f"✓ done{settled}", "green"


def drawn_difference(lines: tuple[str, ...]) -> Content:
    """A difference: signs for everybody, colour for those who see it."""
    styles = {"+": "green", "-": "red"}
    drawn = [content(line, styles.get(line[:1], "dim")) for line in lines[:400]]
    if len(lines) > len(drawn):
        drawn.append(content(f"… {len(lines) - len(drawn)} more lines", "dim"))
    return Content("\n").join(drawn)


def _listed(arguments: Any) -> str:
    if not isinstance(arguments, dict):
        return str(arguments)
    return "\n".join(f"{name}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
                     for name, value in arguments.items())  # fmt: skip
