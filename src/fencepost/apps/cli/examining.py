"""`fencepost doctor`: is every session whole, and does the medium keep what it is told? It changes no session.

With `--repair` or `--salvage` it does (see `mending`). One that cannot even be read is a finding, never the end: each
session is looked at by itself.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from fencepost.apps.cli import exits, mending
from fencepost.apps.cli.checkup import Checkup, Problem, check
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.inspecting import MEANINGS, STATES
from fencepost.apps.cli.looking import Desk, give, look, status_for
from fencepost.apps.cli.medium import Medium, examine_medium
from fencepost.apps.cli.progress import Bar
from fencepost.errors import SessionNotFoundError, StoreError
from fencepost.journal.inspect import fold_stored
from fencepost.journal.session import off_loop

if TYPE_CHECKING:
    from rich.console import Console


class Counts(msgspec.Struct, frozen=True):
    """The sessions that were looked at, by their state, and what is in them."""

    sessions: int
    states: dict[str, int]
    torn: int
    """Sessions with torn bytes at the end."""
    unknown: int
    """Calls whose outcome is unknown."""


class Report(msgspec.Struct, frozen=True):
    """The whole of it."""

    sessions: tuple[Checkup, ...]
    medium: Medium
    counts: Counts


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.repair or arguments.salvage is not None:
        return mending.main(arguments)

    async def work(desk: Desk) -> int:
        one = None if arguments.id is None else await find(desk.store, arguments.id, desk.cwd)
        checkups = await _check_all(desk, sorted(await desk.store.sessions()) if one is None else [one])
        report = Report(tuple(checkups), await examine_medium(desk.store, _progress), count(checkups))
        if arguments.json:
            give(report)
        else:
            _print(report, alone=one is not None)
        return max([status_for(checkup.state) for checkup in checkups], default=0) or (
            exits.DONE if report.medium.ok else exits.OTHERWISE
        )

    return look(arguments, work)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


async def _check_all(desk: Desk, names: Sequence[str]) -> list[Checkup]:
    bar, found = Bar(len(names), "sessions"), list[Checkup]()
    for number, name in enumerate(names, 1):
        checkup = await _check(desk, name)
        if checkup is not None:
            found.append(checkup)
        bar.at(number)
    return found


async def _check(desk: Desk, name: str) -> Checkup | None:
    """Look at one session; None if it was deleted since it was listed."""
    try:
        stored = await desk.store.read(name)
    except SessionNotFoundError:
        return None
    except StoreError as error:
        return Checkup(name, "damaged", (Problem(None, error.explain()),), 0, ())
    return await off_loop(len(stored.entries), lambda: check(fold_stored(stored, desk.vocabulary)))


def count(checkups: Sequence[Checkup]) -> Counts:
    """The sum of some checkups."""
    return Counts(
        len(checkups),
        dict(Counter(str(checkup.state) for checkup in checkups)),
        sum(bool(checkup.tail_bytes) for checkup in checkups),
        sum(checkup.unknown for checkup in checkups),
    )


# --- for people -------------------------------------------------------------------------------------------------


def _print(report: Report, *, alone: bool = False) -> None:
    from fencepost.apps.cli import paper

    out = paper.paper()
    if alone:
        for checkup in report.sessions:
            _print_one(out, checkup)
    elif report.sessions:
        _print_all(out, report)
    else:
        out.print("no sessions")
    out.print()
    print_medium(out, report.medium)


def _print_all(out: Console, report: Report) -> None:
    from fencepost.apps.cli import paper

    grid = paper.table(("session", "state", "calls", "unknown", "problems"), fixed=2)
    for checkup in report.sessions:
        row = (str(len(checkup.calls)), str(checkup.unknown or "-"), "; ".join(_findings(checkup)) or "-")
        grid.add_row(paper.styled(checkup.session), paper.verdict_text(checkup.state), *map(paper.styled, row))
    out.print(grid)
    counts = report.counts
    states = ", ".join(f"{number} {state}" for state, number in sorted(counts.states.items()))
    out.print(paper.styled(f"\n{counts.sessions} sessions: {states}; {counts.torn} with a torn tail"))
    out.print(paper.styled(f"{counts.unknown} calls with unknown outcome"))


def _findings(checkup: Checkup) -> list[str]:
    found = [problem.sentence for problem in checkup.problems]
    found += [f"{checkup.tail_bytes} torn bytes at the end"] if checkup.tail_bytes else []
    found += [f"{checkup.gaps} gaps that salvage marked"] if checkup.gaps else []
    return found


def _print_one(out: Console, checkup: Checkup) -> None:
    """What is wrong, what is intact around it, what to do, and what can be claimed of each call."""
    from fencepost.apps.cli import paper

    out.print(paper.styled(f"session {checkup.session} is ").append_text(paper.verdict_text(checkup.state)))
    out.print(paper.styled(f"  {STATES[checkup.state]}", "dim"))
    for finding in _findings(checkup):
        out.print(paper.styled(f"  wrong: {finding}", "bold red"))
    for line in (*_around(checkup), *_advice(checkup)):
        out.print(paper.styled(f"  {line}"))
    if checkup.calls:
        out.print()
        grid = paper.table(("call", "verdict", "means"), fixed=1)
        for call in checkup.calls:
            means = MEANINGS[call.verdict] + (f" ({call.code})" if call.code else "")
            name = paper.styled(f"{call.name}\n{call.call_id}")
            grid.add_row(name, paper.verdict_text(call.verdict), paper.styled(means))
        out.print(grid)


def _around(checkup: Checkup) -> list[str]:
    broken = bool(checkup.problems or checkup.tail_bytes)
    where = "before it" if broken else "intact"
    lines = [f"{where}: " + (f"events {checkup.before}" if checkup.before else "nothing")]
    if checkup.problems:
        spans = ", ".join(map(str, checkup.beyond))
        lines.append(f"beyond it: events {spans}, shown and exported" if spans else "beyond it: nothing that is whole")
    lines += [f"a second line of events, by another writer: {line}" for line in checkup.second_lines]
    return lines


def _advice(checkup: Checkup) -> list[str]:
    if checkup.state == "damaged":
        return [f"nothing was changed; to go on with what is intact: fencepost doctor {checkup.session} --salvage NEW"]
    if checkup.tail_bytes and checkup.state != "running":
        return [
            f"nothing was changed; resuming sets the tail aside, as does fencepost doctor {checkup.session} --repair"
        ]
    return []


def print_medium(out: Console, medium: Medium) -> None:
    """What was found out about the place where sessions are kept."""
    from fencepost.apps.cli import paper

    out.print(paper.styled(f"{medium.path or 'medium'} ({medium.filesystem}) {medium.detail}".rstrip()))
    for problem in medium.problems:
        out.print(paper.styled(f"  wrong: {problem}", "bold red"))
    for name, value in sorted(medium.settings.items()):
        out.print(paper.styled(f"  {name} = {value}"))
    for name, answer in (("locks", medium.locks), ("syncs", medium.syncs)):
        said = "not tried" if answer is None else "work" if answer else "DO NOT WORK"
        out.print(paper.styled(f"  {name} {said}", "" if answer is not False else "bold red"))
    for kill in medium.kills:
        sign, style = ("ok", "green") if kill.ok else ("WRONG", "bold red")
        out.print(paper.styled(f"  killed at {kill.gate}: {sign}, {kill.detail}", style))
