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
    5. A step is only opened when something is owed: input, results that the model has not seen, a plugin's text.

The loop decides what comes next. It does not decide who may: that is what the hooks are for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from fencepost.core import events as ev
from fencepost.core import projection
from fencepost.core.lifecycle import State
from fencepost.core.normalise import clean_json
from fencepost.errors import Cancelled, FencepostError, NotSavedError
from fencepost.journal.session import Journal
from fencepost.runtime.answer import Assembler
from fencepost.runtime.call import Site, ToolRules
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.hooks import HookPoint, Hooks, through
from fencepost.runtime.models import Model
from fencepost.runtime.pauses import pause_of
from fencepost.runtime.request import ask, keep_visible
from fencepost.runtime.subjects import Answer, Attempt, Blocked, Notice, StepPlan, TurnStopping
from fencepost.runtime.toolrun import ToolRun
from fencepost.runtime.tools import CallContext, Tool

S = TypeVar("S")
T = TypeVar("T")


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
        self._unseen = False
        """Whether the log holds something that the model has not answered: results, or what an earlier turn left."""
        self._answered = False
        """Whether the interrupted turn that this one goes on with had its answer already."""
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
            if continues is not None:
                self._look_back()
            ending = await self._steps()
        finally:
            self._close(ending)
        return await self._closing_gate(ending)

    def _look_back(self) -> None:
        """What the interrupted turn owes still: an answer to its last words, unless those were an answer."""
        transcript = projection.messages(self._journal.log)
        last = transcript[-1] if transcript else None
        self._unseen = last is not None and not isinstance(last, projection.AssistantTurn)
        self._answered = isinstance(last, projection.AssistantTurn)
        if isinstance(last, projection.AssistantTurn):
            self._text = ev.text_of(last.content)

    async def _steps(self) -> _Ending:
        """Step after step, until nothing is owed. What goes wrong becomes the turn's ending."""
        try:
            while True:
                answer = await self._one_step()
                self._cancel.check()
                if answer is None:
                    return self._nothing_owed()
                if answer.finish == "max_tokens":
                    return _Ending("max_tokens", "MAX_TOKENS", "the answer was cut at the output limit; no tool ran")
                if answer.finish == "content_filter":
                    return _Ending("error", "CONTENT_FILTER", "the provider's content filter cut the answer")
                if not await self._owed():
                    return _Ending("completed")
        except Cancelled:
            return _Ending("aborted", "CANCELLED", self._cancel.reason)
        except Blocked as error:
            return _Ending("blocked", error.code, str(error))
        except FencepostError as error:
            return _Ending("error", error.code, error.explain())
        except Exception as error:  # noqa: BLE001 - an internal fault also leaves a balanced, truthful transcript
            return _Ending("error", "INTERNAL", f"{type(error).__name__}: {error}")

    def _nothing_owed(self) -> _Ending:
        """No step was opened: the turn had its answer before, or its input was taken back before the model saw it."""
        if self._step or self._answered:
            return _Ending("completed")
        return _Ending("aborted", "CANCELLED", "its input was taken back")

    async def _owed(self) -> bool:
        if self._unseen or self._inbox.steering():
            return True
        self._followup = await self._through(
            self._body.hooks.turn_stopping,
            TurnStopping(self._journal, self._turn, self._step, self._text),
            _nothing_more,
        )
        self._cancel.check()
        return self._followup is not None or self._inbox.steering()

    async def _through(
        self, point: HookPoint[S, Awaitable[T]], subject: S, innermost: Callable[[S], Awaitable[T]]
    ) -> T:
        return await through(point, subject, innermost, self._cancel, self._body.rules.drain)

    # --- one step -----------------------------------------------------------------------------------------------

    async def _one_step(self) -> Answer | None:
        """One request and its calls; None where nothing is owed any more, because the input was taken back."""
        self._cancel.check()
        step = self._step + 1
        pause = pause_of(self._body, self._cancel)
        plan = StepPlan(self._journal, self._turn, step, self._inbox.claim(), self._cancel, pause)
        await self._through(self._body.hooks.before_step, plan, _go_on)
        self._cancel.check()
        pending = self._journal.log.fold.pending
        claims = [item for item in plan.claims if item.input_id in pending]
        if not (claims or self._unseen or self._followup is not None):
            return None
        self._step = step
        self._journal.append(ev.StepStart, turn=self._turn, step=self._step)
        try:
            self._write_messages(claims)
            self._write_header()
            answer = await self._request()
            await self._run_calls(answer)
        finally:
            self._journal.append(ev.StepEnd, turn=self._turn, step=self._step)
        return answer

    def _write_messages(self, claims: Sequence[ev.InputQueued]) -> None:
        fresh = self._journal.identity.fresh
        for item in claims:
            self._journal.append(
                ev.UserMessage, message_id=fresh("m"), content=item.content, source="user", input_id=item.input_id
            )
        if self._followup is not None:
            content = (ev.Text(self._followup),)
            self._followup = None
            self._journal.append(ev.UserMessage, message_id=fresh("m"), content=content, source="plugin")

    def _write_header(self) -> None:
        """Record what shapes requests, if it is not in force already or if a new writer took over."""
        model, fold = self._body.model, self._journal.log.fold
        wanted: dict[str, Any] = {
            "provider": model.provider,
            "model": model.model,
            "settings": model.settings,
            "system": self._body.system,
            "tools": tuple(
                msgspec.structs.replace(tool.spec, effect=tool.effect) for tool in self._body.tools.values()
            ),
        }
        last, owner = fold.header, fold.owner
        reason: ev.HeaderReason = "initial"
        if last is not None:
            reason = "resume" if owner is not None and last.seq < owner.seq else "change"
            if reason == "change" and in_force(last, wanted):
                return
        self._journal.append(ev.RequestHeader, reason=reason, **wanted)

    async def _request(self) -> Answer:
        """Ask the model, retries included; what was visible of an answer that does not come stays in the log."""
        subject = Attempt(self._journal, self._turn, self._step, 1, projection.request(self._journal.log), self._cancel)
        assembler = self._assembler()
        attempts = began = 0

        async def attempt(given: Attempt) -> Answer:
            nonlocal attempts, assembler, began
            attempts, assembler, began = attempts + 1, self._assembler(), self._journal.log.fold.next_seq
            await self._journal.room()
            return await ask(self._body, msgspec.structs.replace(given, number=attempts), assembler)

        try:
            answer = await self._through(self._body.hooks.model_request, subject, attempt)
        except BaseException:
            keep_visible(subject, assembler, began)
            raise
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

    def _assembler(self) -> Assembler:
        return Assembler(lambda: self._journal.identity.fresh("c"))

    async def _run_calls(self, answer: Answer) -> None:
        calls = tuple(block for block in answer.content if isinstance(block, ev.CallRequest))
        self._unseen = bool(calls)
        if not calls:
            return
        body = self._body
        site = Site(
            journal=self._journal,
            hooks=body.hooks,
            tools=body.tools,
            context=body.context,
            notify=body.notify,
            cancel=self._cancel,
            rules=body.rules,
            turn=self._turn,
            step=self._step,
        )
        await ToolRun(site).run(calls)

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
        except NotSavedError:
            saved = False  # those who listen to the journal were told, with the cause
        return TurnResult(self._turn, ending.reason, self._text, ending.code, ending.message, saved)


def in_force(last: ev.RequestHeader, wanted: dict[str, Any]) -> bool:
    """Whether `last` says what is wanted; looked at twice, for the log may have had to normalise it."""
    if all(getattr(last, name) == value for name, value in wanted.items()):
        return True
    return all(_as_logged(getattr(last, name)) == _as_logged(value) for name, value in wanted.items())


def _as_logged(value: Any) -> ev.Json:
    return clean_json(msgspec.to_builtins(value), "", [])


async def _go_on(plan: StepPlan) -> None:  # noqa: ARG001 - the innermost end of a chain of policies
    return None


async def _nothing_more(turn: TurnStopping) -> str | None:  # noqa: ARG001 - the innermost end of the chain
    return None
