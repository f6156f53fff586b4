"""The demo: for each kill point start a real agent, kill it with SIGKILL, and compare its log with the world.

Everything is real but the model, which a local HTTP server plays from a script: the child process, the loop, the
JSONL store, the shell and file tools, and the kill. At the end one of the killed sessions goes on and finishes. With
`--settle` the table also has what can be said of each call once its tool has looked at its receipt.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

from fencepost.apps.demo.child import TOOLS, ready_agent
from fencepost.apps.demo.points import GO, MARKER, POINTS, KillPoint, answers
from fencepost.core.verdict import NOT_ENTERED
from fencepost.journal.inspect import CallView, Inspection, inspect
from fencepost.plugins.approval import Approval
from fencepost.plugins.shipped import compose
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.runtime import Runtime
from fencepost.stores.urls import open_store
from fencepost.testing import ModelServer

PATIENCE = 30.0
"""Seconds after which a child that has not reached its point is a failure of the demo."""

AT_ONCE = 4
"""Agents that run, and die, side by side: each has its own session, working directory and model server."""

UNKNOWN = "outcome_unknown"

FINISHED = "effect-done"
"""The killed session that goes on at the end."""


class Row(msgspec.Struct, frozen=True):
    """One line of the table.

    Attributes:
        point: where the agent was killed.
        world: how often the effect happened.
        log: the verdict of the log alone.
        settled: the verdict once the tool had looked, where that was asked for.
        by: who established it.
        right: whether both fit the world, and are what was expected.
        why: what is wrong.
    """

    point: str
    world: str
    log: str
    right: bool
    why: str = ""
    settled: str = ""
    by: str = ""


class NotReachedError(Exception):
    """A kill point could not be reached, so there is nothing to compare."""


def main(argv: list[str] | None = None) -> int:
    """Run the demo; 0 if every row is right and the resumed session finished its task."""
    parser = argparse.ArgumentParser(prog="fencepost demo", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--keep", metavar="DIR", help="keep the sessions and working directories in DIR")
    parser.add_argument("--settle", action="store_true", help="settle the unknown calls from what they left")
    parser.add_argument("--only", metavar="POINT", choices=[point.key for point in POINTS], help="one kill point")
    arguments = parser.parse_args(argv)
    if arguments.keep:
        Path(arguments.keep).mkdir(parents=True, exist_ok=True)
        return _run(Path(arguments.keep).absolute(), arguments.only, settle=arguments.settle)
    with tempfile.TemporaryDirectory(prefix="fencepost-demo-") as root:
        return _run(Path(root), arguments.only, settle=arguments.settle)


def _run(root: Path, only: str | None, *, settle: bool) -> int:
    started = time.monotonic()
    rows = []
    also = f"{'settled':<16}{'by':<8}" if settle else ""
    print(f"{'killed at':<36}{'the world shows':<17}{'the log says':<18}{also}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for row in pool.map(partial(_row, root, settle), [point for point in POINTS if only in {None, point.key}]):
            rows.append(row)
            print(_line(row, settle=settle), flush=True)
    wrong = sum(not row.right for row in rows)
    finished = True if only not in {None, FINISHED} else _finish(root)
    print(
        f"\n{len(rows)} kill points, {wrong} wrong, {_unknown(rows) if settle else ''}"
        f"{'task finished' if finished else 'TASK NOT FINISHED'}; {time.monotonic() - started:.0f} s"
    )
    return 0 if wrong == 0 and finished else 1


def _unknown(rows: list[Row]) -> str:
    before = sum(row.log == UNKNOWN for row in rows)
    return f"{before} unknown to the log and {sum(row.settled == UNKNOWN for row in rows)} after settlement, "


def _row(root: Path, settle: bool, point: KillPoint) -> Row:
    try:
        work, view = kill_at(root, point)
        row = judge(point, work, view)
        return settled_row(row, point, work, asyncio.run(settled(root, point.key))) if settle else row
    except NotReachedError as error:
        return Row(point.name, "?", "?", right=False, why=str(error))


def _line(row: Row, *, settle: bool) -> str:
    also = f"{row.settled:<16}{row.by:<8}" if settle else ""
    says = "right" if row.right else "WRONG"
    return f"{row.point:<36}{row.world:<17}{row.log:<18}{also}{says}{row.why and ': ' + row.why}"


# --- one kill point -------------------------------------------------------------------------------------------------


def kill_at(root: Path, point: KillPoint) -> tuple[Path, Inspection]:
    """Run an agent up to `point`, kill it, and look at what it left.

    Returns:
        The agent's working directory, and the inspection of its session.

    Raises:
        NotReachedError: the child ended, or did not reach its point in time.
    """
    work = root / "work" / point.key
    work.mkdir(parents=True)
    with ModelServer(_script(point)) as server:
        held = server.holds[0].reached.is_set if server.holds else lambda: False
        _kill_child(root, point, work, server.url, "run", held)
        if point.repair:
            (work / MARKER).unlink()
            _kill_child(root, point, work, server.url, "repair", held)
    return work, asyncio.run(inspect(open_store(store_url(root)), point.key))


def store_url(root: Path) -> str:
    """The store of a demo that runs in `root`."""
    return f"jsonl:{root / 'sessions'}"


def _script(point: KillPoint) -> list[dict[str, object]]:
    script: list[dict[str, object]] = [dict(answer) for answer in answers(point)]
    if point.hold is not None:
        script[0]["fault"] = {"kind": "hold", "after": point.hold or None}
    return script


def _kill_child(root: Path, point: KillPoint, work: Path, model_url: str, mode: str, held: Callable[[], bool]) -> None:
    command = [sys.executable, "-m", "fencepost.apps.demo.child", point.key, store_url(root), str(work)]
    child = subprocess.Popen([*command, model_url, point.key, mode], stdin=subprocess.DEVNULL)  # noqa: S603 - our own
    try:
        _await(child, lambda: held() or _reached(work / MARKER), point)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
        (work / GO).touch()  # its command lives on, and finishes
    _await_group_gone(work)


def _reached(marker: Path) -> bool:
    """Whether the marker says so: its content counts, for it exists, empty, before it is written."""
    try:
        return marker.read_text() == "reached\n"
    except FileNotFoundError:
        return False


def _await(child: subprocess.Popen[bytes], reached: Callable[[], bool], point: KillPoint) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if child.poll() is not None:
            raise NotReachedError(f"the agent ended with {child.returncode} before it came to this point")
        if time.monotonic() > deadline:
            raise NotReachedError(f"the agent did not come to {point.key!r} within {PATIENCE:.0f} s")
        time.sleep(0.01)


def _await_group_gone(work: Path) -> None:
    """Wait until no command of the agent lives any more: the world is looked at when nobody acts on it any more."""
    deadline = time.monotonic() + PATIENCE
    while any(_lives_in(work)) and time.monotonic() < deadline:
        time.sleep(0.01)
    if any(_lives_in(work)):
        raise NotReachedError("a command of the killed agent lives on")


def _lives_in(work: Path) -> Iterator[int]:
    """Processes whose working directory is `work` (Linux; elsewhere nothing is found, and nothing is waited for)."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if (entry / "cwd").readlink() == work and int(entry.name) != os.getpid():
                yield int(entry.name)
        except OSError:
            continue  # gone meanwhile, or not ours to look at


def judge(point: KillPoint, work: Path, view: Inspection) -> Row:
    """Compare the log's claim with the world."""
    effects = _effects(work)
    call, verdict, why = _claim(point.verdict, effects, view)
    if effects != point.effects:
        why = f"expected {point.effects}"
    elif effects and call and call.code in NOT_ENTERED:
        why = "an effect happened, and the log calls its call not started"
    world = f"{effects} effect" if effects == 1 else f"{effects} effects"
    return Row(point.name, world, verdict or "no call was made", not why, why)


def settled_row(row: Row, point: KillPoint, work: Path, view: Inspection) -> Row:
    """The row with the claim after settlement, compared with the world like the other."""
    call, verdict, why = _claim(point.settled or point.verdict, _effects(work), view)
    why = row.why or why
    by = call.settled_by if call else ""
    return msgspec.structs.replace(row, settled=verdict or "", by=by, right=not why, why=why)


def _claim(expected: str | None, effects: int, view: Inspection) -> tuple[CallView | None, str | None, str]:
    """The call that is claimed something about, the claim, and what is wrong with that."""
    calls = [call for call in view.calls if call.name == "shell"]
    verdict = calls[0].verdict if calls else None
    why = ""
    if len(calls) > 1:
        why = f"{len(calls)} calls where one was asked for"
    elif verdict != expected:
        why = f"{verdict}, expected {expected or 'no call'}"
    elif (verdict, effects) in {("completed", 0), ("not_started", 1)}:
        why = "the world says something else"
    return (calls[0] if calls else None), verdict, why


def _effects(work: Path) -> int:
    outbox = work / "outbox.txt"
    return outbox.read_text().count("sent\n") if outbox.exists() else 0


async def settled(root: Path, session_id: str) -> Inspection:
    """What the shipped tools say of a session's calls, beside its log. Changes nothing."""
    async with Runtime(open_store(store_url(root)), None, compose(TOOLS, "all")) as runtime:
        return await runtime.inspect(session_id, settle=True)


# --- going on -------------------------------------------------------------------------------------------------------


def _finish(root: Path) -> bool:
    """Resume the session that was killed behind its effect, and let it finish."""
    point = next(point for point in POINTS if point.key == FINISHED)
    work = root / "work" / point.key
    print(f"\nResuming the session that was killed at {point.name!r}:")
    with ModelServer(_script(point)) as server:
        result = asyncio.run(_go_on(root, server.url, point.key))
    sent = _effects(work)
    print(f"  the world shows: sent {sent} time{'s' if sent != 1 else ''}, report: {(work / 'report.md').exists()}")
    return result is not None and result.reason == "completed" and sent == 1 and (work / "report.md").exists()


async def _go_on(root: Path, model_url: str, session_id: str) -> TurnResult | None:
    async with ready_agent(open_store(store_url(root)), model_url, Approval("all")) as runtime:
        session = await runtime.resume(session_id)
        for item in session.recovery.calls:
            by = f", as {item.settled_by} has found out: {item.evidence}" if item.settled_by else ""
            print(f"  {item.call.name}: {item.verdict}{by}")
        before = session.journal.log.fold.next_seq
        result = await session.go_on()
        for event in session.journal.log.events(before):
            line = _story(event)
            if line:
                print(f"  {line}")
        return result


def _story(event: object) -> str:
    from fencepost.core import events as ev

    if isinstance(event, ev.AssistantMessage):
        return f"model: {ev.text_of(event.content)}"
    if isinstance(event, ev.ToolCall):
        return f"call:  {event.name} {msgspec.json.encode(event.arguments).decode()}"
    if isinstance(event, ev.ToolResult):
        return f"  ->   {ev.text_of(event.content).strip()}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
