"""`script:FILE`: a model that says what a file tells it to. For demos, tests and dry runs; it needs no network.

The file is JSON Lines. Each line is one assistant message in OpenAI chat form:

    {"content": "I look around first.", "tool_calls": [{"function": {"name": "list_files", "arguments": "{}"}}]}
    {"content": "There are two files."}

Line N answers the request that has N whole answers before it in its log, so a session that is resumed, by whatever
process, goes on where it was. Optional beside `content` and `tool_calls`: `reasoning_content` and `finish_reason`.

Rules:
    1. Lines end at byte 0x0A, nowhere else. Blank lines do not count.
    2. Calls are given as the line has them: ids may be missing, empty or repeated, `arguments` may be an object (which
       is written as JSON) or text (which is given to the letter, JSON or not). Such answers are what it is for.
    3. The file is read at each request, whole: a line that is no answer is reported before anything is answered.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from fencepost.core.events import Json
from fencepost.core.projection import ModelRequest
from fencepost.errors import ModelError, UsageError
from fencepost.plugins.openai_wire import FINISHES, arguments_text, chat_body
from fencepost.runtime.models import CallDelta, Finished, ModelDelta, ReasoningDelta, TextDelta

PIECES: Final = 32
"""Deltas that a text is cut into at most."""

_WORD = re.compile(r"\s*\S+\s*|\s+")


class NotAnAnswerError(ValueError):
    """This is not an assistant message in chat form. Caught by whoever knows the place, and says it."""


class ScriptedAnswer(msgspec.Struct, frozen=True):
    """One assistant message, read.

    Attributes:
        text: what it says.
        reasoning: what it thinks aloud.
        calls: its tool calls, each whole.
        finish_reason: the end marker in the form's own words; one of `FINISHES`.
    """

    text: str
    reasoning: str
    calls: tuple[CallDelta, ...]
    finish_reason: str

    def deltas(self) -> Iterator[ModelDelta]:
        """The message as it streams: text in words, calls in a first piece with name and id and then arguments."""
        yield from self.words()
        yield Finished(FINISHES[self.finish_reason])

    def words(self) -> Iterator[TextDelta | ReasoningDelta | CallDelta]:
        """All of it but the end marker."""
        yield from (ReasoningDelta(piece) for piece in _pieces(self.reasoning))
        yield from (TextDelta(piece) for piece in _pieces(self.text))
        for call in self.calls:
            yield CallDelta(call.index, call.provider_id, call.name)
            half = len(call.arguments) // 2
            for piece in (call.arguments[:half], call.arguments[half:]):
                if piece:
                    yield CallDelta(call.index, arguments=piece)


def _pieces(text: str) -> Iterator[str]:
    words = _WORD.findall(text)
    size = -(-len(words) // PIECES) or 1
    return ("".join(words[start : start + size]) for start in range(0, len(words), size))


def read_answer(value: object) -> ScriptedAnswer:
    """The answer that a decoded line, or a dict of a test, or plain text stands for.

    Raises:
        NotAnAnswerError: it is none; the sentence says why.
    """
    if isinstance(value, str):
        value = {"content": value}
    if not isinstance(value, dict):
        raise NotAnAnswerError(f"an assistant message is an object, this is {type(value).__name__}")
    if not {"content", "tool_calls", "reasoning_content"}.intersection(value):
        raise NotAnAnswerError("there is neither `content` nor `tool_calls`")
    calls = value.get("tool_calls") or []
    if not isinstance(calls, list):
        raise NotAnAnswerError("`tool_calls` is not a list")
    finish = _optional_text(value, "finish_reason") or ("tool_calls" if calls else "stop")
    if finish not in FINISHES:
        raise NotAnAnswerError(f"`finish_reason` {finish!r} is none of {', '.join(FINISHES)}")
    return ScriptedAnswer(
        text=_optional_text(value, "content"),
        reasoning=_optional_text(value, "reasoning_content"),
        calls=tuple(_read_call(index, call) for index, call in enumerate(calls)),
        finish_reason=finish,
    )


def _read_call(index: int, call: Any) -> CallDelta:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise NotAnAnswerError(f"call {index} is not an object with a `function`")
    return CallDelta(
        index, _optional_text(call, "id"), _optional_text(function, "name"), arguments_text(function.get("arguments"))
    )


def _optional_text(value: Mapping[str, Any], name: str) -> str:
    text = value.get(name)
    if text is None:
        return ""
    if not isinstance(text, str):
        raise NotAnAnswerError(f"`{name}` is not text")
    return text


# --- the file ---------------------------------------------------------------------------------------------------


def numbered_lines(data: bytes) -> list[tuple[int, Any]]:
    """The JSON values of a JSON Lines file, each with the number of its line, from 1 (rule 1).

    Raises:
        NotAnAnswerError: a line is not JSON in UTF-8; the sentence names it.
    """
    values = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if line.strip():
            try:
                values.append((number, json.loads(line.decode())))
            except (ValueError, RecursionError) as error:
                raise NotAnAnswerError(f"line {number} is not JSON: {error}") from None
    return values


def read_script(data: bytes) -> list[ScriptedAnswer]:
    """The answers of a script.

    Raises:
        NotAnAnswerError: a line is none; the sentence names it.
    """
    answers = []
    for number, value in numbered_lines(data):
        try:
            answers.append(read_answer(value))
        except NotAnAnswerError as error:
            raise NotAnAnswerError(f"line {number} is no answer: {error}") from None
    return answers


def exhausted(name: str, have: int, answered: int) -> ModelError:
    """The error for a request that a script has no answer for."""
    return ModelError(
        f"{name} has {have} answer{'' if have == 1 else 's'}, request {answered + 1} has none",
        code="SCRIPT_EXHAUSTED",
        next_act="Add a line to it, or go on with another model",
    )


class ScriptModel:
    """The model behind `script:FILE`.

    Args:
        path: the file.

    Raises:
        UsageError: there is no such file.
    """

    def __init__(self, path: str | Path) -> None:
        self._name = str(path)
        self._path = Path(path).expanduser().absolute()
        if not self._path.is_file():
            raise UsageError(f"there is no script {self._path}", next_act="Give a file of JSON Lines: script:FILE")

    def __repr__(self) -> str:
        return f"<ScriptModel {self._path}>"

    @property
    def provider(self) -> str:
        """`script`."""
        return "script"

    @property
    def model(self) -> str:
        """The file, as it was named."""
        return self._name

    @property
    def settings(self) -> dict[str, Json]:
        """None: a script does not listen."""
        return {}

    def body(self, request: ModelRequest) -> dict[str, Json]:
        """The request in chat form, though nobody reads it."""
        return chat_body(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Stream the answer that the script has for this request.

        Raises:
            ModelError: `SCRIPT_EXHAUSTED`, or `SCRIPT_INVALID` where the file cannot be read as a script.
        """
        try:
            answers = read_script(await asyncio.to_thread(self._path.read_bytes))
            if request.answered >= len(answers):
                raise exhausted(f"script {self._path}", len(answers), request.answered)
            deltas = list(answers[request.answered].deltas())
        except (OSError, NotAnAnswerError) as error:
            raise ModelError(f"script {self._path}: {error}", code="SCRIPT_INVALID") from None
        for delta in deltas:
            yield delta
            await asyncio.sleep(0)

    async def close(self) -> None:
        """Nothing to release."""


def open_model(spec: str, environ: Mapping[str, str], settings: Mapping[str, Json] | None = None) -> ScriptModel:  # noqa: ARG001 - the shape of every scheme's factory
    """The model that `script:FILE` names.

    Raises:
        UsageError: no file is named, or it is not there.
    """
    scheme, _, path = spec.partition(":")
    if scheme != "script" or not path:
        raise UsageError(f"{spec!r} names no script (script:FILE)")
    return ScriptModel(path)
