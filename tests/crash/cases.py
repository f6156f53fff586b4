"""One whole run of the scenario with the judgement on each boundary: what the enumerated tests ask."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from fencepost.core import events as ev
from fencepost.runtime.plugin import Plugin
from tests.crash.boundaries import Boundary, Copies, SteppingDisk
from tests.crash.judging import Judged, judge
from tests.crash.scenario import GATES, play
from tests.crash.world import World

Law = Callable[[Boundary, Judged], None]


class Case(msgspec.Struct, frozen=True):
    """A whole run, and the judgement on each place where it could have died.

    Attributes:
        events: all that the run had in memory at its end.
        judged: each boundary, and what a fresh process made of its copy.
        copies: how many of the copies differ.
        gates: those that were in force.
    """

    events: tuple[ev.Event, ...]
    judged: tuple[tuple[Boundary, Judged], ...]
    copies: int
    gates: tuple[str, ...]


def case_of(place: Path, policy: Plugin | None, *, torn: bool = False, wrap=None) -> Case:
    """Run the scenario below `place`, and judge every place where it could have died.

    Args:
        torn: whether writes are also stopped in their middle.
        policy, wrap: as `play`.
    """
    root = place / "run"
    root.mkdir(mode=0o700)
    copies = Copies(root, World())
    events = asyncio.run(play(root, copies, SteppingDisk(copies, torn=torn), policy, wrap=wrap))
    found = judge([boundary.files for boundary in copies.boundaries], place, policy=policy)
    judged = tuple(zip(copies.boundaries, found, strict=True))
    return Case(events, judged, len({id(one) for one in found}), GATES if policy else ("closing",))


def broken(case: Case, law: Law) -> list[str]:
    """The boundaries at which a law does not hold, and why."""
    found = []
    for index, (boundary, judged) in enumerate(case.judged):
        try:
            law(boundary, judged)
        except AssertionError as error:
            found.append(f"{index} {boundary!r}: {error}")
    return found


def check(case: Case, law: Law) -> None:
    """The law holds at every boundary."""
    found = broken(case, law)
    assert not found, f"{len(found)} of {len(case.judged)} boundaries:\n" + "\n".join(found[:20])
