"""One whole run of the scenario with the judgement on each boundary: what the enumerated tests ask."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec

from fencepost.core import events as ev
from fencepost.core.verdict import NO_EVIDENCE
from fencepost.runtime.plugin import Plugin
from tests.crash.boundaries import Boundary, Copies, SteppingDisk
from tests.crash.judging import Judged, judge
from tests.crash.scenario import GATES, SESSION, play
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


# --- interrupted logs -----------------------------------------------------------------------------------------------


class Loss(msgspec.Struct, frozen=True, order=True):
    """What is lost of an interrupted log.

    Attributes:
        missing: bytes are, a commit line at least.
        named: the torn ones name a call.
        bare: without the torn ones the log ends with a commit line, so that nothing in it tells that bytes are missing.
    """

    missing: bool
    named: bool
    bare: bool


def loss_of(boundary: Boundary, judged: Judged) -> Loss:
    """What is lost of the log of a boundary."""
    stored = judged.stored
    assert stored is not None
    data = boundary.files[f"{SESSION}/log.jsonl"]
    kept = data[: len(data) - stored.tail_bytes]
    bare = kept.rstrip(b"\n").rpartition(b"\n")[2].startswith(b'{"type":"commit"')
    return Loss(stored.evidence != NO_EVIDENCE, bool(stored.evidence.named), bare)


def interrupted(case: Case) -> list[tuple[Boundary, Judged]]:
    """For each kind of loss a log with the most unknown calls."""
    kinds: dict[tuple, tuple[Boundary, Judged]] = {}
    for boundary, judged in case.judged:
        if judged.view is not None and judged.view.state == "interrupted" and judged.view.calls:
            verdicts = Counter(judged.verdicts().values())
            kind = (loss_of(boundary, judged), -verdicts["outcome_unknown"], verdicts["not_started"])
            kinds.setdefault(kind, (boundary, judged))
    picked: dict[Loss, tuple[Boundary, Judged]] = {}
    for (loss, *_), pair in sorted(kinds.items(), key=lambda item: item[0]):
        picked.setdefault(loss, pair)
    return list(picked.values())
