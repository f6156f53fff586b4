"""Secrets in text, by pattern: what they look like, and text and JSON without them. Pure.

Rules:
    1. A pattern is looked for in text as it is meant: in strings that were decoded from JSON, also where a string holds
       JSON itself, however deep. What comes out is JSON again wherever JSON went in.
    2. In the place of a secret stands `[hidden]`, and it is counted under its pattern's name.
    3. In JSON, the whole text under a name such as `password` or `api_key` is a secret, whatever it looks like.

No pattern finds everything: a secret that looks like any other word stays. Look at what comes out before it is passed
on.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from fencepost.core.events import Json
from fencepost.errors import UsageError

HIDDEN = "[hidden]"

_VALUE = r"""(?P<secret>(?!\[hidden\])(?:\\?"(?:[^"\\\n]|\\[^"\n])*\\?"?|'[^'\n]*'?|[^\s"',;&\\}\])]+))"""
_LOUD = r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|KEY"
_QUIET = (
    r"password|passwd|passphrase|secret|token|"
    r"(?:api|access|private|secret|auth|account|master|service|signing|encryption)[_-]?key"
)
_LOUD_NAME = rf"(?:[A-Z0-9]+_)*[A-Z0-9]*(?:{_LOUD})(?:_[A-Z0-9]+)*"
_PEM = r"[A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"

SHIPPED: tuple[tuple[str, str], ...] = (
    ("private_key", rf"-----BEGIN {_PEM}[\s\S]*?(?:-----END {_PEM}|\Z)"),
    ("model_key", r"\bsk-[A-Za-z0-9_-]{12,}"),
    ("github_token", r"\b(?:gh[a-z]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})"),
    ("gitlab_token", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    ("aws_key", r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}"),
    ("google_key", r"\bAIza[0-9A-Za-z_-]{30,}"),
    ("slack_token", r"\bxox[a-z]-[A-Za-z0-9-]{8,}"),
    ("jwt", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    ("bearer", r"(?i)\bbearer[ \t]+(?P<secret>[A-Za-z0-9._~+/=-]{6,})"),
    ("basic_auth", r"(?i)\bauthorization[\"']?[ \t]*[:=][ \t]*[\"']?basic[ \t]+(?P<secret>[A-Za-z0-9+/=_-]{4,})"),
    ("url_password", r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s/:@]{0,200}:(?P<secret>(?!\[hidden\]@)[^\s/]+)@"),
    ("flag", rf"(?i)(?<![-\w])--(?:[a-z-]{{0,40}}-)?(?:{_QUIET})[ \t=]+{_VALUE}"),
    ("assignment", rf"""\b{_LOUD_NAME}\\?["']?[ \t]*[=:][ \t]*{_VALUE}"""),
    ("assignment", rf"""(?i)(?:\b|_)(?:{_QUIET})\\?["']?[ \t]*[=:][ \t]*{_VALUE}"""),
)
"""Name and expression of each pattern, in the order in which they are looked for. Of a match only `secret` is hidden,
where there is a group of that name."""

_SECRET_NAME = re.compile(rf"(?i:(?:^|[_.\- ]|(?-i:[a-z](?=[A-Z])))(?:{_QUIET})$)|^{_LOUD_NAME}$")
"""A key of a JSON object whose text is a secret."""


class Secrets:
    """What is looked for, and how much of it was hidden so far.

    Args:
        own: further expressions, looked for first.

    Raises:
        UsageError: one of them is no expression, or finds the empty text; names which.
    """

    def __init__(self, own: Sequence[str] = ()) -> None:
        self.hidden: Counter[str] = Counter()
        self._patterns = [(f"own_{index}", _compiled(text, index)) for index, text in enumerate(own, 1)]
        self._patterns += [(name, re.compile(text)) for name, text in SHIPPED]

    def text(self, text: str) -> str:
        """The text without secrets; where it is JSON, still JSON."""
        inner = self._within(text)
        if inner is not None:
            return inner
        if "\n" in text and ("{" in text or "[" in text):
            text = "\n".join(self._line(line) for line in text.split("\n"))
        for name, pattern in self._patterns:
            text = pattern.sub(lambda match, name=name: self._hide(name, match), text)  # type: ignore[misc]
        return text

    def json(self, value: Json) -> Json:
        """The value without secrets, in keys too."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(item) for item in value]
        if not isinstance(value, dict):
            return value
        out: dict[str, Json] = {}
        for key, item in value.items():
            name = self.text(key)
            while name in out:
                name += "'"  # two keys may not become one
            out[name] = self._named(key, item)
        return out

    def texts(self, texts: Sequence[str]) -> list[str]:
        """Pieces of one text without secrets, those that stand across pieces too.

        As many pieces as went in. Where a secret crosses a border, all that is left stands in the first of them.
        """
        joined = "".join(texts)
        whole = self.text(joined)
        if whole == joined:
            return list(texts)
        counted = self.hidden.copy()
        apart = [self.text(piece) for piece in texts]
        self.hidden = counted
        return apart if "".join(apart) == whole else [whole, *("" for _ in texts[1:])]

    def _named(self, key: str, item: Json) -> Json:
        if isinstance(item, str) and item and item != HIDDEN and _SECRET_NAME.search(key):
            self.hidden["named"] += 1
            return HIDDEN
        return self.json(item)

    def _hide(self, name: str, match: re.Match[str]) -> str:
        self.hidden[name] += 1
        if "secret" not in match.re.groupindex:
            return HIDDEN
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        whole = match[0]
        return whole[:start] + HIDDEN + whole[end:]

    def _line(self, line: str) -> str:
        inner = self._within(line)
        return line if inner is None else inner

    def _within(self, text: str) -> str | None:
        """The text with what is inside of its JSON hidden; None where it is no JSON object or array."""
        if not text.lstrip().startswith(("{", "[")):
            return None
        try:
            value = json.loads(text, parse_int=_Number, parse_float=_Number, object_pairs_hook=_single)
        except (ValueError, RecursionError):
            return None
        hidden = self.hidden.total()
        clean = self.json(value)
        return text if self.hidden.total() == hidden else _dumps(clean)


class _Number(float):
    """A number that is written as it was read: a copy of some JSON may not round it."""

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str

    def __repr__(self) -> str:
        return self.text


def _single(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object whose keys stand once each. Of others a dict would drop values unseen, so they are taken as text."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a key stands twice")
    return made


def _dumps(value: Json) -> str:
    if isinstance(value, _Number):
        return value.text
    if isinstance(value, list):
        return f"[{','.join(map(_dumps, value))}]"
    if isinstance(value, dict):
        return (
            "{" + ",".join(f"{json.dumps(key, ensure_ascii=False)}:{_dumps(item)}" for key, item in value.items()) + "}"
        )
    return json.dumps(value, ensure_ascii=False)


def _compiled(text: str, index: int) -> re.Pattern[str]:
    try:
        pattern = re.compile(text)
    except re.error as error:
        raise UsageError(f"[redact] patterns: number {index}, {text!r}, is no regular expression: {error}") from None
    if pattern.search(""):
        raise UsageError(f"[redact] patterns: number {index}, {text!r}, finds the empty text, which is everywhere")
    return pattern


def counted(hidden: Iterable[tuple[str, int]]) -> str:
    """How much was hidden, for people."""
    return ", ".join(f"{number} {name}" for name, number in sorted(hidden))
