"""Approval: which calls may run without asking, and asking for the others.

    mode     read tools               other tools              leaving the working directory
    ask      pass                     a person is asked        a person is asked
    read     pass                     denied                   denied
    all      pass                     pass                     pass
    none     denied                   denied                   denied

A call that a rule allows (`rules`) passes in every mode but `none`. A policy that refuses is heard before anybody is
asked (`Position.ASK`).

Asking and the answer are recorded; the question is durable before a person sees it, so that after a crash the log
knows the call that they were thinking about. It is void then: the call was not admitted, and is `not_started`.
"Always" counts for one session and for what the person chose (`approval_scopes`), and is read back from the log.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.plugins.approval_scopes import Choice as Choice
from fencepost.plugins.approval_scopes import Remembering, choices, fits
from fencepost.plugins.approval_scopes import Verdict as Verdict
from fencepost.plugins.folded import Folded
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Admission, Candidate, Deny

Mode: TypeAlias = Literal["ask", "read", "all", "none"]
MODES: tuple[Mode, ...] = ("ask", "read", "all", "none")


class Question(msgspec.Struct, frozen=True):
    """What a person is asked about one call.

    Attributes:
        session: the session's id.
        call_id: the call's. Void once the session was closed or its process killed.
        tool: its name.
        arguments: what it would be called with.
        effect: what it would do to the world.
        reason: why somebody is asked, as half a sentence.
        choices: ways to say "always", beside "once" and "no"; the narrowest first.
    """

    session: str
    call_id: str
    tool: str
    arguments: dict[str, ev.Json]
    effect: ev.Effect
    reason: str
    choices: tuple[Choice, ...] = ()


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
        self._remembered = Folded(Remembering)

    def apply(self, context: PluginContext) -> None:
        """Stand behind the policies, which may refuse a call that nobody then needs to be asked about."""
        context.hook(lambda hooks: hooks.tool_admit, Position.ASK, self._admit)

    async def _admit(self, call: Candidate, go_on: Callable[[Candidate], Awaitable[Admission]]) -> Admission:
        warning = call.warning
        if self.mode == "all" or (self.mode != "none" and _passes(call, warning)):
            return await go_on(call)
        reason = warning or f"it is declared {call.effect}"
        if self.mode != "ask" or self._ask is None:
            return Deny(_denied(call, reason, self.mode))
        if self._remembered.of(call.journal.log).covers(call, warning, _wording(call, reason)):
            return await go_on(call)
        verdict = await self._question(call, reason, warning, self._ask)
        if not verdict.allowed:
            return Deny(f"{verdict.by} said no to {call.tool.name}" + (f": {verdict.reason}" if verdict.reason else ""))
        return await go_on(call)

    async def _question(self, call: Candidate, reason: str, warning: str | None, ask: Ask) -> Verdict:
        name, offered = call.tool.name, choices(call, warning)
        call.journal.append(ev.ApprovalAsked, call_id=call.call_id, question=_wording(call, reason))
        await call.journal.flush()
        session = call.journal.session
        verdict = await ask(Question(session, call.call_id, name, call.arguments, call.effect, reason, offered))
        kept = verdict.allowed and verdict.remember
        if kept and verdict.scope in {"prefix", "directory"}:
            kept = fits(verdict.scope, verdict.pattern, call, warning)
        call.journal.append(
            ev.ApprovalDecided,
            call_id=call.call_id,
            allowed=verdict.allowed,
            by=verdict.by,
            remember=kept,
            scope=verdict.scope if kept else "tool",
            pattern=verdict.pattern if kept else "",
        )
        return verdict


def _passes(call: Candidate, warning: str | None) -> bool:
    return bool(call.allowed_by) or (call.effect == "read" and warning is None)


def _wording(call: Candidate, reason: str) -> str:
    return f"{call.tool.name}: {reason}"


def _denied(call: Candidate, reason: str, mode: Mode) -> str:
    if mode == "none":
        return f"{call.tool.name} was not approved: no call is, under --approve none"
    return (
        f"{call.tool.name} was not approved: {reason}, and nobody can be asked. "
        "The user can allow it with --approve all or with a rule, or answer on a terminal with --approve ask"
    )
