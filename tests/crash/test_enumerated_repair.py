"""Killed during the repair: at every write, sync and name of it, and at every append of the second life.

What a repair was about to say is what it says later, whatever was already written when it died. The logs that are
repaired are those that need it: torn in a record that names a call, torn without a name, and whole.
"""

import asyncio
from collections import Counter

import msgspec
import pytest

from fencepost.core import events as ev
from fencepost.plugins.checkpoint import Checkpoint
from fencepost.stores.jsonl import JsonlStore
from tests.crash import laws
from tests.crash.boundaries import Boundary, Copies, SteppingDisk, restore
from tests.crash.cases import interrupted, loss_of
from tests.crash.judging import Judged, judge
from tests.crash.scenario import SESSION, Agent
from tests.crash.world import NOTHING, World


class Repaired(msgspec.Struct, frozen=True):
    """One interrupted log, and the judgement on each place where its repair could have died."""

    first: Boundary
    before: Judged
    stops: tuple[tuple[Boundary, Judged], ...]


def _stops(place, number: int, boundary: Boundary) -> tuple[tuple[Boundary, Judged], ...]:
    root = place / f"repair-{number}"
    restore(boundary.files, root)
    recorder = Copies(root, World())
    store = JsonlStore(root, disk=SteppingDisk(recorder, torn=True))
    agent = Agent(store, recorder.world, life="repair", policy=Checkpoint())

    async def repair() -> None:
        async with agent.runtime as runtime:
            await runtime.resume(SESSION)
            recorder.mark("ack", "resumed")

    asyncio.run(repair())
    assert recorder.world.witness() == NOTHING
    found = judge([stop.files for stop in recorder.boundaries], place, policy=Checkpoint())
    return tuple(zip(recorder.boundaries, found, strict=True))


@pytest.fixture(scope="module")
def repairs(tmp_path_factory, gated) -> list[Repaired]:
    place = tmp_path_factory.mktemp("repair")
    return [
        Repaired(boundary, judged, _stops(place, number, boundary))
        for number, (boundary, judged) in enumerate(interrupted(gated))
    ]


def test_there_are_repairs_of_every_kind(repairs):
    stops = [stop for repaired in repairs for stop, _ in repaired.stops]
    print(f"{len(repairs)} repairs, {len(stops)} places to die: {dict(Counter(stop.kind for stop in stops))}")
    losses = {loss_of(repaired.first, repaired.before) for repaired in repairs}
    assert {(loss.missing, loss.bare) for loss in losses} == {(True, True), (True, False), (False, True)}
    assert any(loss.named for loss in losses)
    assert any(name.startswith(f"{SESSION}/tail-") for stop in stops for name in stop.files)
    assert len(stops) > 100


@pytest.mark.parametrize(
    "law",
    [
        laws.no_ghost,
        laws.no_false_innocence,
        laws.no_ghost_request,
        laws.one_result_per_call,
        laws.opening_is_reading,
        laws.nothing_acknowledged_is_lost,
        laws.acknowledged_prompts_run_once,
        laws.repair_tells_what_looking_told,
        laws.resume_runs_nothing,
        laws.strict_providers_take_it,
        laws.no_effect_twice,
    ],
    ids=lambda law: law.__name__,
)
def test_a_repair_that_dies(repairs, law):
    for repaired in repairs:
        for stop, judged in repaired.stops:
            try:
                law(repaired.first.witness, judged)
            except AssertionError as error:
                raise AssertionError(f"repair of {repaired.first!r}, killed at {stop!r}: {error}") from None


def test_verdicts_outlive_a_repair_that_dies(repairs):
    """A repair that dies in the middle of a write leaves doubt where there was none, and never certainty."""
    for repaired in repairs:
        before = repaired.before.verdicts()
        for stop, judged in repaired.stops:
            after = judged.verdicts()
            changed = {(before[call], after[call]) for call in before if before[call] != after[call]}
            doubt = {("not_started", "outcome_unknown")} if stop.kind == "torn" else set()
            assert changed <= doubt, f"{repaired.first!r}, killed at {stop!r}"
            assert after.keys() == before.keys()


def test_a_repair_is_durable_before_anybody_hears_of_it(repairs):
    for repaired in repairs:
        told = [judged for stop, judged in repaired.stops if stop.what == "resumed"]
        assert [judged.view.state for judged in told] == ["clean"]


def test_prefix(repairs):
    """What was durable before the repair stays, and what the repair wrote is a prefix of what it was to write."""
    for repaired in repairs:
        whole = repaired.before.repaired
        for stop, judged in repaired.stops:
            durable = len(repaired.before.events)
            assert _said(judged.events) == _said(whole[: len(judged.events)]), f"killed at {stop!r}"
            assert len(judged.events) >= durable


def _said(events) -> list:
    """Events without the name and number of the owner that wrote them: each life has its own."""
    return [
        msgspec.structs.replace(event, owner="", set_aside=0) if isinstance(event, ev.SessionOwner) else event
        for event in events
    ]
