"""Power cuts, simulated, under a whole agent: at each operation of the disk what was synced is kept, and of the rest
every prefix, or all but one block of 512 bytes. Every state is read and repaired, in memory; some hundreds of them are
also put on a real directory, resumed, and gone on with.

What a cut may do that a SIGKILL may not: take bytes that were written. So a call may be unknown although its body did
not run (docs/notes/0003-missing-bytes.md), and a block that is lost in the middle of a batch that nobody was told of
reads as damage (docs/notes/0002-log-format.md). What it may never do: a false `not_started`, or a lost acknowledgement.
"""

import contextlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from fencepost.core import events as ev
from fencepost.core.codec import FORMAT, encode
from fencepost.plugins.checkpoint import Checkpoint
from tests.crash import laws
from tests.crash.cases import interrupted
from tests.crash.judging import Judged, judge
from tests.crash.power import Powered, powered_repair, powered_run
from tests.crash.reading import judge_in_memory, look
from tests.crash.scenario import SESSION
from tests.stores.powercut import BLOCK, Cut, RecordingDisk

HEADER = ev.Header(SESSION, 0, "/", FORMAT)

FILLER = "All of this has to survive, to the last word. " * 24
"""Makes batches of several blocks."""

KEPT = {
    ("completed", "completed"),
    ("not_started", "not_started"),
    ("not_started", "outcome_unknown"),
    ("outcome_unknown", "outcome_unknown"),
}
"""Verdicts before a repair, and behind a power cut in it: doubt may grow, certainty may not."""

LAWS = (
    laws.no_ghost,
    laws.no_false_innocence,
    laws.no_ghost_request,
    laws.one_result_per_call,
    laws.nothing_acknowledged_is_lost,
    laws.completed_is_real,
    laws.repair_tells_what_looking_told,
    laws.strict_providers_take_it,
)


def check(run: Powered, cut: Cut, judged: Judged) -> None:
    """All laws that a power cut leaves in force."""
    witness = run.witnesses[cut.acknowledged]
    for law in LAWS:
        law(witness, judged)
    laws.gates_are_recorded(("step", "request", "tool", "closing"), judged)
    laws.unknown_only_if_unavoidable(witness, judged, whole=False)
    assert judged.refused is None or cut.lost_block, "damage without a lost block"


def survey(run: Powered, cuts: Iterable[Cut]) -> Counter:
    """Check every different state; returns how many there were, by what inspection calls them.

    Once a state is known to hold a prefix of the run, all the rest follows from its length and from what is known of
    lost bytes: so it is looked into once for each of those.
    """
    seen: set[tuple] = set()
    known: dict[tuple, str] = {}
    states: Counter = Counter()
    for cut in cuts:
        files = (cut.acknowledged, frozenset(cut.files.items()))
        if files not in seen:
            seen.add(files)
            with told(cut):
                states[_state(run, cut, known)] += 1
    return states


def _state(run: Powered, cut: Cut, known: dict[tuple, str]) -> str:
    judged = look(cut.files, run.root)
    laws.prefix(run.events, judged)
    stored = judged.stored
    if stored is None or stored.damage:
        check(run, cut, judge_in_memory(judged))
        return "no session" if stored is None else "damaged"
    key = (cut.acknowledged, len(judged.events), stored.evidence)
    if key not in known:
        check(run, cut, judge_in_memory(judged))
        unknown = "outcome_unknown" in judged.verdicts().values()
        known[key] = f"{judged.view.state}, {'some' if unknown else 'none'} unknown"
    return known[key]


@contextlib.contextmanager
def told(cut: Cut) -> Iterator[None]:
    """A broken law names the cut."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{cut.story}: {error}") from None


def test_every_byte_of_every_batch_that_begins_or_ends_a_call(tmp_path):
    run = powered_run(tmp_path)
    states = survey(run, run.sampled(7))
    print(f"{states.total()} states: {dict(states)}")
    assert states.total() > 5_000
    assert set(states) == {
        "no session",
        "interrupted, none unknown",
        "interrupted, some unknown",
        "clean, none unknown",
        "damaged",
    }
    assert states["damaged"] < 100


def test_batches_of_several_blocks_lose_each_of_them(tmp_path):
    run = powered_run(tmp_path, filler=FILLER)
    blocks = Counter(
        cut.after for cut in run.cuts(BLOCK) if cut.lost_block and any(p.name == "log.jsonl" for p in cut.files)
    )
    states = survey(run, run.cuts(61))
    print(f"{states.total()} states: {dict(states)}")
    assert sum(count >= 4 for count in blocks.values()) >= 4, "no batch has several blocks"
    assert states["damaged"] > 10
    assert states["interrupted, some unknown"] > 100


def test_a_lost_block_damages_only_what_nobody_was_told_of(tmp_path):
    """The intact prefix of a damaged log still holds every acknowledged event; what is behind it is kept apart."""
    run = powered_run(tmp_path, filler=FILLER)
    damaged = 0
    for cut in run.cuts(BLOCK):
        judged = judge_in_memory(look(cut.files, run.root))
        if judged.refused is not None:
            damaged += 1
            with told(cut):
                laws.nothing_acknowledged_is_lost(run.witnesses[cut.acknowledged], judged)
                assert "not_started" not in _unanswered(judged)
    assert damaged


def _unanswered(judged: Judged) -> set[str]:
    return {call.verdict for call in judged.view.calls if call.code in {"TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"}}


def test_the_power_fails_during_the_repair(tmp_path, gated):
    """What was unknown before the repair is unknown after the cut: the doubt is durable before the tail is cut off."""
    states: Counter = Counter()
    logs = interrupted(gated)
    for number, (boundary, before) in enumerate(logs):
        place = tmp_path / str(number)
        place.mkdir()
        run = powered_repair(place, boundary.files, boundary.witness)
        states += survey(run, run.cuts(7))
        for cut in run.cuts(97):
            now = judge_in_memory(look(cut.files, run.root)).verdicts()
            changed = {(verdict, now.get(call)) for call, verdict in before.verdicts().items()}
            assert changed <= KEPT, cut.story
    print(f"{len(logs)} repairs, {states.total()} states: {dict(states)}")
    assert len(logs) >= 4
    assert states["interrupted, some unknown"] > 500
    assert states["clean, some unknown"]


def test_a_call_stays_in_sight_when_the_lost_block_took_the_newline_behind_it():
    """Records of one line, with a hole where the newline was: both sides of it are shown."""
    asked = ev.AssistantMessage(2, 0, 1, 1, "m", (ev.CallRequest("c1", "send", "{}"),), "tool_calls")
    parts = [ev.TurnStart(0, 0, 1, ("tool",), "checkpoint"), ev.StepStart(1, 0, 1, 1), asked]
    closed = ev.StepEnd(4, 0, 1, 1, synthetic=True)
    lines = (
        b"\n".join(encode(entry) for entry in (HEADER, *parts)) + bytes(BLOCK) + b'"lost"}\n' + encode(closed) + b"\n"
    )
    root = Path("/sessions")
    judged = judge_in_memory(look({root / SESSION / "log.jsonl": lines}, root))
    assert judged.view.state == "damaged"
    assert judged.verdicts() == {"c1": "outcome_unknown"}
    assert [event.seq for event in judged.stored.beyond] == [2, 4]


def test_the_next_process_resumes_and_goes_on(tmp_path):
    """Real directories, a sample: resume, resume again, go on. No effect happens twice, every prompt runs once."""
    run = powered_run(tmp_path)
    different = {(cut.acknowledged, frozenset(cut.files.items())): cut for cut in run.cuts(97)}
    cuts = random.Random(2).sample(list(different.values()), 150)
    found = judge([run.tree(cut) for cut in cuts], tmp_path / "copies", policy=Checkpoint())
    for cut, judged in zip(cuts, found, strict=True):
        witness = run.witnesses[cut.acknowledged]
        with told(cut):
            check(run, cut, judged)
            laws.prefix(run.events, judged)
            laws.opening_is_reading(witness, judged)
            laws.resume_runs_nothing(witness, judged)
            laws.acknowledged_prompts_run_once(witness, judged)
            laws.no_effect_twice(witness, judged)
    refused = sum(judged.refused is not None for judged in found)
    print(f"{len(different)} different directories, {len(cuts)} of them resumed; {refused} are damaged")
    assert any(judged.outcome is not None for judged in found)


class ForgetsData(RecordingDisk):
    """A disk whose syncs do nothing: it must be found out."""

    def sync_data(self, fd: int) -> None:
        return


def test_a_disk_that_does_not_sync_is_found_out(tmp_path):
    run = powered_run(tmp_path, disk=ForgetsData())
    wanted = {laws.no_ghost, laws.no_ghost_request, laws.nothing_acknowledged_is_lost}
    for cut in run.cuts(BLOCK, lambda op: op.kind == "write"):
        judged = judge_in_memory(look(cut.files, run.root))
        for law in tuple(wanted):
            try:
                law(run.witnesses[cut.acknowledged], judged)
            except AssertionError:
                wanted.remove(law)
        if not wanted:
            return
    raise AssertionError(f"not found out: {wanted}")
