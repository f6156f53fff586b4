"""Text from a log, made safe for a terminal and short enough for a line.

What a model said, or a command printed, may hold escape sequences that move the cursor, or marks that turn the
direction of what a person is about to approve. They are shown, not obeyed. What is piped to programs is never touched.
"""

from __future__ import annotations

import json
from typing import Any

_HARMLESS = frozenset("\n\t")
_DIRECTION = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_BREAKS = (0x2028, 0x2029)

_SHOWN = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in _HARMLESS}
_SHOWN |= {code: f"\\u{code:04x}" for code in (*_DIRECTION, *_BREAKS)}
_SHOWN |= {code: f"\\u{code:04x}" for code in range(0xD800, 0xE000)}


def plain(text: str) -> str:
    """The text with control characters, other than newline and tab, written out."""
    return text.translate(_SHOWN)


def one_line(text: str, limit: int) -> str:
    """The text on one line, cut to `limit` characters."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= limit else line[: max(limit - 1, 0)] + "…"


def arguments_line(arguments: Any, limit: int) -> str:
    """Arguments of a call on one line; a call with one short text shows that text alone."""
    if isinstance(arguments, dict) and len(arguments) == 1:
        (value,) = arguments.values()
        if isinstance(value, str):
            return one_line(value, limit)
    return one_line(json.dumps(arguments, ensure_ascii=False), limit)
