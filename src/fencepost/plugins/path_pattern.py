"""Paths as rules name them: `/etc/**`, `src/*.py`, `~/notes/**`.

    *      any characters of one name
    **     as a whole part: any number of directories, also none; at the end also everything below, and the place itself

A pattern without a leading `/` or `~/` counts from the session's working directory. Nothing else is special.

What a path of the model means is where it leads, links followed (`files_place.resolve`). A rule that allows compares
that place with its pattern to the letter, so that no link in the pattern can lead it elsewhere; one that refuses also
follows the links of its own pattern, and also looks at the path as it was written.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from fencepost.plugins.command_line import wild
from fencepost.plugins.files_place import Refusal, resolve


class PathPattern(msgspec.Struct, frozen=True):
    """A path as a rule names it; see the module."""

    text: str

    @classmethod
    def parse(cls, text: str) -> PathPattern:
        """The pattern that `text` writes.

        Raises:
            ValueError: it is none; the message says why, as half a sentence.
        """
        if not text or not text.isprintable():
            raise ValueError("it is empty" if not text else "it holds a character that cannot be seen")
        parts = text.split("/")
        if ".." in parts:
            raise ValueError("it has a part '..'; write the path that is meant")
        if any("**" in part and part != "**" for part in parts):
            raise ValueError("** stands for whole directories: write it as a part of its own, as in /etc/**")
        return cls(text)

    def allows(self, path: str, cwd: Path) -> bool:
        """Whether the place that `path` leads to is named here, to the letter."""
        try:
            place = resolve(path, cwd)
        except Refusal:
            return False
        return self._names(str(place), Path(os.path.realpath(cwd)), follow=False)

    def refuses(self, path: str, cwd: Path) -> bool:
        """Whether `path`, or the place that it leads to, may be named here."""
        try:
            places = {str(resolve(path, cwd)), os.path.normpath(cwd / os.path.expanduser(path))}  # noqa: PTH111
        except Refusal:
            return False  # the tool refuses it by itself
        homes = (cwd, Path(os.path.realpath(cwd)))
        return any(self._names(place, home, follow=follow) for place in places for home in homes for follow in (0, 1))

    def _names(self, place: str, cwd: Path, *, follow: bool | int) -> bool:
        return _matcher(self._absolute(cwd), follow=bool(follow)).fullmatch(place.rstrip("/")) is not None

    def _absolute(self, cwd: Path) -> tuple[str, ...]:
        text = self.text
        if text == "~" or text.startswith("~/"):
            text = os.path.realpath(os.path.expanduser("~")) + text[1:]  # noqa: PTH111 - pathlib raises without a home
        return (cwd / text).parts


def _matcher(parts: tuple[str, ...], *, follow: bool) -> re.Pattern[str]:
    """What paths match; `follow`: the links of the part in front of the first wild one are followed."""
    fixed = next((at for at, part in enumerate(parts) if "*" in part), len(parts))
    base = Path(*parts[:fixed])
    start = os.path.realpath(base) if follow else str(base)
    rest = "".join(r"(?:/[^/]+)*" if part == "**" else f"/{wild(part, '[^/]').pattern}" for part in parts[fixed:])
    return re.compile(re.escape(start.rstrip("/")) + rest)
