"""`fencepost doctor`: is every session whole, and does the medium keep what it is told? It changes no session."""

from __future__ import annotations

import argparse
import sys

import msgspec

from fencepost.apps.cli import exits
from fencepost.apps.cli.finding import find
from fencepost.apps.cli.looking import Desk, look, status_for
from fencepost.apps.cli.medium import Medium, examine_medium
from fencepost.core.verdict import Verdict
from fencepost.errors import StoreError
from fencepost.journal.inspect import SessionState, examine, fold_stored


class Problem(msgspec.Struct, frozen=True):
    """What is wrong, and at which byte of the log; null where that cannot be said."""

    offset: int | None
    reason: str


class Claim(msgspec.Struct, frozen=True):
    """What the log claims about one call."""

    call_id: str
    name: str
    verdict: Verdict


class Checkup(msgspec.Struct, frozen=True):
    """One session."""

    session: str
    state: SessionState
    problems: tuple[Problem, ...]
    tail_bytes: int
    calls: tuple[Claim, ...]


class Report(msgspec.Struct, frozen=True):
    """The whole of it."""

    sessions: tuple[Checkup, ...]
    medium: Medium


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""

    async def work(desk: Desk) -> int:
        names = await desk.store.sessions()
        if arguments.id is not None:
            names = [await find(desk.store, arguments.id, desk.cwd)]
        checkups = tuple([await check(desk, name) for name in sorted(names)])
        report = Report(checkups, await examine_medium(desk.store, _progress))
        if arguments.json:
            sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
        else:
            _print(report)
        return max([status_for(checkup.state) for checkup in checkups], default=0) or (
            exits.DONE if report.medium.ok else exits.OTHERWISE
        )

    return look(arguments, work)


def _progress(text: str) -> None:
    if sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")


async def check(desk: Desk, name: str) -> Checkup:
    """Look at one session; one that cannot even be read is a finding, not the end."""
    try:
        reading = fold_stored(await desk.store.read(name), desk.vocabulary)
    except StoreError as error:
        return Checkup(name, "damaged", (Problem(None, error.explain()),), 0, ())
    found = examine(reading)
    problems = [Problem(damage.offset, damage.reason) for damage in reading.stored.damage]
    if not problems and status_for(found.state):
        problems.append(Problem(None, found.problem or found.state))
    return Checkup(
        name,
        found.state,
        tuple(problems),
        found.tail_bytes,
        tuple(Claim(call.call_id, call.name, call.verdict) for call in found.calls),
    )


def _print(report: Report) -> None:
    from fencepost.apps.cli import paper

    out = paper.paper()
    if report.sessions:
        grid = paper.table(("session", "state", "calls", "unknown", "problems"), fixed=2)
        for checkup in report.sessions:
            unknown = sum(call.verdict == "outcome_unknown" for call in checkup.calls)
            row = (str(len(checkup.calls)), str(unknown or "-"), _problems(checkup))
            grid.add_row(paper.styled(checkup.session), paper.verdict_text(checkup.state), *map(paper.styled, row))
        out.print(grid)
    else:
        out.print("no sessions")
    medium = report.medium
    out.print()
    out.print(paper.styled(f"{medium.path or 'medium'} ({medium.filesystem}) {medium.detail}".rstrip()))
    for name, answer in (("locks", medium.locks), ("syncs", medium.syncs)):
        said = "not tried" if answer is None else "work" if answer else "DO NOT WORK"
        out.print(paper.styled(f"  {name} {said}", "" if answer is not False else "bold red"))
    for kill in medium.kills:
        sign, style = ("ok", "green") if kill.ok else ("WRONG", "bold red")
        out.print(paper.styled(f"  killed at {kill.gate}: {sign}, {kill.detail}", style))


def _problems(checkup: Checkup) -> str:
    found = [
        problem.reason if problem.offset is None else f"byte {problem.offset}: {problem.reason}"
        for problem in checkup.problems
    ]
    if checkup.tail_bytes:
        found.append(f"{checkup.tail_bytes} torn bytes at the end")
    return "; ".join(found) or "-"
