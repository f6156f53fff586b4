"""A command that owns a session: composed, watched, ended in order, in this order whatever happens.

signals and outlets -> the work opens a session -> opening line -> turns, and events beside them
    -> the runtime is closed -> the last durable event -> the outcome line -> outlets drained
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from fencepost.apps.cli import exits
from fencepost.apps.cli.asking import Asker, Lines
from fencepost.apps.cli.outlet import Outlet
from fencepost.apps.cli.recovered import half_answer
from fencepost.apps.cli.stop import Stop, output_failure
from fencepost.apps.cli.textview import TextView, screens
from fencepost.apps.cli.views import JsonView, Opening, Outcome, View, recovery_view
from fencepost.errors import Cancelled, ClosedError, FencepostError, NotSavedError
from fencepost.journal.inspect import pending_inputs
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.session import Session

Turns = Callable[[], Awaitable[TurnResult | None]]


class Stage:
    """What a live command works with. Made inside a running event loop.

    Attributes:
        stop: why the command should end.
        view: how it is seen.
        ask: asks a person.
        session: the id, once it is known.
    """

    def __init__(self, *, json: bool) -> None:
        self.stop = Stop()
        self.out = Outlet(1, self.stop.output_failed)
        self.err = Outlet(2, lambda _error: None)
        self.view: View = JsonView(self.out, self.err) if json else TextView(*screens(self.out, self.err))
        self.ask = Asker(Lines(0), self.err, self.stop)
        self.session: str | None = None

    async def drained(self) -> None:
        """Wait until all that was said is out."""
        await self.out.drained()
        await self.err.drained()


def live(work: Callable[[Stage], Awaitable[int]], *, json: bool) -> int:
    """Run `work` with signals and outlets in place; returns the exit status."""
    return asyncio.run(_live(work, json=json))


async def _live(work: Callable[[Stage], Awaitable[int]], *, json: bool) -> int:
    stage = Stage(json=json)
    with stage.stop.listening():
        try:
            status = await work(stage)
        except Exception as error:
            if json:
                stage.view.ended(failed(stage.session, error))
            raise
        finally:
            await stage.drained()
    if status == exits.DONE and stage.out.broken is not None:
        return output_failure(stage.out.broken).status
    return status


def failed(session: str | None, error: Exception) -> Outcome:
    """The outcome of a command that an error ended."""
    if isinstance(error, FencepostError):
        return Outcome(session, "error", code=error.code, message=sentence(error))
    return Outcome(session, "error", code="INTERNAL", message=sentence(error))


def sentence(error: Exception) -> str:
    """What an error says to people."""
    return error.explain() if isinstance(error, FencepostError) else f"{type(error).__name__}: {error}"


@contextlib.asynccontextmanager
async def on_call(runtime: Runtime) -> AsyncIterator[Runtime]:
    """A runtime that `attend` closes, or that is closed because it never came that far; then the first error counts."""
    try:
        yield runtime
    except BaseException:
        await _close(runtime)
        raise


async def attend(stage: Stage, runtime: Runtime, session: Session, turns: Turns) -> int:
    """Show a session while its turns run, close it in order, and say how it went; returns the exit status."""
    stage.session = session.id
    stage.stop.attach(session)
    session.on_notice(stage.view.notice)
    stage.view.opened(opening(runtime, session))
    following = asyncio.create_task(stage.view.follow(session, first_new(session)), name="follow")
    try:
        result, failure = await _until_stopped(stage.stop, turns)
    finally:
        failures = await _close(runtime)
    await following
    if failure is not None:
        failures.insert(0, failure)
    outcome = _outcome(stage.stop, session, result, failures)
    stage.view.ended(outcome)
    for error in failures:
        if error is not failure:
            stage.view.say(f"closing session {session.id}: {sentence(error)}")
    return _status(stage.stop, session, outcome, failures)


async def given_up(stage: Stage, runtime: Runtime, name: str) -> int:
    """Say that a command ended before it had its session, because somebody asked; returns the exit status."""
    cause = stage.stop.cause
    assert cause is not None
    await _close(runtime)
    why = f"session {name} was not taken up; resume it again when you like"
    stage.view.ended(Outcome(name, "aborted", saved=True, code=Cancelled.code, message=why))
    return cause.status


def opening(runtime: Runtime, session: Session) -> Opening:
    """The first line about a session."""
    model, header, fold = runtime.model, session.journal.log.header, session.journal.log.fold
    return Opening(
        session.id,
        runtime.store.url,
        header.cwd,
        f"{model.provider}:{model.model}" if model else None,
        session.guarantees,
        recovery_view(
            session.recovery,
            pending_inputs(fold),
            half_answer(session.journal.log.entries, session.recovery),
        ),
    )


def first_new(session: Session) -> int:
    """The seq of the first event that this process appended, or will: repair puts its owner line before its closers."""
    closed = session.recovery.closed
    return session.journal.log.fold.next_seq - (closed + 1 if closed else 0)


async def _until_stopped(stop: Stop, turns: Turns) -> tuple[TurnResult | None, Exception | None]:
    """The last turn's result, or what ended the turns; ended too when somebody asked and the session is closed."""
    if stop.cause is not None:
        return None, None
    running = asyncio.ensure_future(turns())
    closed = asyncio.create_task(stop.closed())
    await asyncio.wait({running, closed}, return_when=asyncio.FIRST_COMPLETED)
    if not running.done():
        await asyncio.wait({running}, timeout=0.2)  # what the closing has resolved arrives within a few ticks
        running.cancel()
        await asyncio.wait({running})
    closed.cancel()
    if running.cancelled():
        return None, None
    error = running.exception()
    if error is None:
        return running.result(), None
    if isinstance(error, FencepostError):
        return None, error
    raise error


async def _close(runtime: Runtime) -> list[Exception]:
    try:
        await runtime.close()
    except Exception as error:  # noqa: BLE001 - the outcome must be said all the same; it names this
        return [leaf for leaf in exits.leaves(error) if isinstance(leaf, Exception)]
    return []


def _outcome(stop: Stop, session: Session, result: TurnResult | None, failures: list[Exception]) -> Outcome:
    journal = session.journal
    kept = journal.watermark >= journal.log.fold.next_seq - 1 and session.guarantees.durable
    saved = kept and not any(isinstance(error, NotSavedError) for error in failures)
    if result is not None:
        return Outcome(session.id, result.reason, result.text, saved, result.code, result.message, result.turn)
    if stop.cause is not None and all(isinstance(error, ClosedError) for error in failures):
        return Outcome(session.id, "aborted", saved=saved, code=Cancelled.code, message=stop.cause.reason)
    if failures:
        return msgspec.structs.replace(failed(session.id, failures[0]), saved=saved)
    return Outcome(session.id, "resumed", saved=saved)


def _status(stop: Stop, session: Session, outcome: Outcome, failures: list[Exception]) -> int:
    if outcome.code == NotSavedError.code or (session.guarantees.durable and not outcome.saved):
        return exits.NOT_SAVED
    if outcome.reason == "completed" and not failures:
        return exits.DONE
    if stop.cause is not None:
        return stop.cause.status
    statuses = [exits.status_of(e) if isinstance(e, FencepostError) else exits.INTERNAL for e in failures]
    return exits.worst(statuses) if statuses else exits.DONE if outcome.reason == "resumed" else exits.OTHERWISE
