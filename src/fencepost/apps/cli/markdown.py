"""A stored session as Markdown, for people who read it somewhere else.

Turns are chapters; what was said is quoted, or stands in a fence, so that nothing in it can pass for a heading of the
session. Both sides of damage are there, with the place between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from fencepost.apps.cli.lines import gaps, intact
from fencepost.apps.cli.plain import plain
from fencepost.core import events as ev
from fencepost.journal.inspect import CallView, Reading, examine, state_of, title_of

_TICKS = re.compile(r"`+")


def markdown(reading: Reading) -> Iterator[str]:
    """The paragraphs, each without the empty line behind it."""
    stored = reading.stored
    state, problem = state_of(reading)
    yield f"# {_line(title_of(stored.entries) or stored.session)}"
    facts = [f"- session: `{_line(stored.session)}`", f"- state: {state}"]
    facts += [f"- problem: {_line(problem)}"] if problem else []
    facts += [f"- directory: `{_line(stored.header.cwd)}`"] if stored.header else []
    facts += [f"- parent: `{_line(stored.header.parent)}`"] if stored.header and stored.header.parent else []
    yield "\n".join(facts)
    calls = {call.call_id: call for call in examine(reading).calls}
    for entry in intact(reading):
        yield from _entry(entry, calls)
    for gap in gaps(reading):
        where = "" if gap.offset is None else f" at {gap.unit} {gap.offset}"
        yield f"> **Damaged{where}**: {_line(gap.reason)}"
    for entry in reading.beyond:
        yield from _entry(entry, calls)


def _entry(entry: ev.Entry, calls: dict[str, CallView]) -> Iterator[str]:
    match entry:
        case ev.TurnStart():
            yield f"## Turn {entry.turn}"
        case ev.UserMessage():
            yield f"**{_line(entry.source)}**"
            yield _quoted(ev.text_of(entry.content))
        case ev.AssistantMessage():
            yield from _answer(entry, calls)
        case ev.ToolResult():
            sign = f" `{_line(entry.code)}`" if entry.code else ""
            by = f" *(settled by {_line(entry.settled_by)}: {_line(entry.evidence)})*" if entry.settled_by else ""
            yield f"**result** of `{_line(entry.call_id)}`{sign}{by}"
            yield _fenced(ev.text_of(entry.content))
        case ev.ToolNote():
            yield f"**note** on `{_line(entry.call_id)}`: {_line(entry.text)}"
        case ev.InputDropped():
            yield f"*prompt `{_line(entry.input_id)}` dropped: {_line(entry.reason)}*"
        case ev.TurnEnd() if entry.reason != "completed":
            why = f": {_line(entry.code)} {_line(entry.message)}".rstrip() if entry.code else ""
            yield f"*turn {entry.turn} ended: {entry.reason}{why}*"
        case ev.ContextSummary():
            yield f"**summary** of all up to seq {entry.through}, which a model sees in its place from here on"
            yield _quoted(ev.text_of(entry.content))
        case ev.Gap():
            yield f"> **Gap**: {_line(entry.reason)}"
        case ev.Salvaged():
            yield "**salvaged record**"
            yield _fenced(entry.original, "json")
        case ev.UnknownEvent():
            yield f"**{_line(entry.type)}**"
            yield _fenced(entry.raw.decode(errors="replace"), "json")


def _answer(event: ev.AssistantMessage, calls: dict[str, CallView]) -> Iterator[str]:
    yield "**model**" + (" *(interrupted)*" if event.interrupted else "")
    thought = "".join(block.text for block in event.content if isinstance(block, ev.Reasoning))
    if thought.strip():
        yield "*thinking*"
        yield _quoted(thought)
    text = ev.text_of(event.content)
    if text.strip():
        yield _quoted(text)
    for call in ev.calls_of(event):
        view = calls.get(call.call_id)
        verdict = f" is **{view.verdict.replace('_', ' ')}**" if view else ""
        yield f"**call** `{_line(call.name)}` (`{_line(call.call_id)}`){verdict}"
        yield _fenced(_pretty(call.arguments), "json")


def _pretty(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    except (ValueError, RecursionError):
        return arguments


def _line(text: str) -> str:
    return plain(" ".join(text.split())).replace("`", "'")


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in plain(text).split("\n"))


def _fenced(text: str, language: str = "") -> str:
    """A block of code whose fence is longer than any in it."""
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{plain(text)}\n{fence}"
