"""What a docstring says to the model: the text before its first section, and a sentence per argument.

Google, NumPy and Sphinx forms are read by griffe. It takes a tenth of a second to import, so it is imported only when
a docstring has sections at all.
"""

from __future__ import annotations

import inspect
import re
from typing import Literal, TypeAlias

import msgspec

Style: TypeAlias = Literal["google", "numpy", "sphinx"]

_TITLES = "Args|Arguments|Params|Parameters|Keyword Args|Keyword Arguments|Returns|Raises|Yields|Examples?|Attributes"
_MARKS: tuple[tuple[Style, re.Pattern[str]], ...] = (
    ("numpy", re.compile(rf"^({_TITLES}|Other Parameters)\s*\n-{{3,}}\s*$", re.MULTILINE)),
    ("google", re.compile(rf"^({_TITLES}):\s*$", re.MULTILINE)),
    ("sphinx", re.compile(r"^:(param|parameter|arg|argument|key|keyword|returns?|raises?)\b[^:\n]*:", re.MULTILINE)),
)


class Described(msgspec.Struct, frozen=True):
    """The text of a docstring, and what it says of each argument."""

    text: str
    arguments: dict[str, str]


def describe(docstring: str | None) -> Described:
    """Take a docstring apart. A missing one gives empty text."""
    text = inspect.cleandoc(docstring or "").strip()
    for style, mark in _MARKS:
        if mark.search(text):
            return _by_sections(text, style)
    return Described(text, {})


def _by_sections(text: str, style: Style) -> Described:
    from griffe import Docstring, DocstringSectionParameters, DocstringSectionText

    first, arguments = "", {}
    for section in Docstring(text).parse(style, warnings=False):
        if isinstance(section, DocstringSectionText) and not first:
            first = section.value.strip()
        elif isinstance(section, DocstringSectionParameters):
            arguments.update({one.name.lstrip("*"): " ".join(one.description.split()) for one in section.value})
    return Described(first, arguments)
