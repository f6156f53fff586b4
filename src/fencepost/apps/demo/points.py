"""The points at which the demo kills, and what must then be true.

The agent has one call with an effect: the shell appends a line to `outbox.txt`. The world is the number of lines
there; the log is what it says about that call. A row is right if the verdict is the expected one and does not
contradict the world: no `not_started` for an effect that happened, no `completed` for one that did not.

A command lives on when its agent is killed. It is let finish before the world is looked at, and leaves a receipt: what
`fencepost demo --settle` then says of it, beside the log alone, is compared with the world too.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from fencepost.apps.demo.pause import PausePoint, When
from fencepost.core import events as ev

EFFECT = "printf 'sent\\n' >> outbox.txt"
MARKER = "reached"
GO = "go"
MARK = f"printf 'reached\\n' > {MARKER}"
WAIT = f"n=0; until [ -e {GO} ] || [ $n -gt 3000 ]; do n=$((n+1)); sleep 0.02; done"
"""Waits until somebody says that it may go on, or a minute."""
TASK = "Send the message once, check that it went out, and write a report."


class KillPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the demo.

    Attributes:
        name: as printed.
        key: for directories and command lines.
        command: what the model asks the shell to run.
        verdict: expected for that call, of the log alone; None where it was never asked for.
        settled: the same when its receipt was looked at; the same as `verdict` if not given.
        effects: expected lines in the outbox.
        hold: chunks of the first answer after which the model server stops talking; None: it never does.
        store: where the store stops, as (when, event type).
        ask: the approval question is asked and never answered.
        repair: the first process is killed at `effect-done`; a second one, which repairs, stops here.
    """

    name: str
    key: str
    command: str = EFFECT
    verdict: str | None
    settled: str | None = None
    effects: int
    hold: int | None = None
    store: tuple[When, type[ev.Event]] | None = None
    ask: bool = False
    repair: bool = False

    def pause(self, marker: Path) -> PausePoint | None:
        """Where the store stops, if it does."""
        if self.store is None:
            return None
        when, kind = self.store
        return PausePoint(when, lambda entry: isinstance(entry, kind), marker)


POINTS: tuple[KillPoint, ...] = (
    KillPoint(name="model request in flight", key="request-in-flight", verdict=None, effects=0, hold=0),
    KillPoint(name="reply streamed halfway", key="reply-halfway", verdict=None, effects=0, hold=3),
    KillPoint(name="approval pending", key="approval-pending", verdict="not_started", effects=0, ask=True),
    KillPoint(
        name="tool gate passed, body not entered",
        key="gate-passed",
        verdict="outcome_unknown",
        settled="not_started",
        effects=0,
        store=("after", ev.ToolCall),
    ),
    KillPoint(
        name="body entered, before its effect",
        key="body-entered",
        command=f"{MARK}; {WAIT}; {EFFECT}",
        verdict="outcome_unknown",
        settled="completed",
        effects=1,
    ),
    KillPoint(
        name="effect done, not returned",
        key="effect-done",
        command=f"{EFFECT}; {MARK}; {WAIT}",
        verdict="outcome_unknown",
        settled="completed",
        effects=1,
    ),
    KillPoint(
        name="result appended, not flushed",
        key="result-appended",
        verdict="outcome_unknown",
        settled="completed",
        effects=1,
        store=("before", ev.ToolResult),
    ),
    KillPoint(
        name="result durable",
        key="result-durable",
        verdict="completed",
        effects=1,
        store=("after", ev.ToolResult),
    ),
    KillPoint(
        name="during repair, before its records",
        key="repair-before",
        command=f"{EFFECT}; {MARK}; {WAIT}",
        verdict="outcome_unknown",
        settled="completed",
        effects=1,
        store=("before", ev.SessionOwner),
        repair=True,
    ),
    KillPoint(
        name="during repair, behind its records",
        key="repair-behind",
        command=f"{EFFECT}; {MARK}; {WAIT}",
        verdict="completed",
        effects=1,
        store=("after", ev.SessionOwner),
        repair=True,
    ),
)


def answers(point: KillPoint) -> list[dict[str, ev.Json]]:
    """What the scripted model says, in OpenAI chat form: send, verify, report, done."""
    return [
        {
            "content": "I will send the message with the shell, then check the outbox.",
            "tool_calls": [_call("call_send", "shell", {"command": point.command})],
        },
        {
            "content": "Before anything is repeated I look at what really happened.",
            "tool_calls": [_call("call_verify", "read_file", {"path": "outbox.txt"})],
        },
        {
            "content": "The outbox holds the message once. I write the report.",
            "tool_calls": [
                _call("call_report", "write_file", {"path": "report.md", "content": "The message was sent once.\n"})
            ],
        },
        {"content": "Done: the message was sent exactly once, and report.md says so."},
    ]


def _call(identity: str, name: str, arguments: dict[str, ev.Json]) -> dict[str, ev.Json]:
    text = msgspec.json.encode(arguments).decode()
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": text}}
