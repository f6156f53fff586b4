"""What a person is asked, each in a screen of its own above the conversation; answered with the keyboard alone.

Asking about a call: what was typed before the question does not answer it. Whoever is writing when it comes up is not
taken by their word: answers count once no key was pressed for `QUIET`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.events import Key
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from fencepost.apps.cli.asking import KEYS
from fencepost.apps.tui.cards import drawn_difference
from fencepost.apps.tui.difference import changed_lines, old_content
from fencepost.apps.tui.texts import bounded, content
from fencepost.plugins.approval import Question, Verdict

QUIET = 0.4
"""Seconds without a key until a question can be answered."""

T = TypeVar("T")


class Choice(msgspec.Struct, frozen=True):
    """One answer: the key that gives it, what it says, and what it stands for."""

    key: str
    text: str
    value: str


class Choosing(ModalScreen[T | None], Generic[T]):
    """Something to read, and one of several answers below it.

    Args:
        title: in the first line.
        choices: the answers; the first one is highlighted.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("pageup", "page(-1)", show=False, priority=True),
        Binding("pagedown", "page(1)", show=False, priority=True),
    ]

    def __init__(self, title: str, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._title = title
        self._choices = choices

    def compose(self) -> ComposeResult:
        """Title, matter, answers."""
        with Vertical(classes="dialog"):
            yield Static(content(self._title, "bold"), classes="title")
            with VerticalScroll(classes="matter", can_focus=False):
                yield from self.matter()
            options = [Option(content(f"{one.key}  {one.text}"), id=one.value) for one in self._choices]
            yield OptionList(*options, classes="choices", markup=False)
            yield from self.below()

    def matter(self) -> ComposeResult:
        """What is to be read."""
        yield from ()

    def below(self) -> ComposeResult:
        """What stands below the answers."""
        yield from ()

    def on_mount(self) -> None:
        """Begin. (Textual calls this for each class of the family, so no other one has it.)"""
        self.begin()

    def begin(self) -> None:
        """The keyboard is here."""
        self.query_one(OptionList).focus()

    def action_page(self, way: int) -> None:
        """Scroll what is to be read."""
        scroll = self.query_one(".matter", VerticalScroll)
        scroll.scroll_relative(y=way * max(scroll.size.height - 1, 1), animate=False)

    def on_key(self, event: Key) -> None:
        """A key that nothing else wanted."""
        self.pressed(event)

    def pressed(self, event: Key) -> None:
        """The key of an answer gives it."""
        found = next((one for one in self._choices if one.key == event.key), None)
        if found is not None and isinstance(self.focused, OptionList):
            event.stop()
            self.chosen(found.value)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Enter gives the highlighted answer."""
        event.stop()
        if event.option_id is not None:
            self.chosen(event.option_id)

    def chosen(self, value: str) -> None:
        """One was chosen."""
        raise NotImplementedError


class Asking(Choosing[Verdict]):
    """May this call run? Gives None where the turn is to be cancelled.

    Args:
        question: what the policy asks.
        cwd: the session's directory.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "escape", show=False, priority=True)]
    AUTO_FOCUS = ""

    def __init__(self, question: Question, cwd: Path) -> None:
        always = [Choice(KEYS[one.scope], f"yes, and always {one.text}", one.scope) for one in question.choices]
        choices = [Choice("y", "yes, this once", "once"), *always, Choice("n", "no, and say why", "no")]
        super().__init__(f"approve {question.tool}?  {question.reason}", choices)
        self._question = question
        self._cwd = cwd
        self._quiet: Timer | None = None
        self.armed = False
        """Whether an answer counts by now."""

    def matter(self) -> ComposeResult:
        """The arguments, or what they change."""
        asked = self._question
        changes = changed_lines(asked.tool, asked.arguments, old_content(asked.tool, asked.arguments, self._cwd))
        if changes:
            yield Static(content(f"path: {asked.arguments.get('path')}"))
            yield Static(drawn_difference(changes))
        else:
            text = json.dumps(asked.arguments, ensure_ascii=False, indent=2)
            yield Static(content(bounded(text)))

    def below(self) -> ComposeResult:
        """Where the reason of a no is written."""
        yield Input(placeholder="why not? the model is told (Enter: no; Esc: back)", id="reason")
        yield Static(content("one moment: what you type now answers nothing", "dim"), classes="hint")

    def begin(self) -> None:
        """Wait for quiet."""
        self.query_one(OptionList).disabled = True
        self.query_one("#reason").display = False
        self._rest()

    def _rest(self) -> None:
        if self._quiet is not None:
            self._quiet.stop()
        self._quiet = self.set_timer(QUIET, self._arm)

    def _arm(self) -> None:
        self.armed = True
        options = self.query_one(OptionList)
        options.disabled = False
        options.focus()
        self.query_one(".hint", Static).update(content('"always" is for this session · Esc cancels the turn', "dim"))

    def pressed(self, event: Key) -> None:
        """Keys that come too early are nobody's answer."""
        if self.armed:
            super().pressed(event)
        else:
            event.stop()
            self._rest()

    def chosen(self, value: str) -> None:
        """An answer; a no asks for its reason first."""
        if value == "once":
            self.dismiss(Verdict(allowed=True))
        elif value == "no":
            reason = self.query_one("#reason", Input)
            reason.display = True
            reason.focus()
        else:
            self.dismiss(next(one for one in self._question.choices if one.scope == value).yes())

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """No, for this reason."""
        event.stop()
        self.dismiss(Verdict(allowed=False, reason=event.value.strip()))

    def action_escape(self) -> None:
        """Back from the reason; else the turn is cancelled."""
        if not self.armed:
            self._rest()
        elif isinstance(self.focused, Input):
            self.focused.display = False
            self.query_one(OptionList).focus()
        else:
            self.dismiss(None)


class Options(Choosing[str]):
    """A question with a text above it; gives the value of the answer, or None for Esc.

    Args:
        title: in the first line.
        shown: what is to be read.
        choices: the answers.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "escape", show=False, priority=True)]

    def __init__(self, title: str, shown: Sequence[Content | object], choices: Sequence[Choice]) -> None:
        super().__init__(title, choices)
        self._shown = shown

    def matter(self) -> ComposeResult:
        """What is to be read."""
        for one in self._shown:
            yield Static(one, markup=False)  # type: ignore[arg-type]

    def chosen(self, value: str) -> None:
        """That one."""
        self.dismiss(value)

    def action_escape(self) -> None:
        """None of them."""
        self.dismiss(None)
