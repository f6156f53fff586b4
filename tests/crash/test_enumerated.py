"""Kill points, enumerated: the process dies at every append, write, sync, gate and body boundary, and every law holds.

One run of the scenario gives some hundreds of copies of its directory; each is opened by a fresh process's code, looked
at, repaired, and gone on with. The tests are named after the laws.
"""

from collections import Counter

import pytest

from fencepost.plugins.checkpoint import Checkpoint
from fencepost.stores.jsonl import JsonlStore
from tests.crash import laws
from tests.crash.cases import Case, broken, case_of, check


@pytest.fixture(scope="module")
def ungated(tmp_path_factory) -> Case:
    return case_of(tmp_path_factory.mktemp("ungated"), None)


def of_witness(law):
    return lambda boundary, judged: law(boundary.witness, judged)


ALWAYS = [
    laws.no_false_innocence,
    laws.one_result_per_call,
    laws.opening_is_reading,
    laws.nothing_acknowledged_is_lost,
    laws.acknowledged_prompts_run_once,
    laws.completed_is_real,
    laws.repair_tells_what_looking_told,
    laws.resume_runs_nothing,
    laws.strict_providers_take_it,
]
GATED = [laws.no_ghost, laws.no_ghost_request, laws.no_effect_twice]


def test_every_kind_of_boundary_was_explored(gated):
    kinds = Counter(boundary.kind for boundary, _ in gated.judged)
    verdicts = Counter(verdict for _, judged in gated.judged for verdict in judged.verdicts().values())
    print(f"{len(gated.judged)} boundaries, {gated.copies} different copies: {dict(kinds)}; verdicts: {dict(verdicts)}")
    assert set(kinds) == {"append", "write", "torn", "sync", "name", "gate", "body", "request", "approval", "ack"}
    assert len(gated.judged) - kinds["torn"] > 150
    assert gated.copies > 50
    assert set(verdicts) == {"completed", "not_started", "outcome_unknown"}


@pytest.mark.parametrize("law", [*ALWAYS, *GATED], ids=lambda law: law.__name__)
def test_under_gates(gated, law):
    check(gated, of_witness(law))


@pytest.mark.parametrize("law", ALWAYS, ids=lambda law: law.__name__)
def test_without_gates(ungated, law):
    check(ungated, of_witness(law))


@pytest.mark.parametrize("case_name", ["gated", "ungated"])
def test_prefix(case_name, request):
    case = request.getfixturevalue(case_name)
    check(case, lambda boundary, judged: laws.prefix(case.events, judged))


@pytest.mark.parametrize("case_name", ["gated", "ungated"])
def test_the_log_says_what_it_may_claim(case_name, request):
    case = request.getfixturevalue(case_name)
    check(case, lambda boundary, judged: laws.gates_are_recorded(case.gates, judged))


def test_unknown_only_where_it_is_unavoidable(gated):
    check(
        gated,
        lambda boundary, judged: laws.unknown_only_if_unavoidable(
            boundary.witness, judged, whole=boundary.kind != "torn"
        ),
    )


def test_no_sigkill_damages_a_log(gated):
    def readable(boundary, judged):
        assert judged.refused is None
        assert judged.view is None or judged.view.state in {"clean", "interrupted"}

    check(gated, readable)


# --- the checks themselves ------------------------------------------------------------------------------------------


class HastyStore:
    """A store that says "saved" one batch too early: what a log without a sync does. It must be found out."""

    def __init__(self, inner: JsonlStore) -> None:
        self._inner = inner

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    async def create(self, header):
        handle = await self._inner.create(header)
        return HastyHandle(handle)


class HastyHandle:
    def __init__(self, inner) -> None:
        self._inner = inner
        self.stored = inner.stored
        self._late = None

    async def append(self, entries, expected_seq: int) -> None:
        late, self._late = self._late, (entries, expected_seq)
        if late is not None:
            await self._inner.append(*late)

    async def set_aside(self) -> int:
        return await self._inner.set_aside()

    async def release(self) -> None:
        if self._late is not None:
            await self._inner.append(*self._late)
        await self._inner.release()


@pytest.fixture(scope="module")
def hasty(tmp_path_factory) -> Case:
    return case_of(tmp_path_factory.mktemp("hasty"), Checkpoint(), wrap=HastyStore)


LIES = [laws.no_ghost, laws.no_false_innocence, laws.no_ghost_request, laws.nothing_acknowledged_is_lost]


@pytest.mark.parametrize("law", LIES, ids=lambda law: law.__name__)
def test_a_store_that_acknowledges_too_early_is_found_out(hasty, law):
    assert broken(hasty, of_witness(law))
