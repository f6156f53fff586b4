"""The form of Anthropic's messages, coming in: the events of a stream to deltas. No IO.

Rules:
    1. A stream that ends without `message_stop` gives no `Finished`. It was cut, whatever else it said.
    2. A block of thinking is sealed with its signature where its text is kept to the letter. Where it could not be, it
       is left open: it is shown, and never sent back (see `anthropic_wire`).
    3. Blocks and deltas of kinds that are not known are passed over: the form says that new ones will come.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from fencepost.core.events import Finish, Usage
from fencepost.core.normalise import is_clean
from fencepost.plugins.anthropic_wire import seal
from fencepost.plugins.wire import Form, count, finished
from fencepost.runtime.models import CallDelta, ModelDelta, ReasoningDelta, ReasoningEnd, TextDelta, UsageDelta

FINISHES: Final[Mapping[str, Finish]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "model_context_window_exceeded": "max_tokens",
    "pause_turn": "max_tokens",  # the provider's own limit; what the model wanted to say goes on if it is asked to
    "refusal": "content_filter",
}

FORM: Final = Form("Anthropic messages")


class _Open:
    """The block that is streaming.

    Attributes:
        index: its place in the answer.
        kind: its type.
        text: the pieces of its text, or of its arguments.
        seal: `signature` or `data`, as far as it came.
        given: the whole input that came with its beginning, as text.
    """

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.text: list[str] = []
        self.seal: dict[str, str] = {}
        self.given = ""


class MessageReader:
    """Turns the events of one stream into deltas.

    Args:
        model: as the request names it; thinking is good for this model only.

    Attributes:
        chunks: how many events were read.
        complete: whether the end marker came.
    """

    def __init__(self, model: str) -> None:
        self.chunks = 0
        self.complete = False
        self._model = model
        self._open: _Open | None = None
        self._reason = ""
        self._shown = False
        self._usage: dict[str, object] = {}

    def read(self, chunk: object) -> list[ModelDelta]:
        """The deltas of one event.

        Raises:
            ModelError: `MALFORMED_STREAM`, the event does not have the form.
        """
        self.chunks += 1
        event = FORM.an_object(chunk, "an event")
        deltas = list(self._event(event))
        self._shown = self._shown or any(not isinstance(delta, UsageDelta) for delta in deltas)
        return deltas

    def end(self) -> list[ModelDelta]:
        """What the stream said last (rule 1): nothing, where it was cut.

        Raises:
            ModelError: `PROVIDER_ERROR`, it ended with nothing said, for a reason that is not known.
        """
        if not self.complete:
            return []
        return [finished(self._reason, FINISHES, frozenset(), shown=self._shown)]

    def _event(self, event: dict[str, Any]) -> Iterator[ModelDelta]:
        match event.get("type"):
            case "message_start":
                yield from self._count(FORM.an_object(event.get("message"), "`message`").get("usage"))
            case "content_block_start":
                yield from self._begin(event.get("index"), FORM.an_object(event.get("content_block"), "a block"))
            case "content_block_delta":
                yield from self._delta(self._at(event), FORM.an_object(event.get("delta"), "a delta"))
            case "content_block_stop":
                yield from self._end(self._at(event))
            case "message_delta":
                delta = FORM.an_object(event.get("delta"), "a delta")
                self._reason = FORM.a_text(delta.get("stop_reason"), "`stop_reason`") or self._reason
                yield from self._count(event.get("usage"))
            case "message_stop":
                self.complete = True

    def _at(self, event: dict[str, Any]) -> _Open:
        """The block that an event belongs to: there is only one at a time."""
        index = event.get("index")
        if self._open is None or self._open.index != index:
            raise FORM.malformed(f"block {index!r} is not open")
        return self._open

    def _begin(self, index: object, block: dict[str, Any]) -> Iterator[ModelDelta]:
        if self._open is not None or not isinstance(index, int):
            raise FORM.malformed(f"block {index!r} begins where another one is open")
        opened = self._open = _Open(index, FORM.a_text(block.get("type"), "`type`"))
        match opened.kind:
            case "text":
                yield from _words(block.get("text"))
            case "thinking":
                yield from self._think(opened, block.get("thinking"))
                self._sign(opened, block.get("signature"))
            case "redacted_thinking":
                opened.seal["data"] = FORM.a_text(block.get("data"), "`data`")
            case "tool_use":
                given = block.get("input")
                opened.given = json.dumps(given, ensure_ascii=False) if given else ""
                name = FORM.a_text(block.get("name"), "`name`")
                yield CallDelta(index, FORM.a_text(block.get("id"), "`id`"), name)

    def _delta(self, opened: _Open, delta: dict[str, Any]) -> Iterator[ModelDelta]:
        match opened.kind, delta.get("type"):
            case "text", "text_delta":
                yield from _words(delta.get("text"))
            case "thinking", "thinking_delta":
                yield from self._think(opened, delta.get("thinking"))
            case "thinking", "signature_delta":
                self._sign(opened, delta.get("signature"))
            case "tool_use", "input_json_delta":
                piece = FORM.a_text(delta.get("partial_json"), "`partial_json`")
                if piece:
                    opened.text.append(piece)
                    yield CallDelta(opened.index, arguments=piece)

    def _think(self, opened: _Open, value: object) -> Iterator[ModelDelta]:
        text = FORM.a_text(value, "`thinking`")
        if text:
            opened.text.append(text)
            yield ReasoningDelta(text)

    def _sign(self, opened: _Open, value: object) -> None:
        signature = FORM.a_text(value, "`signature`")
        if signature:
            opened.seal["signature"] = opened.seal.get("signature", "") + signature

    def _end(self, opened: _Open) -> Iterator[ModelDelta]:
        self._open = None
        if opened.kind in {"thinking", "redacted_thinking"}:
            kept = opened.seal and all(map(is_clean, ("".join(opened.text), *opened.seal.values())))
            yield ReasoningEnd(seal(self._model, opened.seal) if kept else None)
        elif opened.kind == "tool_use" and opened.given and not opened.text:
            yield CallDelta(opened.index, arguments=opened.given)

    def _count(self, usage: object) -> Iterator[ModelDelta]:
        """Counts are cumulative, and those that an event leaves out stay as they were."""
        if isinstance(usage, dict):
            self._usage.update((name, value) for name, value in usage.items() if value is not None)
            yield UsageDelta(usage_of(self._usage))


def _words(value: object) -> Iterator[ModelDelta]:
    text = FORM.a_text(value, "`text`")
    if text:
        yield TextDelta(text)


def usage_of(usage: Mapping[str, object]) -> Usage:
    """Token counts of this form, where tokens that were read from the cache, or written to it, are counted apart."""
    cached = count(usage.get("cache_read_input_tokens"))
    details = usage.get("output_tokens_details")
    return Usage(
        input_tokens=count(usage.get("input_tokens")) + count(usage.get("cache_creation_input_tokens")) + cached,
        output_tokens=count(usage.get("output_tokens")),
        cached_tokens=cached,
        reasoning_tokens=count(details.get("thinking_tokens")) if isinstance(details, dict) else 0,
    )
