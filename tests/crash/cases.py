"""One whole run of the scenario with the judgement on each boundary: what the enumerated tests ask."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec

from fencepost.runtime.plugin import Plugin
from tests.crash.boundaries import Boundary
from tests.crash.judging import Judged, judge
from tests.crash.scenario import GATES, Explored, explore

Law = Callable[[Boundary, Judged], None]


class Case(msgspec.Struct, frozen=True):
    """A whole run, and the judgement on each place where it could have died."""

    run: Explored
    judged: tuple[tuple[Boundary, Judged], ...]
    copies: int
    gates: tuple[str, ...]


def case_of(place: Path, policy: Plugin | None, *, torn: bool = False, wrap=None) -> Case:
    """Run the scenario below `place`, and judge every place where it could have died; arguments as `explore`."""
    run = asyncio.run(explore(place / "run", policy, torn=torn, wrap=wrap))
    found = judge([boundary.files for boundary in run.boundaries], place, policy=policy)
    copies = len({id(judged) for judged in found})
    return Case(run, tuple(zip(run.boundaries, found, strict=True)), copies, GATES if policy else ("closing",))


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
