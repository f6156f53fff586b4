"""Asking the tools, after a crash, what really happened; and writing it down.

Rules:
    1. Asking reads only, has a limit of time, and never fails: a tool that raises, stalls, or says what it may not, has
       said `Unknown` with the reason.
    2. Every call without a result is asked for, whatever its verdict: survivors are looked at first (law 2). That a
       call did not run which the log says had not started is no news, and changes nothing.
    3. A call has one result (law 5): what a tool established, else what repair writes. Nothing is appended before all
       have been asked, and waited for: whoever is interrupted until then has changed nothing.
    4. What a call left behind is removed only once its result is durable. Until then it is the evidence.
    5. `preview` says what `settle_calls` would write, and changes nothing. It asks about older calls too whose outcome
       stayed unknown; what is learnt of these is for people, for they have their one result.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.log import CallRecord, Fold
from fencepost.core.normalise import clean_text
from fencepost.core.repair import inner_first, result_of
from fencepost.journal.inspect import CallView, Inspection, Reading, examine
from fencepost.journal.session import Journal
from fencepost.runtime.answer import parse_arguments
from fencepost.runtime.aside import exit_of, in_thread
from fencepost.runtime.replies import as_text, refused, reply_of, sentence, text_of
from fencepost.runtime.settlement import Completed, DidNotRun, Settlement, StillRunning, Unknown, UnsettledCall
from fencepost.runtime.subjects import Notice
from fencepost.runtime.tools import Tool, ToolReply
from fencepost.runtime.whereabouts import may_act, vouched_for

LIMIT = 10.0
"""Seconds that a tool has to say what happened to one call."""

SHORT = 500
"""Characters of evidence that are kept at most."""

Running: TypeAlias = Literal["leave", "wait", "end"]
RUNNING: tuple[Running, ...] = ("leave", "wait", "end")
"""What to do about a call that still runs."""

ALIVE = "still running: "
"""What the evidence of a call begins with that was left running."""


def unheard(notice: Notice) -> None:
    """Where nobody listens."""


class Settling(msgspec.Struct, frozen=True):
    """How calls are settled.

    Attributes:
        tools: by name.
        files: the session's directory for receipts.
        running: what is done about calls that still run. Left alone, their outcome stays unknown.
        spared: calls that will be run again, so that of them nothing is written which leaves the outcome open.
        notify: told what is waited for.
        limit: seconds for each question.
    """

    tools: Mapping[str, Tool]
    files: Path
    running: Running = "leave"
    spared: Callable[[CallRecord], bool] = lambda _: False
    notify: Callable[[Notice], None] = unheard
    limit: float = LIMIT


async def ask(tool: Tool, call: UnsettledCall, limit: float = LIMIT) -> Settlement:
    """What a tool says about a call (rule 1)."""
    said = await _heard(tool, partial(_asked, tool, call), limit)
    return Unknown(said.why) if isinstance(said, _Silence) else said


async def _asked(tool: Tool, call: UnsettledCall) -> object:
    settle = tool.settle
    assert settle is not None
    if inspect.iscoroutinefunction(settle):
        return await settle(call)
    said = await in_thread(f"settle {tool.name}", partial(settle, call))
    return await said if inspect.isawaitable(said) else said


class _Silence(msgspec.Struct, frozen=True):
    """There was no answer that could be used. Why not, as a sentence."""

    why: str


async def _heard(tool: Tool, question: Callable[[], Awaitable[object]], limit: float | None) -> Settlement | _Silence:
    """The answer to a question that a stranger's code answers, whatever it does. A late one is not listened to."""
    asking = asyncio.create_task(_guarded(question), name=f"settle {tool.name}")
    asking.add_done_callback(_looked_at)
    try:
        await asyncio.wait({asking}, timeout=limit)
    finally:
        asking.cancel()
    if not asking.done():
        return _Silence(f"{tool.name} did not say within {limit:g} s what happened")
    if asking.cancelled():
        return _Silence(f"{tool.name} could not say what happened: it was cancelled from inside")
    error = asking.exception()
    if error is not None:
        return _Silence(_short(f"{tool.name} could not say what happened: {sentence(error)}"))
    return _sound(tool, asking.result())


async def _guarded(question: Callable[[], Awaitable[object]]) -> object:
    try:
        return await question()
    except SystemExit as error:
        raise exit_of(error) from None


def _looked_at(answer: asyncio.Task[object]) -> None:
    if not answer.cancelled():
        answer.exception()  # of a late answer nobody else asks


def _sound(tool: Tool, said: object) -> Settlement | _Silence:
    """What was said, with fields of the types that it declares."""
    match said:
        case Completed():
            reply = reply_of(said.result)
            return Unknown(_short(text_of(reply))) if reply.unknown else Completed(reply, _short(said.evidence))
        case DidNotRun():
            return DidNotRun(_short(said.why))
        case StillRunning():
            return StillRunning(said.handle, _short(said.evidence))
        case Unknown():
            return Unknown(_short(said.note))
        case _:
            return _Silence(f"{tool.name} gave {type(said).__name__}, which is no settlement")


def _short(said: object) -> str:
    text = clean_text(as_text("" if said is None else said)).strip()
    return text if len(text) <= SHORT else text[: SHORT - 1] + "…"


def _case(record: CallRecord, session: str, cwd: Path, files: Path) -> UnsettledCall | None:
    """The call as its tool is asked about it; None if its arguments never were any."""
    admitted = record.admitted
    arguments = msgspec.to_builtins(admitted.arguments) if admitted else parse_arguments(record.arguments)
    if not isinstance(arguments, dict):
        return None
    effect: ev.Effect = admitted.effect if admitted else "write"
    let_go = admitted.time if admitted else None
    vouched = vouched_for(files, record.let_go, record.owner)
    return UnsettledCall(
        record.call_id, session, record.name, arguments, effect, let_go, cwd, files, record.owner, vouched
    )


# --- resume -----------------------------------------------------------------------------------------------------


async def settle_calls(journal: Journal, evidence: v.Evidence, how: Settling) -> None:
    """Ask about every call that has no result, and append what was established. Nothing is flushed."""
    fold = journal.log.fold
    gates = fold.turn.gates if fold.turn else ()
    for name, said in (await _answers(journal, how)).items():
        record = fold.calls[name]
        fields = _result(record, _about(fold, record, said, how), gates, evidence, spared=how.spared(record))
        if fields is not None:
            _close_children(journal, name, gates, evidence)
            journal.append(ev.ToolResult, at=fold.last_time, **fields)
    for name in list(fold.owed):
        if how.spared(fold.calls[name]):
            _close_children(journal, name, gates, evidence)


async def _answers(journal: Journal, how: Settling) -> dict[str, Settlement]:
    """What the tools say, by call id, nested calls first."""
    fold = journal.log.fold
    cases = {name: case for name in inner_first(fold) if (case := _unsettled(journal, name, how)) is not None}
    said = await asyncio.gather(*(ask(how.tools[case.name], case, how.limit) for case in cases.values()))
    ends = (_ended(case, one, how) for case, one in zip(cases.values(), said, strict=True))
    return dict(zip(cases, await asyncio.gather(*ends), strict=True))


def _unsettled(journal: Journal, name: str, how: Settling) -> UnsettledCall | None:
    record, header = journal.log.fold.calls[name], journal.log.header
    tool = how.tools.get(record.name)
    if tool is None or tool.settle is None:
        return None
    return _case(record, header.session, Path(header.cwd), how.files)


async def _ended(case: UnsettledCall, said: Settlement, how: Settling) -> Settlement:
    """What is said of a call that still runs once it has ended, where that is to be waited for, or brought about."""
    if not isinstance(said, StillRunning) or how.running == "leave":
        return said
    tool, handle, waits = how.tools[case.name], said.handle, how.running == "wait"
    doing = "waiting for" if waits else "ending"
    how.notify(Notice("note", f"{doing} {case.name} {case.call_id}, which is still running: {said.evidence}"))

    async def ending() -> Settlement:
        return await (handle.wait() if waits else handle.end())

    then = await _heard(tool, ending, None if waits else how.limit)
    if isinstance(then, _Silence):
        return StillRunning(handle, _short(f"{said.evidence}; {then.why}"))
    if isinstance(then, Unknown):
        return Unknown(_short(f"it was still running ({said.evidence}); {then.note or 'how it ended is not known'}"))
    return then


def _result(
    record: CallRecord, said: Settlement, gates: tuple[ev.Gate, ...], evidence: v.Evidence, *, spared: bool
) -> dict[str, Any] | None:
    """The fields of the result that a settlement makes; None where the closers, or a second run, say as much."""
    closer = result_of(record, gates, evidence).fields
    started = closer["code"] != v.TOOL_NOT_STARTED
    if isinstance(said, Completed):
        reply = said.result
        text = f"[Established after a crash by {record.name}: {said.evidence}]\n{reply.text}"
        return closer | _settled(record, reply, text, said.evidence)
    if isinstance(said, DidNotRun) and started:
        reply = refused(v.TOOL_NOT_STARTED, f"established after a crash by {record.name}: {said.why}")
        return closer | _settled(record, reply, reply.text, said.why)
    if isinstance(said, StillRunning):
        text = v.unknown_text(f"fencepost was interrupted, and the call is still running: {said.evidence}")
        return closer | {"content": (ev.Text(text),), "code": v.TOOL_OUTCOME_UNKNOWN, "evidence": ALIVE + said.evidence}
    if isinstance(said, Unknown) and said.note and started and not spared:
        text = f"{ev.text_of(closer['content'])}\n\n{said.note}"
        return closer | {"content": (ev.Text(text),), "evidence": said.note}
    return None


def _about(fold: Fold, record: CallRecord, said: Settlement, how: Settling) -> Settlement:
    """What was said, as far as it holds for this call (law 2).

    At a gap of the log a tool may have looked too early, and so it may where whoever let the call go lives on; a body
    that made a call was entered, as the log says. Of a call that was let go twice a tool may see the second time only.
    """
    if not isinstance(said, DidNotRun):
        return said
    if any(other.parent == record.call_id for other in fold.calls.values()):
        return Unknown(_short(f"{record.name} says that it did not run, but it had made a call: {said.why}"))
    alive = may_act(record.owner, record.admitted.time if record.admitted else None)
    if alive:
        return Unknown(_short(f"{alive}; {record.name} says that it did not run yet: {said.why}"))
    partly = record.again and not vouched_for(how.files, record.let_go, record.owner)
    if record.doubtful or partly:
        return Unknown(_short(f"{record.name} says that it did not run: {said.why}"))
    return said


def _settled(record: CallRecord, reply: ToolReply, text: str, evidence: str) -> dict[str, Any]:
    return {
        "content": (ev.Text(text),),
        "is_error": reply.is_error,
        "code": reply.code,
        "synthetic": False,
        "settled_by": record.name,
        "evidence": evidence,
    }


def _close_children(journal: Journal, parent: str, gates: tuple[ev.Gate, ...], evidence: v.Evidence) -> None:
    """Nested calls end before their parent does."""
    fold = journal.log.fold
    for name in [name for name in inner_first(fold) if _within(fold, name, parent)]:
        closer = result_of(fold.calls[name], gates, evidence)
        journal.append(closer.cls, at=fold.last_time, **closer.fields)


def _within(fold: Fold, name: str, parent: str) -> bool:
    above = fold.calls[name].parent
    while above is not None and above != parent:
        above = fold.calls[above].parent
    return above == parent


async def tidy(journal: Journal, how: Settling) -> None:
    """Have the tools remove what the calls of an interrupted turn left behind; its results are durable (rule 4).

    Done at each resume, for one that was killed in the middle. What cannot be removed keeps no session from opening.
    """
    for case in list(_left_behind(journal, how)):
        tool = how.tools[case.name]
        assert tool.tidy is not None
        try:
            async with asyncio.timeout(how.limit):
                await in_thread(f"tidy {tool.name}", partial(tool.tidy, case))
        except Exception as error:  # noqa: BLE001 - a stranger's code
            text = f"what {tool.name} left behind could not be removed: {sentence(error)}"
            how.notify(Notice("note", text, case.call_id))


def _left_behind(journal: Journal, how: Settling) -> Iterator[UnsettledCall]:
    fold, header = journal.log.fold, journal.log.header
    if fold.turn is None or fold.turn.ended != "interrupted":
        return
    for record in fold.calls.values():
        tool, result = how.tools.get(record.name), record.result
        if record.turn != fold.turn.number or tool is None or tool.tidy is None or result is None:
            continue
        crashed = result.synthetic or result.settled_by or (record.admitted and record.admitted.retries is not None)
        case = _case(record, header.session, Path(header.cwd), how.files)
        if crashed and case is not None and not result.evidence.startswith(ALIVE):
            yield case


# --- inspect ----------------------------------------------------------------------------------------------------


async def preview(reading: Reading, tools: Mapping[str, Tool], files: Path, limit: float = LIMIT) -> Inspection:
    """The inspection of a session as settlement would leave it. While its owner lives: as it is (law 8)."""
    found, stored = examine(reading), reading.stored
    if stored.owner is not None or stored.header is None:
        return found
    how = Settling(tools, files, limit=limit)
    views = await asyncio.gather(*(_previewed(view, reading, Path(stored.header.cwd), how) for view in found.calls))
    return msgspec.structs.replace(found, calls=tuple(views))


async def _previewed(view: CallView, reading: Reading, cwd: Path, how: Settling) -> CallView:
    record, tool = reading.fold.calls.get(view.call_id), how.tools.get(view.name)
    if record is None or tool is None or tool.settle is None:
        return view
    if view.verdict != "outcome_unknown" and (view.verdict != "not_started" or record.result is not None):
        return view
    case = _case(record, reading.stored.session, cwd, how.files)
    if case is None:
        return view
    said = _about(reading.fold, record, await ask(tool, case, how.limit), how)
    if isinstance(said, Completed):
        return _view(view, "completed", said.result.code, tool.name, said.evidence)
    if isinstance(said, StillRunning):
        return _view(view, "outcome_unknown", v.TOOL_OUTCOME_UNKNOWN, "", ALIVE + said.evidence)
    if view.verdict == "not_started":
        return view
    if isinstance(said, DidNotRun):
        return _view(view, "not_started", v.TOOL_NOT_STARTED, tool.name, said.why)
    return msgspec.structs.replace(view, evidence=said.note or view.evidence)


def _view(view: CallView, verdict: v.Verdict, code: str, by: str, evidence: str) -> CallView:
    return msgspec.structs.replace(view, verdict=verdict, code=code, settled_by=by, evidence=evidence)
