"""Text from logs on its way to a widget: control characters written out, never taken for markup, and bounded.

Markdown is drawn without following entities: `&#x202e;` would bring back what was written out.
"""

from __future__ import annotations

from markdown_it import MarkdownIt
from textual.content import Content

from fencepost.apps.cli.plain import plain

SHOWN = 20_000
"""Characters of one text that are drawn at most."""


def content(text: str, style: str = "") -> Content:
    """A text as it is."""
    return Content.styled(plain(text), style) if style else Content(plain(text))


def bounded(text: str, limit: int = SHOWN) -> str:
    """A text, cut in its middle where it is long."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters are not shown: /show …\n{text[-half:]}"


def parser() -> MarkdownIt:
    """What reads an answer."""
    return MarkdownIt("gfm-like").disable("entity")
