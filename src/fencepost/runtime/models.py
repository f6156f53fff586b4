"""What a model is: one request in, a stream of deltas out.

Rules for adapters:
    1. One call of `stream` sends at most one request, and sends it when the first delta is pulled, not before: the
       request gate stands in between (law 3). No retries inside: they belong to the logged loop.
    2. The stream ends with `Finished`. One that ends without it was cut; the loop then says `truncated`.
    3. Every failure is a `ModelError` with a code, a sentence and whether it may be retried; nothing else leaks.
    4. `body` is the request as it goes over the wire: a pure function of the `ModelRequest`.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Protocol, TypeAlias, runtime_checkable

import msgspec

from fencepost.core.events import Finish, Json, Usage
from fencepost.core.projection import ModelRequest


class TextDelta(msgspec.Struct, frozen=True):
    """More of the answer's text."""

    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    """More of what the model thinks aloud; kept apart from the answer."""

    text: str


class ReasoningEnd(msgspec.Struct, frozen=True):
    """The block of thinking ends here; what follows is another one.

    `opaque` is what the provider wants back with this very block, and with it one without a word is a block too. An
    adapter that cannot give a block back to the letter leaves it out.
    """

    opaque: Json = None


class CallDelta(msgspec.Struct, frozen=True):
    """More of a tool call. Pieces with one `index` belong together; `arguments` pieces are joined."""

    index: int
    provider_id: str = ""
    name: str = ""
    arguments: str = ""


class UsageDelta(msgspec.Struct, frozen=True):
    """Token counts; the last one wins."""

    usage: Usage


class Finished(msgspec.Struct, frozen=True):
    """The provider's own end marker."""

    reason: Finish


ModelDelta: TypeAlias = TextDelta | ReasoningDelta | ReasoningEnd | CallDelta | UsageDelta | Finished


@runtime_checkable
class Model(Protocol):
    """One model of one provider."""

    @property
    def provider(self) -> str:
        """The provider's name, recorded in `request/header`."""
        ...

    @property
    def model(self) -> str:
        """The model's name, recorded in `request/header`."""
        ...

    @property
    def settings(self) -> dict[str, Json]:
        """What else shapes its requests (temperature, output limit …), recorded in `request/header`."""
        ...

    def body(self, request: ModelRequest) -> dict[str, Json]:
        """The request as it goes over the wire."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelDelta]:
        """Send the request when the first delta is pulled, and stream the answer.

        Raises:
            ModelError: see rule 3.
        """
        ...

    async def close(self) -> None:
        """Release connections. Idempotent."""
        ...


@contextlib.asynccontextmanager
async def closing_stream(stream: AsyncIterator[ModelDelta]) -> AsyncIterator[AsyncIterator[ModelDelta]]:
    """A stream that is closed at the end of the block, so that whoever stops early also ends the request."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
