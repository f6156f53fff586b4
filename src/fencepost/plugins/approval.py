"""Approval: which calls may run without asking, and asking for the others.

    mode     read tools               other tools              leaving the working directory
    ask      pass                     a person is asked        a person is asked
    read     pass                     denied                   denied
    all      pass                     pass                     pass
    none     denied                   denied                   denied

Asking and the answer are recorded; the question is durable before a person sees it, so that after a crash the log
knows the call that they were thinking about. It is void then: the call was not admitted, and is `not_started`.
"Always" counts for one tool and one session, and is read back from the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Admission, Candidate, Deny

Mode: TypeAlias = Literal["ask", "read", "all", "none"]
MODES: tuple[Mode, ...] = ("ask", "read", "all", "none")


class Question(msgspec.Struct, frozen=True):
    """What a person is asked about one call."""

    session: str
    call_id: str
    tool: str
    arguments: dict[str, ev.Json]
    effect: ev.Effect
    reason: str


class Verdict(msgspec.Struct, frozen=True):
    """What the person said."""

    allowed: bool
    remember: bool = False
    by: str = "user"
    reason: str = ""


Ask: TypeAlias = Callable[[Question], Awaitable[Verdict]]


class Approval:
    """The plugin.

    Args:
        mode: see the module's table.
        ask: asks a person; needed for the mode `ask`.
    """

    name = "approval"
    requires: tuple[str, ...] = ()

    def __init__(self, mode: Mode = "read", ask: Ask | None = None) -> None:
        self.mode: Mode = mode
        self._ask = ask

    def apply(self, context: PluginContext) -> None:
        """Stand behind the policies, which may refuse a call that nobody then needs to be asked about."""
        context.hook(lambda hooks: hooks.tool_admit, Position.ASK, self._admit)

    async def _admit(self, call: Candidate, go_on: Callable[[Candidate], Awaitable[Admission]]) -> Admission:
        leaving = call.tool.guard(call.arguments, call.cwd) if call.tool.guard is not None else None
        if self.mode == "all" or (self.mode != "none" and call.effect == "read" and leaving is None):
            return await go_on(call)
        reason = leaving or f"it is declared {call.effect}"
        if self.mode != "ask" or self._ask is None:
            return Deny(_denied(call, reason, self.mode))
        if leaving is None and _remembered(call):
            return await go_on(call)
        verdict = await self._question(call, reason, self._ask)
        if not verdict.allowed:
            return Deny(f"{verdict.by} said no to {call.tool.name}" + (f": {verdict.reason}" if verdict.reason else ""))
        return await go_on(call)

    async def _question(self, call: Candidate, reason: str, ask: Ask) -> Verdict:
        call.journal.append(ev.ApprovalAsked, call_id=call.call_id, question=f"{call.tool.name}: {reason}")
        await call.journal.flush()
        verdict = await ask(
            Question(call.journal.session, call.call_id, call.tool.name, call.arguments, call.effect, reason)
        )
        call.journal.append(
            ev.ApprovalDecided,
            call_id=call.call_id,
            allowed=verdict.allowed,
            by=verdict.by,
            remember=verdict.remember and verdict.allowed,
        )
        return verdict


def _denied(call: Candidate, reason: str, mode: Mode) -> str:
    if mode == "none":
        return f"{call.tool.name} was not approved: no call is, under --approve none"
    return (
        f"{call.tool.name} was not approved: {reason}, and nobody can be asked. "
        "The user can allow it with --approve all, or answer on a terminal with --approve ask"
    )


def _remembered(call: Candidate) -> bool:
    """Whether a person said "always" to this tool earlier in the session."""
    log = call.journal.log
    for entry in log.entries:
        if type(entry) is ev.ApprovalDecided and entry.remember:
            earlier = log.fold.calls.get(entry.call_id)
            if earlier is not None and earlier.name == call.tool.name:
                return True
    return False
