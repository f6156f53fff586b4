"""From a stream of deltas to one answer, and from a call's text to its arguments.

Providers agree on the shape of a streamed tool call and on little else: they repeat ids, leave them empty, number
parallel calls all with 0, send the arguments in one piece or in fifty. What is kept here is the model's own text; what
is decided here is only where one call ends and the next begins.

Rules:
    1. Pieces with one index are one call, until a piece says otherwise (`_Call.ends_before`).
    2. Blocks stand in the order in which their first piece came.
    3. Each call gets an id of ours; the provider's id and name are kept as they were given, empty or not.
    4. Arguments are the joined text, to the letter. Only `parse_arguments` reads them.
    5. Blocks of thinking are kept apart where the provider keeps them apart: it may want each back as it was.
    6. An answer that was cut asks for nothing: its calls may be half, so they are dropped.

It does not know the log, the loop, or whether the stream was whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Final

from fencepost.core.events import Block, CallRequest, Finish, Json, Reasoning, Text, Usage
from fencepost.runtime.models import (
    CallDelta,
    Finished,
    ModelDelta,
    ReasoningDelta,
    ReasoningEnd,
    TextDelta,
    UsageDelta,
)

WHOLE: Final[frozenset[Finish]] = frozenset({"stop", "tool_calls"})
"""Ends of an answer that was not cut (rule 6)."""

MAX_DEPTH: Final = 100
"""Levels of nesting that arguments may have; deeper ones would exhaust the stack of whatever reads them."""

MAX_DIGITS: Final = 308
"""Digits of an integer that arguments may hold: the range of a double, beyond which JSON readers disagree."""


class _Words:
    """A run of text, or of reasoning, that is still growing."""

    def __init__(self, kind: type[Text | Reasoning]) -> None:
        self.kind = kind
        self.pieces: list[str] = []
        self.opaque: Json = None
        self.ended = False

    def block(self) -> Text | Reasoning:
        text = "".join(self.pieces)
        return Text(text) if self.kind is Text else Reasoning(text, self.opaque)


class _Call:
    """A call that is still growing."""

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        self.provider_id = ""
        self.name = ""
        self.pieces: list[str] = []

    def take(self, delta: CallDelta) -> None:
        """The first id and the first name stay: later pieces repeat them, or carry others by mistake."""
        self.provider_id = self.provider_id or delta.provider_id
        self.name = self.name or delta.name
        if delta.arguments:
            self.pieces.append(delta.arguments)

    def ends_before(self, delta: CallDelta) -> bool:
        """Whether `delta`, though it has the same index, begins another call.

        Only a piece with a name can. It does if its id is another one, or if this call's arguments are a whole object
        already and more are coming, or if the name is another one and no arguments are under way.
        """
        if not (self.name and delta.name):
            return False
        if self.provider_id and delta.provider_id and self.provider_id != delta.provider_id:
            return True
        if delta.arguments.strip() and self._whole():
            return True
        return self.name != delta.name and (self._blank() or self._whole())

    def _blank(self) -> bool:
        return not any(piece.strip() for piece in self.pieces)

    def _whole(self) -> bool:
        text = "".join(self.pieces)
        return text.rstrip().endswith("}") and isinstance(parse_arguments(text), dict)

    def block(self) -> CallRequest:
        return CallRequest(self.call_id, self.name, "".join(self.pieces), self.provider_id)


class Assembler:
    """Takes the deltas of one answer, one by one, and gives its blocks.

    Attributes:
        usage: the last token counts that the provider sent, if any.
        finish: the provider's end marker, if it came.
    """

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self._parts: list[_Words | _Call] = []
        self._calls: dict[int, _Call] = {}
        self.usage: Usage | None = None
        self.finish: Finish | None = None

    def __repr__(self) -> str:
        return f"<Assembler {len(self._parts)} parts, finish {self.finish}>"

    def feed(self, delta: ModelDelta) -> None:
        """Take one delta in."""
        match delta:
            case TextDelta(text):
                self._say(Text, text)
            case ReasoningDelta(text):
                self._say(Reasoning, text)
            case ReasoningEnd(opaque):
                self._end_reasoning(opaque)
            case CallDelta():
                self._call(delta)
            case UsageDelta(usage):
                self.usage = usage
            case Finished(reason):
                self.finish = reason

    def blocks(self, finish: Finish) -> tuple[Block, ...]:
        """The answer, in the model's order; without its calls where `finish` says that it was cut (rule 6)."""
        return tuple(part.block() for part in self._parts if finish in WHOLE or isinstance(part, _Words))

    def visible(self) -> tuple[Text | Reasoning, ...]:
        """What a person has seen so far: text and reasoning; nothing if all of it is blank."""
        words = [part.block() for part in self._parts if isinstance(part, _Words) and part.pieces]
        return tuple(words) if any(block.text.strip() for block in words) else ()

    def _say(self, kind: type[Text | Reasoning], text: str) -> None:
        if not text:
            return
        self._growing(kind).pieces.append(text)

    def _growing(self, kind: type[Text | Reasoning]) -> _Words:
        """The run at the end, or a new one where that is of another kind, or over."""
        last = self._parts[-1] if self._parts else None
        if not (isinstance(last, _Words) and last.kind is kind and not last.ended):
            last = _Words(kind)
            self._parts.append(last)
        return last

    def _end_reasoning(self, opaque: Json) -> None:
        last = self._parts[-1] if self._parts else None
        growing = isinstance(last, _Words) and last.kind is Reasoning and not last.ended
        if growing or opaque is not None:
            words = self._growing(Reasoning)
            words.opaque, words.ended = opaque, True

    def _call(self, delta: CallDelta) -> None:
        if not (delta.provider_id or delta.name or delta.arguments):
            return
        call = self._calls.get(delta.index)
        if call is None or call.ends_before(delta):
            call = self._calls[delta.index] = _Call(self._new_call_id())
            self._parts.append(call)
        call.take(delta)


# --- arguments --------------------------------------------------------------------------------------------------


class _RefusedError(ValueError):
    """JSON that Python would read, and that we do not take."""


def parse_arguments(text: str) -> dict[str, Json] | str:
    """The arguments that `text` holds, or one sentence (without a full stop) that says why it holds none.

    Strict JSON (RFC 8259): NaN and Infinity are refused, and so are a key that stands twice (a reader of the first and
    a reader of the last would see different calls), numbers beyond the range of a double, and nesting beyond
    `MAX_DEPTH`. Blank text means no arguments. Lone surrogates pass: events normalise them.
    """
    if not text.strip():
        return {}
    try:
        value = _loads(text)
    except json.JSONDecodeError as error:
        return f"not JSON: {error.msg.removesuffix(' at')} at character {error.pos + 1} of {len(text)}"
    except _RefusedError as error:
        return str(error)
    except RecursionError:
        return f"nested deeper than {MAX_DEPTH} levels"
    if not isinstance(value, dict):
        return f"JSON, but {_KINDS[type(value)]} where an object is needed"
    if _deeper_than(value, MAX_DEPTH):
        return f"nested deeper than {MAX_DEPTH} levels"
    return value


_KINDS: Final = {list: "an array", str: "a string", int: "a number", float: "a number", bool: "true or false"}
_KINDS[type(None)] = "null"


def _loads(text: str) -> Any:
    return json.loads(
        text, object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_refuse_constant
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"the key {json.dumps(twice)} stands twice in one object")
    return out


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise _RefusedError(f"the number {digits[:40]} is out of range")
    return value


def _int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _RefusedError(f"a number of {len(digits)} digits is out of range")
    return int(digits)


def _refuse_constant(name: str) -> Any:
    raise _RefusedError(f"{name} is not JSON")


def _deeper_than(value: Any, limit: int) -> bool:
    """Level by level, not recursively: this is what keeps recursion away from everyone else."""
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True
