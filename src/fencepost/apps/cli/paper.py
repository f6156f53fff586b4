"""What people read: tables and lines within the width of the terminal, in colour only where that is wanted.

`rich` is imported here and nowhere else, and only by commands that print for people. Text from logs goes through
`plain` and is never taken for markup.
"""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fencepost.apps.cli.plain import plain

STYLES = {
    "completed": "green",
    "clean": "green",
    "not_started": "blue",
    "running": "cyan",
    "outcome_unknown": "bold yellow",
    "interrupted": "yellow",
    "damaged": "bold red",
    "unsupported": "red",
}
"""How a state or a verdict looks."""


def paper() -> Console:
    """A console on standard output that prints text as it is."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that cannot show a letter is no reason to stop
    return Console(markup=False, emoji=False, highlight=False)


def page(fd: int) -> tuple[Console, io.StringIO]:
    """A console whose text somebody else will write to `fd`, and that text."""
    text = io.StringIO()
    return Console(file=text, force_terminal=os.isatty(fd), markup=False, emoji=False, highlight=False), text


def styled(text: str, style: str = "") -> Text:
    """A piece of text, made safe."""
    return Text(plain(text), style=style)


def verdict_text(verdict: str) -> Text:
    """A state or verdict, coloured."""
    return Text(verdict.replace("_", " "), style=STYLES.get(verdict, ""))


def table(columns: Sequence[str], fixed: int = 0) -> Table:
    """An empty table without lines; the first `fixed` columns are never wrapped."""
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for index, name in enumerate(columns):
        made.add_column(name, no_wrap=index < fixed, overflow="fold")
    return made


def ago(then: int, now: int) -> str:
    """How long ago a time was, in one unit.

    Args:
        then: epoch milliseconds; 0 where it is not known.
        now: epoch milliseconds.
    """
    if then <= 0:
        return "?"
    seconds = max(now - then, 0) // 1000
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def now_ms() -> int:
    """The clock, in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def clock(ms: int) -> str:
    """A time in the user's zone, to the second; a placeholder for times that no calendar has."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
    except (OverflowError, ValueError, OSError):
        return f"time {ms}"
