"""One turn, exactly as design.md section 7 draws it.

    turn/start
      claim -> policies -> [step gate]
      step/start · user/message… · request/header when changed
      [request gate] -> provider -> assistant/chunk… -> assistant/message
      calls -> results                                                       (toolrun)
      step/end                                  again, while calls or steering input are owed
    turn/end
    [closing gate]

Rules:
    1. `step/end` and `turn/end` are written on every way out, and every call has its result before them.
    2. A request is only ever built from the log, by `projection.request` (law 3).
    3. When a gate fails, nothing behind it happens and the turn ends with an error (law 4).
    4. The cancel signal is looked at after every wait; once it is set, nothing new starts.

The loop decides what comes next. It does not decide who may: that is what the hooks are for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from fencepost.core import events as ev
from fencepost.core import projection
from fencepost.core.lifecycle import State
from fencepost.errors import Cancelled, FencepostError, NotSavedError
from fencepost.journal.session import Journal
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.hooks import Hooks
from fencepost.runtime.models import Model
from fencepost.runtime.request import ask
from fencepost.runtime.subjects import Answer, Attempt, Blocked, Notice, StepPlan, TurnStopping
from fencepost.runtime.toolrun import ToolRules, ToolRun
from fencepost.runtime.tools import CallContext, Tool


class Inbox(Protocol):
    """What the loop asks of the session's inbox."""

    def claim(self) -> tuple[ev.InputQueued, ...]:
        """The inputs that go into the step which is being prepared. They stay pending until they are consumed."""
        ...

    def steering(self) -> bool:
        """Whether input waits that wants into the running turn."""
        ...


class TurnResult(msgspec.Struct, frozen=True):
    """How a turn ended.

    Attributes:
        turn: its number.
        reason: as in `turn/end`.
        text: the last whole answer's text; empty if there was none.
        code: of the error, if there was one.
        message: the sentence that belongs to `code`.
        saved: whether `turn/end`, and all before it, is durable.
    """

    turn: int
    reason: ev.TurnEndReason
    text: str
    code: str = ""
    message: str = ""
    saved: bool = True


class Body(msgspec.Struct, frozen=True):
    """What a turn works with; the same for all turns of a session."""

    journal: Journal
    hooks: Hooks
    model: Model
    tools: Mapping[str, Tool]
    system: str
    rules: ToolRules
    context: Callable[[str, CancelSignal], CallContext]
    notify: Callable[[Notice], None]


class _Ending(msgspec.Struct):
    reason: ev.TurnEndReason
    code: str = ""
    message: str = ""


class TurnLoop:
    """Runs one turn. Made anew for each."""

    def __init__(self, body: Body, inbox: Inbox, cancel: CancelSignal) -> None:
        self._body = body
        self._journal = body.journal
        self._inbox = inbox
        self._cancel = cancel
        self._text = ""
        self._turn = 0
        self._step = 0
        self._followup: str | None = None

    async def run(self, continues: int | None = None) -> TurnResult:
        """Run the turn to its end, and wait for the closing gate.

        Args:
            continues: the interrupted turn that this one goes on with.
        """
        fold = self._journal.log.fold
        self._turn = fold.turn.number + 1 if fold.turn else 1
        hooks = self._body.hooks
        self._journal.append(
            ev.TurnStart, turn=self._turn, gates=hooks.gates(), policy=hooks.policy(), continues=continues
        )
        ending = _Ending("error", "INTERNAL", "the turn was torn down")
        try:
            ending = await self._steps()
        finally:
            self._close(ending)
        return await self._closing_gate(ending)

    async def _steps(self) -> _Ending:
        """Step after step, until nothing is owed. What goes wrong becomes the turn's ending."""
        try:
            while True:
                answer = await self._one_step()
                if answer.finish == "max_tokens":
                    return _Ending("max_tokens", "MAX_TOKENS", "the answer was cut at the output limit; no tool ran")
                if answer.finish == "content_filter":
                    return _Ending("error", "CONTENT_FILTER", "the provider's content filter cut the answer")
                if not await self._owed(answer):
                    return _Ending("completed")
        except Cancelled:
            return _Ending("aborted", "CANCELLED", self._cancel.reason)
        except Blocked as error:
            return _Ending("blocked", error.code, str(error))
        except FencepostError as error:
            return _Ending("error", error.code, error.explain())
        except Exception as error:  # noqa: BLE001 - an internal fault also leaves a balanced, truthful transcript
            return _Ending("error", "INTERNAL", f"{type(error).__name__}: {error}")

    async def _owed(self, answer: Answer) -> bool:
        self._cancel.check()
        if any(isinstance(block, ev.CallRequest) for block in answer.content) or self._inbox.steering():
            return True
        more = await self._body.hooks.turn_stopping.bind(_nothing_more)(
            TurnStopping(self._journal, self._turn, self._step, self._text)
        )
        self._cancel.check()
        if more is None:
            return self._inbox.steering()
        self._followup = more
        return True

    # --- one step -----------------------------------------------------------------------------------------------

    async def _one_step(self) -> Answer:
        self._cancel.check()
        self._step += 1
        claims = self._inbox.claim()
        plan = StepPlan(self._journal, self._turn, self._step, claims, self._cancel)
        await self._body.hooks.before_step.bind(_go_on)(plan)
        self._cancel.check()
        self._journal.append(ev.StepStart, turn=self._turn, step=self._step)
        try:
            self._write_messages(claims)
            self._write_header()
            answer = await self._request()
            await self._run_calls(answer)
        finally:
            self._journal.append(ev.StepEnd, turn=self._turn, step=self._step)
        return answer

    def _write_messages(self, claims: tuple[ev.InputQueued, ...]) -> None:
        fresh = self._journal.identity.fresh
        for item in claims:
            self._journal.append(
                ev.UserMessage, message_id=fresh("m"), content=item.content, source="user", input_id=item.input_id
            )
        if self._followup is not None:
            content = (ev.Text(self._followup),)
            self._journal.append(ev.UserMessage, message_id=fresh("m"), content=content, source="plugin")
            self._followup = None

    def _write_header(self) -> None:
        """Record what shapes requests, if it is not in force already or if a new writer took over."""
        model, fold = self._body.model, self._journal.log.fold
        tools = tuple(tool.spec for tool in self._body.tools.values())
        wanted = (model.provider, model.model, model.settings, self._body.system, tools)
        last, owner = fold.header, fold.owner
        reason: ev.HeaderReason = "initial"
        if last is not None:
            reason = "resume" if owner is not None and last.seq < owner.seq else "change"
            if reason == "change" and wanted == (last.provider, last.model, last.settings, last.system, last.tools):
                return
        self._journal.append(
            ev.RequestHeader,
            provider=model.provider,
            model=model.model,
            settings=model.settings,
            system=self._body.system,
            tools=tools,
            reason=reason,
        )

    async def _request(self) -> Answer:
        attempts = 0

        async def attempt(subject: Attempt) -> Answer:
            nonlocal attempts
            attempts += 1
            await self._journal.room()
            return await ask(self._body, msgspec.structs.replace(subject, number=attempts))

        subject = Attempt(self._journal, self._turn, self._step, 1, projection.request(self._journal.log), self._cancel)
        answer = await self._body.hooks.model_request.bind(attempt)(subject)
        self._journal.append(
            ev.AssistantMessage,
            turn=self._turn,
            step=self._step,
            message_id=self._journal.identity.fresh("m"),
            content=answer.content,
            finish=answer.finish,
            usage=answer.usage,
        )
        self._text = ev.text_of(answer.content)
        return answer

    async def _run_calls(self, answer: Answer) -> None:
        calls = tuple(block for block in answer.content if isinstance(block, ev.CallRequest))
        if not calls:
            return
        body = self._body
        run = ToolRun(self._journal, body.hooks, body.tools, body.context, body.notify, self._cancel, body.rules)
        await run.run(self._turn, self._step, calls)

    # --- the end ------------------------------------------------------------------------------------------------

    def _close(self, ending: _Ending) -> None:
        if self._journal.log.fold.state is not State.TURN:
            return  # repair will close what an internal fault left open; writing over it would be a second claim
        self._journal.append(
            ev.TurnEnd, turn=self._turn, reason=ending.reason, code=ending.code, message=ending.message
        )

    async def _closing_gate(self, ending: _Ending) -> TurnResult:
        saved = True
        try:
            await self._journal.flush()
        except NotSavedError as error:
            saved = False
            self._body.notify(Notice("not_saved", error.explain()))
        return TurnResult(self._turn, ending.reason, self._text, ending.code, ending.message, saved)


async def _go_on(plan: StepPlan) -> None:  # noqa: ARG001 - the innermost end of a chain of policies
    return None


async def _nothing_more(turn: TurnStopping) -> str | None:  # noqa: ARG001 - the innermost end of the chain
    return None
