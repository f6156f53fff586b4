"""Where a person writes: Enter sends, Ctrl+J begins a new line, Ctrl+S steers. What was sent stays until it is safe."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.events import Key
from textual.message import Message
from textual.widgets import TextArea


class Prompt(TextArea):
    """The input."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "send(True)", "steer", show=False, priority=True),
        Binding("ctrl+j", "newline", "new line", show=False, priority=True),
    ]

    class Sent(Message):
        """A text was sent; `steer` says that it is meant for the running turn."""

        def __init__(self, text: str, *, steer: bool) -> None:
            super().__init__()
            self.text = text
            self.steer = steer

    class Completing(Message):
        """Tab was pressed behind the beginning of a command."""

    def __init__(self) -> None:
        super().__init__(id="prompt", soft_wrap=True, compact=True, highlight_cursor_line=False)

    def on_key(self, event: Key) -> None:
        """Take the keys that mean something else here than in any other text; the others go on."""
        if event.key == "enter":
            event.prevent_default().stop()
            self.action_send()
        elif event.key == "tab" and self.text.startswith("/") and " " not in self.text:
            event.prevent_default().stop()
            self.post_message(self.Completing())

    def action_send(self, steer: bool = False) -> None:
        """Send what is written."""
        if self.text.strip() and not self.read_only:
            self.post_message(self.Sent(self.text, steer=steer))

    def action_newline(self) -> None:
        """A new line."""
        if not self.read_only:
            self.insert("\n")

    def put(self, text: str) -> None:
        """Write a text, with the cursor behind it."""
        self.load_text(text)
        self.move_cursor(self.document.end)
