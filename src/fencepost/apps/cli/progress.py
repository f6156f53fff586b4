"""How far long work has come: one line on standard error that redraws itself, on a terminal only."""

from __future__ import annotations

import sys

WIDTH = 30


class Bar:
    """A bar that fills up.

    Args:
        total: how many steps there are.
        what: what is counted.
    """

    def __init__(self, total: int, what: str) -> None:
        self._total = total
        self._what = what
        self._shown = sys.stderr.isatty() and total > 1

    def at(self, done: int) -> None:
        """Show that `done` steps are behind us; all of them end the line."""
        if not self._shown:
            return
        filled = WIDTH * done // self._total
        end = "\n" if done >= self._total else ""
        bar = f"{'#' * filled}{'.' * (WIDTH - filled)}"
        sys.stderr.write(f"\r[{bar}] {done} of {self._total} {self._what}{end}")
        sys.stderr.flush()
