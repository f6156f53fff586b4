"""What stands in a log beside events: its header, packed runs of chunks, and events of types unknown here.

None of these is an event. `events` gives them on, so that one name is enough for all that a log holds.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, final

import msgspec

from fencepost.core.record import Event

Delta: TypeAlias = Literal["text", "reasoning"]


@final
class ChunkRun(
    msgspec.Struct,
    frozen=True,
    gc=False,
    tag_field="type",
    tag="assistant/chunks",
    rename={"packed": "deltas", "apart": "dt"},
):
    """A storage form, not an event: `n` consecutive chunks of one step and kind, with their times as differences.

    `codec.pack` makes runs and `codec.expand` gives the very same events back. Texts and times stay the JSON that they
    are on disk until someone asks for them: a log of a million chunks opens without making a million strings.
    """

    seq: int
    time: int
    n: int
    turn: int
    step: int
    kind: Delta
    apart: msgspec.Raw
    packed: msgspec.Raw

    @property
    def deltas(self) -> list[str]:
        """The texts of the chunks. Decoded at each call."""
        return _texts(self.packed)

    @property
    def dt(self) -> list[int]:
        """Milliseconds from each chunk to the next. Decoded at each call."""
        return _times(self.apart)

    @property
    def last_seq(self) -> int:
        """Sequence number of the last chunk in the run."""
        return self.seq + self.n - 1

    @property
    def last_time(self) -> int:
        """Time of the last chunk in the run, in epoch milliseconds."""
        return self.time + sum(self.dt)


_texts = msgspec.json.Decoder(list[str]).decode
_times = msgspec.json.Decoder(list[int]).decode


@final
class UnknownEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a type that is not declared here: kept to the byte, shown and exported, never interpreted."""

    seq: int
    time: int
    type: str
    raw: bytes
    ignorable: bool


Entry: TypeAlias = Event | ChunkRun | UnknownEvent


class Header(msgspec.Struct, frozen=True, tag_field="type", tag="session", omit_defaults=True):
    """What a session is, written once with its first batch. Not an event."""

    session: str
    created: int
    cwd: str
    format: int
    parent: str | None = None
    """The session that this one was forked from, or salvaged from. It may be gone."""
    forked_at: int | None = None
    """The last event that both have."""
    salvaged_at: int | None = None
    """Where the parent is damaged first: a byte (files) or a row (databases), -1 where that cannot be said. Its intact
    parts are here."""
