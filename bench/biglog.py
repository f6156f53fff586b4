"""A log of 1.3 million events, laid down as a writer would have: the batches of the gates, and of the windows between.

10,000 steps, each of an answer of 125 chunks, one call and its result. The chunks come at 80 a second, so a window of
200 ms packs 16 of them into one run.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from pathlib import Path

from bench.disks import UnsyncedDisk
from bench.live import STEP_GATES
from fencepost.core import events as ev
from fencepost.core.codec import FORMAT, last_seq, pack
from fencepost.stores.base import Store
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.urls import open_store

SESSION = "big"
STEPS = 10_000
STEPS_PER_TURN = 100
CHUNKS = 125
IN_A_WINDOW = 16
CHUNK_MS = 12

WORDS = (
    " the",
    " gate",
    " holds",
    " un",
    "til",
    " every",
    " byte",
    " is",
    " dur",
    "able",
    ",",
    " then",
    " it",
    " opens",
)


def lay_down(url: str, steps: int = STEPS) -> int:
    """Write the session `big` into a store; returns how many events it has."""
    return asyncio.run(_write(url, steps))


async def _write(url: str, steps: int) -> int:
    scheme, _, rest = url.partition(":")
    files = scheme == "jsonl"
    store: Store = JsonlStore(Path(rest), disk=UnsyncedDisk()) if files else open_store(url)
    handle = await store.create(ev.Header(SESSION, _Pen.begun, "/home/ada/project", FORMAT))
    seq = 0
    batches = (list(pack(batch)) for batch in _Pen().batches(steps))
    # A database keeps a row for each entry, however they came: many batches in one commit, to be done sooner.
    for packed in batches if files else _joined(batches):
        await handle.append(packed, seq)
        seq = last_seq(packed[-1]) + 1
    await store.close()
    return seq


def _joined(batches: Iterator[list[ev.Entry]], size: int = 5000) -> Iterator[list[ev.Entry]]:
    entries = itertools.chain.from_iterable(batches)
    while part := list(itertools.islice(entries, size)):
        yield part


class _Pen:
    """Makes the events, with dense seqs and a clock that goes on by itself."""

    begun = 1_760_000_000_000

    def __init__(self) -> None:
        self._seq = 0
        self._now = self.begun

    def _next(self, later: int = 0) -> tuple[int, int]:
        self._now += later
        self._seq += 1
        return self._seq - 1, self._now

    def batches(self, steps: int) -> Iterator[list[ev.Event]]:
        """One batch for each write."""
        yield [ev.SessionOwner(*self._next(), owner="4711@host", epoch=1, resumed=False)]
        for first in range(0, steps, STEPS_PER_TURN):
            turn = first // STEPS_PER_TURN + 1
            yield [ev.InputQueued(*self._next(900), input_id=f"i_{turn}", target="turn", content=_text("Go on."))]
            yield [ev.TurnStart(*self._next(), turn=turn, gates=STEP_GATES, policy="checkpoint")]
            for step in range(1, min(STEPS_PER_TURN, steps - first) + 1):
                yield from self._step(turn, step)
            yield [ev.TurnEnd(*self._next(), turn=turn, reason="completed")]

    def _step(self, turn: int, step: int) -> Iterator[list[ev.Event]]:
        opening: list[ev.Event] = [ev.StepStart(*self._next(), turn=turn, step=step)]
        if step == 1:
            said = ev.UserMessage(
                *self._next(), message_id=f"m_{turn}", content=_text("Go on."), source="user", input_id=f"i_{turn}"
            )
            opening.append(said)
        yield opening
        deltas = [WORDS[(step + number) % len(WORDS)] for number in range(CHUNKS)]
        window: list[ev.Event] = []
        for delta in deltas:
            window.append(ev.AssistantChunk(*self._next(CHUNK_MS), turn=turn, step=step, delta=delta))
            if len(window) == IN_A_WINDOW:
                yield window
                window = []
        yield [*window, *self._asked(turn, step, "".join(deltas))]
        result = ev.ToolResult(
            *self._next(40), turn=turn, step=step, call_id=f"c_{turn}_{step}", content=_text("wrote 22 bytes")
        )
        yield [result, ev.StepEnd(*self._next(), turn=turn, step=step)]

    def _asked(self, turn: int, step: int, text: str) -> list[ev.Event]:
        call_id = f"c_{turn}_{step}"
        arguments: dict[str, ev.Json] = {"path": f"notes/{step}.md", "content": "Three gates, one log.\n"}
        call = ev.CallRequest(
            call_id, "write_file", f'{{"path":"notes/{step}.md","content":"Three gates, one log.\\n"}}'
        )
        answer = ev.AssistantMessage(
            *self._next(),
            turn=turn,
            step=step,
            message_id=f"a_{call_id}",
            content=(ev.Text(text), call),
            finish="tool_calls",
        )
        admitted = ev.ToolCall(
            *self._next(),
            turn=turn,
            step=step,
            call_id=call_id,
            name="write_file",
            arguments=arguments,
            effect="idempotent",
        )
        return [answer, admitted]


def _text(text: str) -> tuple[ev.Text, ...]:
    return (ev.Text(text),)
