"""One call, from request to result. Every call gets exactly one result on every way out (law 5).

A call goes through these hands, in this order; each step can only be reached through the one before:

    prepare     find the tool, parse and validate the arguments, ask the policies      -> Candidate, or a result
    admit       append `tool/call`                                                      -> Admitted
    gate        the hook at `tool_execute`'s innermost position                         -> Cleared
    enter       run the body, with a limit and the cancel signal                        -> ToolReply
    finish      shape and append `tool/result`, at once

Rules:
    1. The body gets the arguments that the log has, whatever a hook did to its own copy.
    2. A call with the effect `write` is entered once, however often a hook calls `next`.
    3. Once a body was entered, no result says "not started" but on the body's own word (law 2); a reply that is known
       is not lost to a hook that breaks, hangs or is cancelled behind it.
    4. A fault of a plugin, or of our own, gives its call a result too, and is reported afterwards.

What it refuses to be: a scheduler. Which call runs when is decided in `toolrun`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.log import CallRecord
from fencepost.core.repair import STARTED
from fencepost.errors import Cancelled, FencepostError, NotSavedError, UsageError
from fencepost.journal.session import Journal
from fencepost.runtime.answer import parse_arguments
from fencepost.runtime.body import run_body
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.hooks import Hooks, through
from fencepost.runtime.nesting import nesting_problem
from fencepost.runtime.replies import refused, sentence, sound, text_of, unknown
from fencepost.runtime.schema import validate
from fencepost.runtime.subjects import Admission, Admit, Admitted, Candidate, Cleared, Deny, Done, Notice
from fencepost.runtime.tools import CallContext, NestedGate, Tool, ToolReply
from fencepost.runtime.whereabouts import mark

PARALLEL = 8
"""Overlapping calls at most, by default."""

DEPTH = 8
"""Nested calls in one chain at most, by default."""


class ToolRules(msgspec.Struct, frozen=True):
    """Settings of the tool pipeline.

    Attributes:
        parallel: overlapping calls at most.
        settle: seconds that a running body gets to finish by itself after a cancel.
        drain: seconds that it, or a hook or a model, gets after it was told to stop, before it is given up on.
        depth: nested calls in one chain at most, below the model's own.
    """

    parallel: int = PARALLEL
    settle: float = 0.5
    drain: float = 2.0
    depth: int = DEPTH

    @property
    def bound(self) -> float:
        """Seconds within which a cancelled turn is over, if its store answers."""
        return self.settle + 2 * self.drain


class Site(msgspec.Struct, frozen=True):
    """Where the calls of one step run.

    Attributes:
        journal: where calls and results are recorded.
        hooks: what stands around each call.
        tools: by name.
        context: makes what a body may know from a call id and the cancel signal.
        notify: told what people should see now.
        cancel: the turn's signal.
        rules: see there.
        turn: of the step.
        step: its number.
    """

    journal: Journal
    hooks: Hooks
    tools: Mapping[str, Tool]
    context: Callable[[str, CancelSignal], CallContext]
    notify: Callable[[Notice], None]
    cancel: CancelSignal
    rules: ToolRules
    turn: int
    step: int


class _Life:
    """What became of one admitted call so far."""

    def __init__(self) -> None:
        self.entered = False
        self.reply: ToolReply | None = None
        """The body's own last word."""

    def known(self, code: str, why: str) -> ToolReply:
        """The body's reply; without one "unknown" if the body was entered, else a refusal with `code`."""
        if self.reply is not None:
            return self.reply
        return unknown(why) if self.entered else refused(code, why)


class Calls:
    """The hands that the calls of one step go through.

    Attributes:
        fault: the first thing that broke and was no outcome of a call; the step starts nothing more after it.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._journal = site.journal
        self._lives: dict[str, _Life] = {}
        self.fault: BaseException | None = None

    def stopped(self) -> str | None:
        """Why nothing more may start, or None."""
        if self._site.cancel.cancelled:
            return f"the turn was cancelled ({self._site.cancel.reason})"
        if self.fault is not None:
            return f"the step was stopped by a fault ({sentence(self.fault)})"
        return None

    # --- prepare ------------------------------------------------------------------------------------------------

    async def prepare(self, call: ev.CallRequest) -> Candidate | None:
        """The call as a candidate that every policy let pass; None where it got its result already."""
        if self.abort_if_stopped(call.call_id):
            return None
        found = self._find(call.name, parse_arguments(call.arguments))
        if isinstance(found, ToolReply):
            self.record(call.call_id, found)
            return None
        tool, arguments = found
        site = self._site
        candidate = Candidate(self._journal, site.turn, site.step, call.call_id, tool, arguments, site.cancel)
        denied = await self._denied(candidate)
        if denied is None:
            await self._vouch(candidate)
            return candidate
        if site.cancel.cancelled:
            self.abort_if_stopped(call.call_id)
        else:
            self.record(call.call_id, await self._shape(Done(candidate, denied, admitted=False)))
        return None

    def _find(self, name: str, arguments: dict[str, Any] | str) -> tuple[Tool, dict[str, Any]] | ToolReply:
        """The tool and arguments that fit it, or what is wrong with them."""
        tool = self._site.tools.get(name)
        if tool is None:
            names = ", ".join(sorted(self._site.tools)) or "none"
            return refused(v.UNKNOWN_TOOL, f"there is no tool {name!r}; tools: {names}")
        wrong = arguments if isinstance(arguments, str) else validate(tool, arguments)
        if wrong is not None:
            return refused(v.INVALID_ARGUMENTS, f"the arguments are not valid: {wrong}")
        assert not isinstance(arguments, str)
        return tool, arguments

    async def _denied(self, candidate: Candidate) -> ToolReply | None:
        """The refusal of a policy, or None where all of them let the call pass. What is no `Admit` is a refusal."""
        site = self._site
        try:
            decision = await through(site.hooks.tool_admit, candidate, _let_pass, site.cancel, site.rules.drain)
            if isinstance(decision, Admit):
                return None
            if not isinstance(decision, Deny):
                raise TypeError(f"a hook at tool_admit gave {type(decision).__name__}, neither Admit nor Deny")
            return refused(v.DENIED, str(decision.reason))
        except NotSavedError as error:
            return refused(v.NOT_SAVED, f"the log could not be saved ({error})")
        except Exception as error:  # noqa: BLE001 - a policy that breaks must not let the call pass
            if not isinstance(error, FencepostError):
                self.fault = self.fault or error
            return refused(v.DENIED, f"a policy failed, so the call was not let through: {sentence(error)}")

    async def _vouch(self, candidate: Candidate) -> None:
        """Mark where receipts are kept, before anything is let go that may leave one."""
        if candidate.tool.settle is not None:
            files = self._site.context(candidate.call_id, self._site.cancel).files
            await mark(files, self._journal.identity.clock)

    # --- admit, gate, enter -------------------------------------------------------------------------------------

    def admit(self, candidate: Candidate, retries: int | None = None) -> Admitted:
        """Append `tool/call`: from here on only the gate stands before the body."""
        event = self._journal.append(
            ev.ToolCall,
            turn=candidate.turn,
            step=candidate.step,
            call_id=candidate.call_id,
            name=candidate.tool.name,
            arguments=candidate.arguments,
            effect=candidate.effect,
            parent=candidate.parent,
            retries=retries,
        )
        return Admitted(candidate, event)

    async def again(self, record: CallRecord) -> None:
        """Let a call go once more that a crash left without a result; see `rerun`."""
        before, site = record.admitted, self._site
        assert before is not None, "only a call that was let go can be let go again"
        arguments = msgspec.to_builtins(before.arguments)
        tool = site.tools[record.name]
        candidate = Candidate(
            self._journal, record.turn, record.step, record.call_id, tool, arguments, site.cancel, before.parent
        )
        await self._vouch(candidate)
        await self.execute(self.admit(candidate, retries=before.seq))

    async def execute(self, admitted: Admitted) -> ToolReply:
        """Through the gate, the body and its recording. Raises only when the process, or its loop, is ending."""
        call_id = admitted.event.call_id
        life = self._lives[call_id] = _Life()
        reply: ToolReply | None = None
        try:
            reply = await self._to_reply(admitted, life)
            reply = await self._shape(Done(admitted.candidate, reply, admitted=True))
        finally:
            reply = reply or life.known(v.ABORTED_BEFORE_DISPATCH, "the call was torn down")
            self.record(call_id, reply)
            del self._lives[call_id]
        return reply

    async def _to_reply(self, admitted: Admitted, life: _Life) -> ToolReply:
        site = self._site
        arguments = msgspec.to_builtins(admitted.event.arguments)

        async def innermost(call: Admitted) -> ToolReply:
            self._require_clearance(call, admitted)
            return await self._enter(admitted, arguments, life)

        def patience() -> float:
            """A body that was entered ends by itself after a cancel; hooks before it have nothing to finish."""
            return site.rules.bound if life.entered else 0.0

        chain = through(site.hooks.tool_execute, admitted, innermost, site.cancel, site.rules.drain, patience)
        try:
            given = await chain
            reply = sound(given)
        except Cancelled:
            return life.known(v.ABORTED_BEFORE_DISPATCH, f"the turn was cancelled ({site.cancel.reason})")
        except NotSavedError as error:
            return life.known(v.NOT_SAVED, f"the log could not be saved ({error})")
        except Exception as error:  # noqa: BLE001 - whatever a wrapper raises, the call is owed a result (law 5)
            self.fault = self.fault or error
            return life.known(v.ABORTED_BEFORE_DISPATCH, f"fencepost met an internal fault ({sentence(error)})")
        if life.entered and reply.code in v.NOT_ENTERED:
            return life.known(reply.code, "a hook said that the call had not started, but its body was entered")
        return reply

    def _require_clearance(self, call: Admitted, admitted: Admitted) -> None:
        """Law 1, as a check: where a tool gate is in force a body takes no other proof than the gate's."""
        turn = self._journal.log.fold.turn
        if turn is not None and "tool" not in turn.gates:
            return
        proven = call.clearance.seq if isinstance(call, Cleared) else -1
        if proven not in {admitted.event.seq, admitted.rests_on.seq} or proven > self._journal.watermark:
            raise FencepostError(f"call {admitted.event.call_id} reached its body without the tool gate's clearance")

    async def _enter(self, admitted: Admitted, arguments: dict[str, Any], life: _Life) -> ToolReply:
        candidate, call_id, site = admitted.candidate, admitted.event.call_id, self._site
        if self._answered(call_id) or (life.entered and candidate.effect == "write"):
            raise FencepostError(f"call {call_id} was to be entered again")
        if site.cancel.cancelled:
            return refused(v.ABORTED_BEFORE_DISPATCH, f"the turn was cancelled ({site.cancel.reason})")
        life.entered, life.reply = True, None
        context = site.context(call_id, site.cancel)
        if candidate.tool.body is not None:
            context = msgspec.structs.replace(context, call=functools.partial(self.nested, admitted))
        rules = site.rules
        reply = await run_body(
            candidate.tool, context, arguments, rules.settle, rules.drain, lambda text: self._note(call_id, text)
        )
        if reply.code in v.NOT_ENTERED and any(
            made.parent == call_id for made in self._journal.log.fold.calls.values()
        ):
            reply = unknown("its body says that it had no effect, but it had made a call", detail=reply.text)
        life.reply = reply
        return reply

    async def nested(
        self, parent: Admitted, name: str, arguments: dict[str, Any], *, gate: NestedGate = "parent"
    ) -> ToolReply:
        """A call that a body makes: recorded as its own, under the gate of its parent or under its own.

        Raises:
            FencepostError: the parent has its result already; whoever still runs for it calls nothing any more.
            UsageError: there is no such gate.
        """
        if gate not in {"parent", "own"}:
            raise UsageError(f"no gate {gate!r} for a nested call", next_act="Use gate='parent' or gate='own'")
        why = self.stopped()
        if why is not None:
            return refused(v.ABORTED_BEFORE_DISPATCH, why)
        found = self._find(name, arguments)
        if isinstance(found, ToolReply):
            return found
        site, call_id, (tool, fitting) = self._site, self._journal.identity.fresh("c"), found
        candidate = Candidate(
            self._journal,
            site.turn,
            site.step,
            call_id,
            tool,
            fitting,
            site.cancel,
            parent.event.call_id,
            own_gate=gate == "own",
        )
        try:
            problem = nesting_problem(candidate, site.rules.depth)
        except Exception as error:  # noqa: BLE001 - a tool's own function, or a value that no log can hold
            problem = f"it could not be told what it would do: {sentence(error)}"
        denied = await self._denied(candidate) if problem is None else refused(v.DENIED, problem)
        if denied is not None:
            return denied
        await self._vouch(candidate)
        return await self.execute(self.admit(candidate))

    # --- finish -------------------------------------------------------------------------------------------------

    async def _shape(self, done: Done) -> ToolReply:
        """What the hooks make of the text; what the reply claims stays as it is."""

        async def as_is(subject: Done) -> ToolReply:
            return subject.reply

        site = self._site
        try:
            reply = await through(site.hooks.tool_done, done, as_is, site.cancel, site.rules.drain)
            shaped = sound(reply)
        except Cancelled:
            return done.reply
        except Exception as error:  # noqa: BLE001 - a result that is known must not be lost to a broken observer
            self.fault = self.fault or error
            return done.reply
        return msgspec.structs.replace(done.reply, text=shaped.text, detail=shaped.detail)

    def record(self, call_id: str, reply: ToolReply) -> None:
        """Append the call's result; what comes after it is a note."""
        if self._answered(call_id):
            self._note(call_id, f"it ended after it had been given up on: {text_of(reply)}")
            return
        self._close_children(call_id)
        admitted = self._journal.log.fold.calls[call_id].admitted
        if admitted is not None and admitted.retries is not None and reply.code in v.NOT_ENTERED:
            # It came to nothing this time. Of the first time nobody knows (law 2).
            reply = unknown(f"{STARTED}, and running it again came to nothing", detail=reply.text)
        self._journal.append(
            ev.ToolResult,
            turn=self._site.turn,
            step=self._site.step,
            call_id=call_id,
            content=(ev.Text(text_of(reply)),),
            is_error=reply.is_error or reply.unknown,
            code=v.TOOL_OUTCOME_UNKNOWN if reply.unknown else reply.code,
        )

    def _close_children(self, call_id: str) -> None:
        """Nested calls end before their parent does."""
        calls = self._journal.log.fold.calls
        for name in [name for name in self._lives if calls[name].parent == call_id]:
            if not self._answered(name):
                why = "the call that had made this one ended before it"
                self.record(name, self._lives[name].known(v.ABORTED_BEFORE_DISPATCH, why))

    def _answered(self, call_id: str) -> bool:
        return self._journal.log.fold.calls[call_id].result is not None

    def _note(self, call_id: str, text: str) -> None:
        """Something learnt too late. When the session is closed nobody keeps it any more."""
        if self._journal.closed:
            return
        self._journal.append(ev.ToolNote, call_id=call_id, text=text)
        self._site.notify(Notice("note", text, call_id))

    def abort_if_stopped(self, call_id: str) -> bool:
        """Give the call its "not started" result if nothing may start any more."""
        why = self.stopped()
        if why is not None:
            self.record(call_id, refused(v.ABORTED_BEFORE_DISPATCH, why))
        return why is not None


async def _let_pass(candidate: Candidate) -> Admission:  # noqa: ARG001 - the innermost end of a chain of policies
    return Admit()
