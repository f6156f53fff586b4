"""A stored session without its secrets: the same events, their texts cleaned, before any format sees them.

What holds a log together stays: types, numbers, ids, names of tools. Streamed chunks of one answer are one text that
was cut anywhere, so they are looked at as one; the same holds for pieces of one message. What cannot be read as an
event here is cleaned as the JSON that it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from fencepost.apps.cli.secrets import Secrets
from fencepost.core import events as ev
from fencepost.core.codec import encode, expand
from fencepost.stores.base import StoredLog

_KEPT = frozenset(
    (
        *("type", "seq", "time", "turn", "step", "call_id", "input_id", "message_id", "parent", "target", "effect"),
        *("finish", "kind", "gates", "epoch", "name", "session", "format", "normalised", "ignorable"),
        *("scope", "settled_by"),
    )
)
"""Fields of an event that are never text of a person, a model or a tool."""

_KEPT_IN_BLOCKS = frozenset({"type", "call_id", "provider_id", "name", "effect"})

_FIXED_REASONS = (ev.TurnEnd, ev.RequestHeader)


def redacted(stored: StoredLog, secrets: Secrets) -> StoredLog:
    """The session without what `secrets` finds, on both sides of damage."""
    entries, beyond = _expanded(stored.entries), _expanded(stored.beyond)
    chunks = _chunks([*entries, *beyond], secrets)
    header = stored.header
    return msgspec.structs.replace(
        stored,
        header=msgspec.structs.replace(header, cwd=secrets.text(header.cwd)) if header else None,
        entries=tuple(_clean(entries, chunks, secrets)),
        beyond=tuple(_clean(beyond, chunks, secrets)),
        damage=tuple(msgspec.structs.replace(one, reason=secrets.text(one.reason)) for one in stored.damage),
    )


def _expanded(entries: Iterable[ev.Entry]) -> list[ev.Event | ev.UnknownEvent]:
    return [event for entry in entries for event in expand(entry)]


def _chunks(events: Sequence[ev.Event | ev.UnknownEvent], secrets: Secrets) -> dict[int, str]:
    """The clean text of each chunk, by the identity of the chunk: seqs may stand twice in a damaged log."""
    open_runs: dict[str, list[ev.AssistantChunk]] = {}
    clean: dict[int, str] = {}

    def close() -> None:
        for run in open_runs.values():
            texts = secrets.texts([chunk.delta for chunk in run])
            clean.update((id(chunk), text) for chunk, text in zip(run, texts, strict=True))
        open_runs.clear()

    place = None
    for event in events:
        if isinstance(event, ev.AssistantChunk):
            if place != (event.turn, event.step):
                close()
                place = event.turn, event.step
            open_runs.setdefault(event.kind, []).append(event)
        elif isinstance(event, ev.RequestRetry | ev.AssistantMessage | ev.StepEnd):
            close()
    close()
    return clean


def _clean(
    events: Iterable[ev.Event | ev.UnknownEvent], chunks: dict[int, str], secrets: Secrets
) -> Iterator[ev.Event | ev.UnknownEvent]:
    for event in events:
        if isinstance(event, ev.AssistantChunk):
            yield msgspec.structs.replace(event, delta=chunks[id(event)])
        else:
            yield _event(event, secrets)


def _event(event: ev.Event | ev.UnknownEvent, secrets: Secrets) -> ev.Event | ev.UnknownEvent:
    hidden = secrets.hidden.total()
    raw = encode(event)
    kept = _KEPT | {"reason"} if isinstance(event, _FIXED_REASONS) else _KEPT
    fields = _record(msgspec.json.decode(raw), kept, secrets)
    if secrets.hidden.total() == hidden:
        return event
    if isinstance(event, ev.UnknownEvent):
        return msgspec.structs.replace(event, raw=msgspec.json.encode(fields))
    return msgspec.convert(fields, type(event))


def _record(fields: dict[str, ev.Json], kept: frozenset[str], secrets: Secrets) -> dict[str, ev.Json]:
    return {name: value if name in kept else _field(name, value, secrets) for name, value in fields.items()}


def _field(name: str, value: ev.Json, secrets: Secrets) -> ev.Json:
    if name not in {"content", "tools"} or not isinstance(value, list):
        return secrets.json(value)
    blocks = [_record(item, _KEPT_IN_BLOCKS, secrets) for item in _joined(value, secrets) if isinstance(item, dict)]
    return [*blocks] if len(blocks) == len(value) else secrets.json(value)


def _joined(blocks: list[ev.Json], secrets: Secrets) -> list[ev.Json]:
    """The blocks, their texts cleaned as pieces of one text where they follow one another."""
    texts = [block["text"] for block in blocks if isinstance(block, dict) and isinstance(block.get("text"), str)]
    if len(texts) < 2 or len(texts) < len(blocks):
        return blocks
    clean = secrets.texts([str(text) for text in texts])
    return [{**block, "text": text} for block, text in zip(blocks, clean, strict=True) if isinstance(block, dict)]
