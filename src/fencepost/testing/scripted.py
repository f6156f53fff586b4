"""`ScriptedModel`: a model in memory that answers from a list. For tests of agents, hooks, tools and policies.

    model = ScriptedModel([
        {"content": "I look.", "tool_calls": [{"function": {"name": "list_files", "arguments": {}}}]},
        [ModelError("busy", code="RATE_LIMITED", retryable=True), "There are two files."],
    ])

Item N answers the request that has N whole answers before it. An item that is a list holds what the first, second, …
attempt at that request gets; its last entry is for all further ones.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from typing import Any, TypeAlias

import msgspec

from fencepost.core.events import Json
from fencepost.core.projection import ModelRequest
from fencepost.errors import ModelError
from fencepost.plugins.openai_wire import chat_body
from fencepost.plugins.script import ScriptedAnswer, exhausted, read_answer
from fencepost.runtime.models import ModelDelta

Message: TypeAlias = str | dict[str, Any]
"""Text, or an assistant message in OpenAI chat form, as a line of a `script:FILE` has it."""


class Cut(msgspec.Struct, frozen=True):
    """The stream of `answer` ends after so many deltas, without its end marker."""

    answer: Message
    after: int = 1


class Pause:
    """The stream of `answer` stops after so many deltas until it is released.

    Attributes:
        reached: set when the stream stands there.
        release: set it to let the stream go on.
    """

    def __init__(self, answer: Message, after: int = 0) -> None:
        self.answer = answer
        self.after = after
        self.reached = asyncio.Event()
        self.release = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Pause after {self.after}, {'reached' if self.reached.is_set() else 'not reached'}>"


Item: TypeAlias = Message | ModelError | Cut | Pause


class ScriptedModel:
    """A model that does what it is told, in order.

    Args:
        answers: what each request gets; see the module's docstring.
        model: the name that is recorded.
        settings: what is recorded as settings.

    Attributes:
        requests: every request that was sent, attempts included.

    Raises:
        NotAnAnswerError: an answer does not have the form; a `ValueError`.
    """

    def __init__(
        self, answers: Iterable[Item | list[Item]], *, model: str = "scripted", settings: dict[str, Json] | None = None
    ) -> None:
        self._script = [item if isinstance(item, list) else [item] for item in answers]
        for attempts in self._script:
            for item in attempts:
                _answer(item)
        self._model = model
        self._settings = settings or {}
        self._attempts: Counter[int] = Counter()
        self.requests: list[ModelRequest] = []

    def __repr__(self) -> str:
        return f"<ScriptedModel {len(self._script)} answers, {len(self.requests)} requests>"

    @property
    def provider(self) -> str:
        """`scripted`."""
        return "scripted"

    @property
    def model(self) -> str:
        """The name that was given."""
        return self._model

    @property
    def settings(self) -> dict[str, Json]:
        """The settings that were given."""
        return dict(self._settings)

    def body(self, request: ModelRequest) -> dict[str, Json]:
        """The request in chat form."""
        return chat_body(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Do what the script says for this request.

        Raises:
            ModelError: the script says so, or has run out (`SCRIPT_EXHAUSTED`).
        """
        self.requests.append(request)
        item = self._next(request.answered)
        answer = _answer(item)
        if answer is None:
            assert isinstance(item, ModelError)
            raise item
        for position, delta in enumerate(answer.deltas()):
            if isinstance(item, Cut) and position == item.after:
                return
            if isinstance(item, Pause) and position == item.after:
                item.reached.set()
                await item.release.wait()
            yield delta
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Nothing to release."""

    def _next(self, answered: int) -> Item:
        if answered >= len(self._script):
            raise exhausted("the script", len(self._script), answered)
        attempts = self._script[answered]
        item = attempts[min(self._attempts[answered], len(attempts) - 1)]
        self._attempts[answered] += 1
        return item


def _answer(item: Item) -> ScriptedAnswer | None:
    if isinstance(item, ModelError):
        return None
    return read_answer(item.answer if isinstance(item, Cut | Pause) else item)
