"""From the calls of an answer to their results. Every call gets exactly one result on every way out (law 5).

A call goes through these hands, in this order; each step can only be reached through the one before:

    prepare     find the tool, parse and validate the arguments, ask the policies      -> Candidate, or a result
    admit       append `tool/call`                                                      -> Admitted
    gate        the hook at `tool_execute`'s innermost position                         -> Cleared
    enter       run the body, once, with a limit and the cancel signal                  -> ToolReply
    finish      shape and append `tool/result`, at once

Scheduling: calls are prepared in the model's order. Tools that overlap run together, up to a limit; any other call
waits for those before it and runs alone. Results are appended in the order in which calls finish.

Unknown is a live verdict: once a body was entered, a timeout, a cancel or a lost connection ends as
`TOOL_OUTCOME_UNKNOWN`, in the words that repair uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.errors import FencepostError, NotSavedError
from fencepost.journal.session import Journal
from fencepost.runtime.answer import parse_arguments
from fencepost.runtime.body import Ending, run_body
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.hooks import Hooks
from fencepost.runtime.schema import validate
from fencepost.runtime.subjects import Admission, Admit, Admitted, Candidate, Cleared, Deny, Done, Notice
from fencepost.runtime.tools import CallContext, Tool, ToolReply

PARALLEL = 8
"""Overlapping calls at most, by default."""


class ToolRules(msgspec.Struct, frozen=True):
    """Settings of the tool pipeline.

    Attributes:
        parallel: overlapping calls at most.
        settle: seconds that a running body gets to finish by itself after a cancel.
        drain: seconds that it gets after it was told to stop, before it is given up on.
    """

    parallel: int = PARALLEL
    settle: float = 0.5
    drain: float = 2.0


class ToolRun:
    """The calls of one step.

    Args:
        journal: where calls and results are recorded.
        hooks: what stands around each call.
        tools: by name.
        context: makes what a body may know from a call id, the cancel signal and a progress callback.
        notify: told what people should see now.
        cancel: the turn's signal.
    """

    def __init__(
        self,
        journal: Journal,
        hooks: Hooks,
        tools: Mapping[str, Tool],
        context: Callable[[str, CancelSignal], CallContext],
        notify: Callable[[Notice], None],
        cancel: CancelSignal,
        rules: ToolRules,
    ) -> None:
        self._journal = journal
        self._hooks = hooks
        self._tools = tools
        self._context = context
        self._notify = notify
        self._cancel = cancel
        self._rules = rules
        self._running: set[asyncio.Task[None]] = set()
        self._fault: BaseException | None = None

    async def run(self, turn: int, step: int, calls: tuple[ev.CallRequest, ...]) -> None:
        """Run the calls of one answer; when this returns or raises, each has its result."""
        try:
            for call in calls:
                await self._one(turn, step, call)
        finally:
            await self._join()
            for call in calls:
                if self._journal.log.fold.calls[call.call_id].result is None:
                    self._refuse(turn, step, call.call_id, v.ABORTED_BEFORE_DISPATCH, "the step ended before it")
        if self._fault is not None:
            raise self._fault

    def _stopped(self) -> bool:
        return self._cancel.cancelled

    async def _one(self, turn: int, step: int, call: ev.CallRequest) -> None:
        prepared = await self._prepare(turn, step, call)
        if prepared is None:
            return
        if not prepared.tool.overlaps or len(self._running) >= self._rules.parallel:
            await self._make_room(prepared.tool)
        if self._stopped():
            self._aborted(turn, step, call.call_id)
            return
        task = asyncio.create_task(self._execute(self._admit(prepared)), name=f"tool {prepared.tool.name}")
        self._running.add(task)
        task.add_done_callback(self._finished)
        if not prepared.tool.overlaps:
            await self._join()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._fault = self._fault or task.exception()

    async def _make_room(self, tool: Tool) -> None:
        if not tool.overlaps:
            await self._join()
            return
        while len(self._running) >= self._rules.parallel:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    async def _join(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    # --- prepare ------------------------------------------------------------------------------------------------

    async def _prepare(self, turn: int, step: int, call: ev.CallRequest) -> Candidate | None:
        """The call as a candidate that every policy let pass; None where it got its result already."""
        if self._stopped():
            self._aborted(turn, step, call.call_id)
            return None
        tool = self._tools.get(call.name)
        if tool is None:
            names = ", ".join(sorted(self._tools)) or "none"
            self._refuse(turn, step, call.call_id, v.UNKNOWN_TOOL, f"there is no tool {call.name!r}; tools: {names}")
            return None
        arguments = _arguments(tool, call.arguments)
        if isinstance(arguments, str):
            self._refuse(turn, step, call.call_id, v.INVALID_ARGUMENTS, f"the arguments are not valid: {arguments}")
            return None
        candidate = Candidate(self._journal, turn, step, call.call_id, tool, arguments, self._cancel)
        decision = await self._decide(candidate)
        if self._stopped():
            self._aborted(turn, step, call.call_id)
            return None
        if isinstance(decision, Deny):
            self._refuse(turn, step, call.call_id, v.DENIED, decision.reason)
            return None
        return candidate

    async def _decide(self, candidate: Candidate) -> Admission:
        try:
            return await self._hooks.tool_admit.bind(_let_pass)(candidate)
        except Exception as error:  # noqa: BLE001 - a policy that breaks must not let the call pass, nor end the turn
            self._fault = self._fault or (None if isinstance(error, FencepostError) else error)
            return Deny(f"a policy failed, so the call was not let through: {_sentence(error)}")

    def _admit(self, candidate: Candidate) -> Admitted:
        event = self._journal.append(
            ev.ToolCall,
            turn=candidate.turn,
            step=candidate.step,
            call_id=candidate.call_id,
            name=candidate.tool.name,
            arguments=candidate.arguments,
            effect=candidate.tool.effect,
            parent=candidate.parent,
        )
        return Admitted(candidate, event)

    # --- execute ------------------------------------------------------------------------------------------------

    async def _execute(self, admitted: Admitted) -> None:
        entered = Entered()

        async def innermost(call: Admitted) -> ToolReply:
            return await self._enter(call, entered)

        candidate = admitted.candidate
        try:
            reply = await self._hooks.tool_execute.bind(innermost)(admitted)
        except NotSavedError as error:
            reply = _refused(v.NOT_SAVED, f"the log could not be saved ({error}), so the call was not let go")
        except Exception as error:  # noqa: BLE001 - whatever a wrapper raises, the call is owed a result (law 5)
            reply = _broken(error, entered=entered.yes)
            self._fault = self._fault or error
        self._finish(candidate, await self._shape(Done(candidate, reply, admitted=True)))

    async def _enter(self, call: Admitted, entered: Entered) -> ToolReply:
        self._require_clearance(call)
        if self._stopped():
            return _refused(v.ABORTED_BEFORE_DISPATCH, f"the turn was cancelled ({self._cancel.reason})")
        candidate = call.candidate
        entered.yes = True
        context = self._context(candidate.call_id, self._cancel)
        ending = await run_body(
            candidate.tool, context, candidate.arguments, self._rules.settle, self._rules.drain, self._late(candidate)
        )
        return _reply(ending)

    def _require_clearance(self, call: Admitted) -> None:
        """Law 1, as a check: where a tool gate is in force a body takes no other proof than the gate's."""
        fold = self._journal.log.fold
        assert fold.turn is not None
        if "tool" not in fold.turn.gates:
            return
        if not isinstance(call, Cleared) or call.clearance.seq != call.event.seq:
            raise FencepostError(f"call {call.event.call_id} reached its body without the tool gate's clearance")

    def _late(self, candidate: Candidate) -> Callable[[str], None]:
        def note(text: str) -> None:
            self._notify(Notice("note", text, candidate.call_id))
            if not self._journal.closed:
                self._journal.append(ev.ToolNote, call_id=candidate.call_id, text=text)

        return note

    # --- finish -------------------------------------------------------------------------------------------------

    async def _shape(self, done: Done) -> ToolReply:
        async def as_is(subject: Done) -> ToolReply:
            return subject.reply

        try:
            return await self._hooks.tool_done.bind(as_is)(done)
        except Exception as error:  # noqa: BLE001 - a result that is known must not be lost to a broken observer
            self._fault = self._fault or error
            return done.reply

    def _finish(self, candidate: Candidate, reply: ToolReply) -> None:
        self._record(candidate.turn, candidate.step, candidate.call_id, reply)

    def _refuse(self, turn: int, step: int, call_id: str, code: str, why: str) -> None:
        self._record(turn, step, call_id, _refused(code, why))

    def _aborted(self, turn: int, step: int, call_id: str) -> None:
        why = f"the turn was cancelled ({self._cancel.reason})"
        self._refuse(turn, step, call_id, v.ABORTED_BEFORE_DISPATCH, why)

    def _record(self, turn: int, step: int, call_id: str, reply: ToolReply) -> None:
        unknown = reply.unknown
        self._journal.append(
            ev.ToolResult,
            turn=turn,
            step=step,
            call_id=call_id,
            content=(ev.Text(v.unknown_text(reply.text) if unknown else reply.text),),
            is_error=reply.is_error or unknown,
            code=v.TOOL_OUTCOME_UNKNOWN if unknown else reply.code,
        )


class Entered:
    """Whether the body of a call was entered: from there on nothing may be called "not started"."""

    yes = False


def _arguments(tool: Tool, text: str) -> dict[str, ev.Json] | str:
    """The arguments that the model wrote, or what is wrong with them."""
    parsed = parse_arguments(text)
    if isinstance(parsed, str):
        return parsed
    return validate(tool, parsed) or parsed


async def _let_pass(candidate: Candidate) -> Admission:  # noqa: ARG001 - the innermost end of a chain of policies
    return Admit()


def _refused(code: str, why: str) -> ToolReply:
    return ToolReply(v.not_started_text(why), is_error=True, code=code)


def _broken(error: Exception, *, entered: bool) -> ToolReply:
    why = f"fencepost met an internal fault ({_sentence(error)})"
    if entered:
        return ToolReply(why, unknown=True)
    return _refused(v.ABORTED_BEFORE_DISPATCH, why)


def _sentence(error: BaseException) -> str:
    text = str(error).strip() or "no message"
    return f"{type(error).__name__}: {text}"


def _reply(ending: Ending) -> ToolReply:
    """What a body's ending means for the model. A code of its own never says that it was not entered."""
    if ending.error is not None:
        return ToolReply(_sentence(ending.error), is_error=True, code="TOOL_ERROR")
    value: Any = ending.value
    if isinstance(value, ToolReply):
        if value.code in v.NOT_ENTERED or value.code == v.TOOL_OUTCOME_UNKNOWN:
            return ToolReply(value.text, is_error=True, code="TOOL_ERROR", unknown=value.unknown)
        return value
    return ToolReply(value if isinstance(value, str) else as_text(value))


def as_text(value: Any) -> str:
    """A value that is not text, as JSON text for the model; `repr` where JSON cannot carry it."""
    if value is None:
        return "done"
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        return repr(value)
