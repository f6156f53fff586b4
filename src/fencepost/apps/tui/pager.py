"""Something long to read: what a command of the command line prints, run as its user would run it.

`/show`, `/doctor` and `/export` are those commands, in a process of their own: they read what is on disk, freeze
nothing here, and say the same words everywhere. What is not stored they cannot see.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Log, Static

from fencepost.apps.cli.plain import plain
from fencepost.apps.tui.texts import content

LINES = 20_000
"""Lines that are shown at most, the last ones."""


class Printed(msgspec.Struct, frozen=True):
    """What a command printed, and its exit status."""

    out: str
    err: str
    status: int


async def command(words: Sequence[str], *, url: str, cwd: Path, width: int, into: Path | None = None) -> Printed:
    """Run a command of the command line to its end; it ends with whoever waits for it.

    Args:
        words: behind `fencepost`.
        url: of the store.
        cwd: where.
        width: columns that it may use.
        into: a new file for what it prints.

    Raises:
        OSError: the file is there already, or cannot be made.
    """
    environ = {**os.environ, "COLUMNS": str(width), "NO_COLOR": "1", "PYTHONUTF8": "1"}
    with contextlib.ExitStack() as files:
        out = asyncio.subprocess.PIPE if into is None else files.enter_context(into.open("xb")).fileno()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fencepost", *words, "--store", url,
            cwd=cwd, env=environ, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            printed, complained = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return Printed(
        (printed or b"").decode(errors="replace"), complained.decode(errors="replace"), process.returncode or 0
    )


class Pager(ModalScreen[None]):
    """A text, as large as the screen.

    Args:
        title: in the first line.
        text: it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "dismiss", show=False, priority=True),
        Binding("home", "top", show=False, priority=True),
        Binding("end", "bottom", show=False, priority=True),
    ]

    def __init__(self, title: str, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Title and text."""
        with Vertical(classes="dialog tall"):
            yield Static(content(f"{self._title}  ·  ↑↓ Home End, Esc", "bold"), classes="title")
            yield Log(max_lines=LINES, auto_scroll=False)

    def on_mount(self) -> None:
        """Show it from its beginning."""
        log = self.query_one(Log)
        log.write_lines([plain(line).expandtabs(4) for line in self._text.splitlines()])
        log.focus()

    def action_top(self) -> None:
        """To the beginning."""
        self.query_one(Log).scroll_home(animate=False)

    def action_bottom(self) -> None:
        """To the end."""
        self.query_one(Log).scroll_end(animate=False)
