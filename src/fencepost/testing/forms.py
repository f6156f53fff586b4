"""What a scripted server has to know of a form of model API: what it refuses, and what its answers look like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from fencepost.core.events import Json
from fencepost.plugins.script import ScriptedAnswer

Piece: TypeAlias = list[str]
"""What goes out at once: server-sent events, each without the blank line behind it."""


class ServerForm(Protocol):
    """One form. A fault's `after` counts the pieces of an answer."""

    name: str
    path: str

    def problem(self, request: Mapping[str, Any]) -> str | None:
        """What a strict provider refuses about a request."""
        ...

    def pieces(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> list[Piece]:
        """The answer, without how it ended."""
        ...

    def ending(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> Piece:
        """How an answer ended, what it cost, and the end."""
        ...

    def end(self) -> Piece:
        """The end of a stream alone."""
        ...

    def idle(self) -> Piece:
        """A proper stream in which nothing is said."""
        ...

    def malformed(self) -> Piece:
        """A piece that is not JSON."""
        ...

    def broken(self, body: Any) -> Piece:
        """An error inside a stream: `body`, or one that the form knows."""
        ...

    def raw(self, chunk: Any) -> Piece:
        """A piece as it was given: text, or JSON."""
        ...

    def whole(self, answer: ScriptedAnswer, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a request that does not ask for a stream."""
        ...

    def refusal(self, message: str, code: str) -> Json:
        """The body of a response that says no."""
        ...


def data(*values: object) -> Piece:
    """Events without a name."""
    return [f"data: {text_of(value)}" for value in values]


def named(*values: Mapping[str, Any]) -> Piece:
    """Events whose name is the `type` of their data."""
    return [f"event: {value['type']}\ndata: {text_of(value)}" for value in values]


def text_of(value: object) -> str:
    """JSON on one line; text stays as it is."""
    return value if isinstance(value, str) else json.dumps(value)
