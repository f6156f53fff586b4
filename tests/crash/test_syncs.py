"""Real processes under strace: killed at each of their syncs, and met by a medium that fails.

strace injects into the system calls of an unchanged child. A SIGKILL at the entry of the N-th `fdatasync` kills with a
batch written and not synced; `-P` restricts an injection to calls on one path.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from fencepost.core import events as ev
from tests.crash import laws
from tests.crash.processes import PROMPTS, SCRIPT, Place, need
from tests.crash.world import twice

MOST = 60
"""Syncs of a run at most."""


def strace(*injections: str, paths: tuple = ()) -> list[str]:
    """The command line that runs a child with faults injected."""
    calls = ",".join(sorted({injection.partition(":")[0] for injection in injections}))
    chosen = [part for path in paths for part in ("-P", str(path))]
    faults = [part for injection in injections for part in ("-e", f"inject={injection}")]
    return [need("strace"), "-f", "-qqq", "-o", "/dev/null", "-e", f"trace={calls}", *chosen, *faults]


def go_on(place: Place) -> None:
    """The next process finishes what was begun; nothing happens twice, and every acknowledged prompt runs once."""
    never_was = place.judged().stored is None
    place.finish("--continue", *(PROMPTS if never_was else ()))
    judged = place.check(whole=True)
    assert judged.view.state == "clean"
    assert judged.view.pending_inputs == ()
    assert not twice(place.witness().done)
    consumed = Counter(event.input_id for event in judged.events if isinstance(event, ev.UserMessage))
    assert all(consumed[name] == 1 for name, _ in place.witness().acknowledged)


def killed_at_sync(home, number: int) -> int:
    """Kill a child at its N-th sync, judge, and go on; returns the child's exit code, 0 where it had fewer syncs."""
    place = Place(home / str(number), SCRIPT)
    code = place.run(*PROMPTS, under=strace(f"fdatasync:signal=SIGKILL:when={number}"))
    place.check(whole=True)
    if code:
        go_on(place)
    return code


def test_killed_at_every_sync(tmp_path):
    need("strace")
    codes: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        for first in range(1, MOST, 2):
            codes += pool.map(lambda number: killed_at_sync(tmp_path, number), (first, first + 1))
            if 0 in codes:
                break
    killed = codes.index(0)
    print(f"killed at {killed} syncs")
    assert killed > 12
    assert not any(codes[killed:])


@pytest.mark.parametrize("number", [1, 2])
def test_killed_at_the_sync_of_a_directory(tmp_path, number):
    """The new log's name, and the new session's: a SIGKILL between making a name and making it durable."""
    place = Place(tmp_path, SCRIPT)
    place.store.mkdir(mode=0o700)
    under = strace(f"fsync:signal=SIGKILL:when={number}", paths=(place.store, place.store / "scenario"))
    assert place.run(*PROMPTS, under=under) != 0
    judged = place.check(whole=True)
    assert place.saw("ack") == []
    assert [item.text for item in judged.view.pending_inputs] == ["First."]
    place.finish("--continue", "Second.")
    assert place.saw("ended") == [["completed", ""]] * 2


def failing_sync(home, number: int) -> Counter:
    """One sync fails with EIO, and the next one works; returns what people and the model were told."""
    place = Place(home / str(number), SCRIPT)
    place.finish(*PROMPTS, under=strace(f"fdatasync:error=EIO:when={number}"))
    judged = place.check(whole=True)
    assert judged.view.state == "clean"
    assert judged.stored.tail_bytes == 0
    assert not twice(place.witness().done)
    told = Counter(call.code for call in judged.view.calls if call.code)
    told["refused"] = len(place.saw("refused"))
    told.update(f"turn {code}" for _, code in place.saw("ended") if code)
    for call_view in judged.view.calls:
        if call_view.code == "NOT_SAVED":
            assert call_view.call_id not in place.witness().entered
    return told


def test_a_sync_that_fails_once_fails_its_gate_and_nothing_else(tmp_path):
    """EIO at each sync in turn: a prompt is refused, a turn ends, or a call is not let go; the log stays whole."""
    need("strace")
    with ThreadPoolExecutor(2) as pool:
        told = sum(pool.map(lambda number: failing_sync(tmp_path, number), range(1, 17)), Counter())
    print(dict(told))
    assert told["NOT_SAVED"] >= 2
    assert told["turn NOT_SAVED"] >= 2
    assert told["refused"] >= 1


def begun(home) -> Place:
    """A session with one finished turn, so that its log is there to be written to."""
    place = Place(home, ["Hello.", *SCRIPT])
    place.finish("Hello?")
    return place


@pytest.mark.parametrize("number", [1, 2, 3, 5, 8])
def test_a_full_disk_that_has_space_again(tmp_path, number):
    """ENOSPC once: the batch is rolled back and kept, and the next gate writes it, once."""
    place = begun(tmp_path)
    log = place.store / "scenario" / "log.jsonl"
    place.finish(*PROMPTS, under=strace(f"write:error=ENOSPC:when={number}", paths=(log,)))
    judged = place.check(whole=True)
    assert judged.view.state == "clean"
    assert judged.stored.tail_bytes == 0
    told = (
        place.saw("refused")
        or [code for _, code in place.saw("ended") if code]
        or [item.code for item in judged.view.calls if item.code == "NOT_SAVED"]
    )
    assert told, "a write failed, and nobody was told"


@pytest.mark.parametrize("number", [1, 3, 4, 8])
def test_a_disk_that_stays_full(tmp_path, number):
    """ENOSPC from the N-th write on: nothing behind a gate happens any more, and what was durable is what is there."""
    place = begun(tmp_path)
    log = place.store / "scenario" / "log.jsonl"
    code = place.run(*PROMPTS, under=strace(f"write:error=ENOSPC:when={number}+", paths=(log,)))
    assert code == 3, place.errors.read_text()
    place.check(whole=True)
    go_on(place)
    laws.no_false_innocence(place.witness(), place.judged())
