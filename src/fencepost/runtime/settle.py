"""Asking the tools, after a crash, what really happened; and writing it down.

Rules:
    1. Asking reads only, has a limit of time, and never fails: a tool that raises, or says what it may not, has said
       `Unknown` with the reason.
    2. Every call without a result is asked for, whatever its verdict: survivors are looked at first (law 2). That a
       call did not run which the log says had not started is no news, and changes nothing.
    3. A call has one result (law 5): what a tool established, else what repair writes.
    4. `preview` says what `settle_calls` would write, and changes nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.log import CallRecord, Fold
from fencepost.core.repair import STARTED, inner_first, result_of
from fencepost.journal.inspect import CallView, Inspection, Reading, examine
from fencepost.journal.session import Journal
from fencepost.runtime.aside import in_thread
from fencepost.runtime.replies import refused, reply_of, sentence, text_of
from fencepost.runtime.settlement import Completed, DidNotRun, Settlement, StillRunning, Unknown, UnsettledCall
from fencepost.runtime.tools import Tool, ToolReply

LIMIT = 10.0
"""Seconds that a tool has to say what happened to one call."""

Running: TypeAlias = Literal["leave", "wait", "end"]
RUNNING: tuple[Running, ...] = ("leave", "wait", "end")
"""What to do about a call that still runs."""


class Settling(msgspec.Struct, frozen=True):
    """How calls are settled.

    Attributes:
        tools: by name.
        files: the session's directory for receipts.
        running: what is done about calls that still run. Left alone, their outcome stays unknown.
        spared: calls that will be run again, so that only a certain settlement of them is written.
        limit: seconds for each question.
    """

    tools: Mapping[str, Tool]
    files: Path
    running: Running = "leave"
    spared: Callable[[CallRecord], bool] = lambda _: False
    limit: float = LIMIT


async def ask(tool: Tool, call: UnsettledCall, limit: float = LIMIT) -> Settlement:
    """What a tool says about a call (rule 1)."""
    assert tool.settle is not None
    try:
        async with asyncio.timeout(limit):
            said = await _asked(tool, call)
    except TimeoutError:
        return Unknown(f"{tool.name} did not say within {limit:g} s what happened")
    except Exception as error:  # noqa: BLE001 - whatever it raises, recovery goes on (issue 4, section 1)
        return Unknown(f"{tool.name} could not say what happened: {sentence(error)}")
    return _sound(tool, said)


async def _asked(tool: Tool, call: UnsettledCall) -> Any:
    settle = tool.settle
    assert settle is not None
    if inspect.iscoroutinefunction(settle):
        return await settle(call)
    said = await in_thread(f"settle {tool.name}", partial(settle, call))
    return await said if inspect.isawaitable(said) else said


def _sound(tool: Tool, said: object) -> Settlement:
    if isinstance(said, Completed):
        reply = reply_of(said.result)
        if reply.unknown:
            return Unknown(text_of(reply))
        return Completed(reply, str(said.evidence))
    if isinstance(said, DidNotRun | StillRunning | Unknown):
        return said
    return Unknown(f"{tool.name} gave {type(said).__name__}, which is no settlement")


def _case(record: CallRecord, session: str, cwd: Path, files: Path) -> UnsettledCall | None:
    """The call as its tool is asked about it; None if its arguments never were any."""
    admitted = record.admitted
    try:
        arguments = msgspec.to_builtins(admitted.arguments) if admitted else msgspec.json.decode(record.arguments)
    except (msgspec.DecodeError, UnicodeError):
        return None
    if not isinstance(arguments, dict):
        return None
    effect: ev.Effect = admitted.effect if admitted else "write"
    let_go = admitted.time if admitted else None
    return UnsettledCall(record.call_id, session, record.name, arguments, effect, let_go, cwd, files, record.owner)


# --- resume -----------------------------------------------------------------------------------------------------


async def settle_calls(journal: Journal, evidence: v.Evidence, how: Settling) -> None:
    """Ask about every call that has no result, and append what was established. Nothing is flushed."""
    fold = journal.log.fold
    cases = {name: case for name in inner_first(fold) if (case := _unsettled(journal, name, how)) is not None}
    answers = await asyncio.gather(*(ask(how.tools[case.name], case, how.limit) for case in cases.values()))
    settled = dict(zip(cases, answers, strict=True))
    for name, said in settled.items():
        if isinstance(said, StillRunning) and how.running != "leave":
            settled[name] = await _outcome_of(how.tools[cases[name].name], said, how.running)
    gates = fold.turn.gates if fold.turn else ()
    for name, said in settled.items():
        record = fold.calls[name]
        fields = _result(record, said, v.verdict_of(record, gates, evidence), spared=how.spared(record))
        if fields is not None:
            _close_children(journal, name, gates, evidence)
            journal.append(ev.ToolResult, at=fold.last_time, **fields)
    await _tidy(journal, cases, how)


def _unsettled(journal: Journal, name: str, how: Settling) -> UnsettledCall | None:
    record, header = journal.log.fold.calls[name], journal.log.header
    tool = how.tools.get(record.name)
    if tool is None or tool.settle is None:
        return None
    return _case(record, header.session, Path(header.cwd), how.files)


async def _outcome_of(tool: Tool, said: StillRunning, running: Running) -> Settlement:
    try:
        return _sound(tool, await (said.handle.wait() if running == "wait" else said.handle.end()))
    except Exception as error:  # noqa: BLE001 - as in `ask`
        return Unknown(f"{said.evidence}; what became of it cannot be said: {sentence(error)}")


def _result(record: CallRecord, said: Settlement, found: v.CallVerdict, *, spared: bool) -> dict[str, Any] | None:
    """The fields of the result that a settlement makes; None where the closers, or a second run, say as much."""
    certain = isinstance(said, Completed | DidNotRun)
    if (found.verdict == "not_started" and not isinstance(said, Completed | StillRunning)) or (spared and not certain):
        return None
    fields: dict[str, Any] = {"turn": record.turn, "step": record.step, "call_id": record.call_id}
    if isinstance(said, Completed):
        reply = said.result
        text = f"[Established after a crash by {record.name}: {said.evidence}]\n{reply.text}"
        return fields | _settled(record, reply, text, said.evidence)
    if isinstance(said, DidNotRun):
        reply = refused(v.TOOL_NOT_STARTED, f"established after a crash by {record.name}: {said.why}")
        return fields | _settled(record, reply, reply.text, said.why)
    if isinstance(said, StillRunning):
        text = v.unknown_text(f"{STARTED}, and it is still running: {said.evidence}")
        return fields | _open(text, f"still running: {said.evidence}")
    if not said.note or record.admitted is None:
        return None
    return fields | _open(f"{v.unknown_text(STARTED)}\n\n{said.note}", said.note)


def _settled(record: CallRecord, reply: ToolReply, text: str, evidence: str) -> dict[str, Any]:
    return {
        "content": (ev.Text(text),),
        "is_error": reply.is_error,
        "code": reply.code,
        "settled_by": record.name,
        "evidence": evidence,
    }


def _open(text: str, evidence: str) -> dict[str, Any]:
    return {
        "content": (ev.Text(text),),
        "is_error": True,
        "code": v.TOOL_OUTCOME_UNKNOWN,
        "synthetic": True,
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


async def _tidy(journal: Journal, cases: Mapping[str, UnsettledCall], how: Settling) -> None:
    for name, case in cases.items():
        tool = how.tools[case.name]
        if tool.tidy is None:
            continue
        try:
            async with asyncio.timeout(how.limit):
                await in_thread(f"tidy {tool.name}", partial(tool.tidy, case))
        except Exception as error:  # noqa: BLE001 - what it leaves behind must not keep a session from opening
            text = f"what {tool.name} left behind could not be removed: {sentence(error)}"
            journal.append(ev.ToolNote, at=journal.log.fold.last_time, call_id=name, text=text)


# --- inspect ----------------------------------------------------------------------------------------------------


async def preview(reading: Reading, tools: Mapping[str, Tool], files: Path) -> Inspection:
    """The inspection of a session as settlement would leave it. While its owner lives: as it is (law 8)."""
    found, stored = examine(reading), reading.stored
    if stored.owner is not None or stored.header is None:
        return found
    cwd = Path(stored.header.cwd)
    views = [await _previewed(view, reading, tools, cwd, files) for view in found.calls]
    return msgspec.structs.replace(found, calls=tuple(views))


async def _previewed(view: CallView, reading: Reading, tools: Mapping[str, Tool], cwd: Path, files: Path) -> CallView:
    record, tool = reading.fold.calls.get(view.call_id), tools.get(view.name)
    open_still = record is not None and (record.result is None or record.result.code == v.TOOL_OUTCOME_UNKNOWN)
    if record is None or tool is None or tool.settle is None or not open_still:
        return view
    case = _case(record, reading.stored.session, cwd, files)
    if case is None:
        return view
    said = await ask(tool, case)
    if isinstance(said, Completed):
        return _view(view, "completed", said.result.code, tool.name, said.evidence)
    if isinstance(said, StillRunning):
        return _view(view, "outcome_unknown", v.TOOL_OUTCOME_UNKNOWN, "", f"still running: {said.evidence}")
    if view.verdict == "not_started":
        return view
    if isinstance(said, DidNotRun):
        return _view(view, "not_started", v.TOOL_NOT_STARTED, tool.name, said.why)
    return msgspec.structs.replace(view, evidence=said.note or view.evidence)


def _view(view: CallView, verdict: v.Verdict, code: str, by: str, evidence: str) -> CallView:
    return msgspec.structs.replace(view, verdict=verdict, code=code, settled_by=by, evidence=evidence)
