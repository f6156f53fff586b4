"""Small logs to store: entries whose seq one can see, and what comes back of them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from fencepost.core import codec
from fencepost.core import events as ev
from fencepost.stores.base import StoredLog


def header(session: str = "s1") -> ev.Header:
    """The header of a session."""
    return ev.Header(session, created=1_700_000_000_000, cwd="/home/ada", format=codec.FORMAT)


def note(seq: int, text: str = "") -> ev.ToolNote:
    """One entry that tells its seq."""
    return ev.ToolNote(seq, 1_700_000_000_000 + seq, f"c{seq}", text or f"note {seq}")


def notes(first: int, count: int, text: str = "") -> list[ev.Entry]:
    """Some entries in a row."""
    return [note(seq, text) for seq in range(first, first + count)]


def turn_with_call(first: int = 0, call_id: str = "call-1") -> list[ev.Entry]:
    """An open turn whose answer asks for one call, in five entries; the `tool/call` would be the sixth."""
    time = 1_700_000_000_000
    return [
        ev.SessionOwner(first, time, "owner", 1, resumed=False),
        ev.TurnStart(first + 1, time, 1, ("step", "request", "tool"), "checkpoint"),
        ev.StepStart(first + 2, time, 1, 1),
        ev.UserMessage(first + 3, time, "m1", (ev.Text("send it"),), "user"),
        ev.AssistantMessage(
            first + 4, time, 1, 1, "m2", (ev.CallRequest(call_id, "send_mail", '{"to":"ada"}'),), "tool_calls"
        ),
    ]


def call(seq: int, call_id: str = "call-1") -> ev.ToolCall:
    """The call of `turn_with_call`, admitted."""
    return ev.ToolCall(seq, 1_700_000_000_000, 1, 1, call_id, "send_mail", {"to": "ada"}, "write")


def lines_of(entries: Iterable[ev.Entry]) -> list[bytes]:
    """The canonical bytes of entries, runs expanded: what is compared."""
    return [codec.encode(event) for entry in entries for event in codec.expand(entry)]


def is_prefix(stored: StoredLog, appended: Iterable[ev.Entry]) -> bool:
    """Whether what is stored is a prefix of what was appended (law 6)."""
    have, want = lines_of(stored.entries), lines_of(appended)
    return have == want[: len(have)]


def batch(entries: Iterable[ev.Entry], before: bytes = b"") -> bytes:
    """A batch as the format says, written without the store's code: lines, then their checksum over `before` too."""
    entries = list(entries)
    lines = b"".join(codec.encode(entry) + b"\n" for entry in entries)
    crc = zlib.crc32(before + lines)
    return before + lines + f'{{"type":"commit","seq":{codec.last_seq(entries[-1])},"crc":"{crc:08x}"}}\n'.encode()


def log_bytes(*batches: Iterable[ev.Entry], session: str = "s1") -> bytes:
    """A whole log."""
    first, *others = batches
    return batch(first, codec.encode(header(session)) + b"\n") + b"".join(map(batch, others))
