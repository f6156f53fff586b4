"""A soak: real agents, killed with SIGKILL at random times, again and again, and every verdict compared with the world.

    python -m tests.crash.soak [KILLS] [--store jsonl|sqlite|postgres] [--seed N]

After each kill the session is inspected and judged; then the next process resumes it, goes on with what was
interrupted, and is killed too, until its script is done. Exits non-zero if a verdict was wrong or something that was
acknowledged is lost; its directory is then kept. The children are forked from this process, which has no threads, so
that none of them has to import.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fencepost.core import events as ev
from fencepost.core.verdict import NOT_ENTERED
from fencepost.journal.inspect import CallView
from tests.crash import laws
from tests.crash.judging import Judged
from tests.crash.soak_agent import Agent
from tests.crash.soak_stores import KINDS, Files, store_for
from tests.crash.world import twice

PART = 0.5
"""A child lives at most for this part of the time that an undisturbed one takes for all of its work, here and now; when
it is killed is uniform in that."""

PATIENCE = 20.0
"""Seconds for the commands of a killed child to be gone, and for a last child to finish."""


# --- judging --------------------------------------------------------------------------------------------------------

LAWS = (
    laws.no_ghost,
    laws.no_false_innocence,
    laws.one_result_per_call,
    laws.nothing_acknowledged_is_lost,
    laws.repair_tells_what_looking_told,
    laws.strict_providers_take_it,
)


def problems(agent: Agent) -> tuple[Judged, list[str], list[str]]:
    """The judgement on what a kill left: wrong verdicts, and what is lost."""
    witness, judged = agent.witness(), agent.judged()
    wrong, lost = [], []
    for law in LAWS:
        try:
            law(witness, judged)
        except AssertionError as error:
            (lost if law is laws.nothing_acknowledged_is_lost else wrong).append(f"{law.__name__}: {error}")
    if judged.stored is not None and judged.stored.owner is not None:
        wrong.append(f"the session is held by a dead process: {judged.stored.owner}")
    if judged.refused is not None:
        wrong.append(f"the log is damaged: {judged.refused}")
    for call in judged.view.calls if judged.view else ():
        wrong += _against_the_world(agent, call)
    wrong += _changed(agent, judged)
    wrong += [f"the effect of {call} happened twice" for call in twice(witness.done)]
    return judged, wrong, lost


def _against_the_world(agent: Agent, call: CallView) -> Iterator[str]:
    """What is wrong with the verdict on one call, given the world."""
    if call.code in NOT_ENTERED and call.verdict != "not_started":
        yield f"{call.call_id} has the code {call.code} and is {call.verdict}"
    if call.name in {"read_file", "list_files"}:
        return
    happened = agent.effects(call)
    if call.verdict == "not_started" and happened:
        yield f"{call.name} {call.call_id} is not_started, and its effect happened"
    if call.verdict == "completed" and happened != 1:
        yield f"{call.name} {call.call_id} is completed, and its effect happened {happened} times"


def _changed(agent: Agent, judged: Judged) -> Iterator[str]:
    """A verdict that was given once stays. Only missing bytes put `not_started` in doubt; receipts end doubt."""
    now = judged.verdicts()
    settled = {call.call_id for call in judged.view.calls if call.settled_by} if judged.view else set()
    doubt = judged.stored is not None and bool(judged.stored.evidence.blind_at)
    for call, before in agent.verdicts.items():
        doubted = doubt and (before, now.get(call)) == ("not_started", "outcome_unknown")
        learnt = before == "outcome_unknown" and call in settled
        if now.get(call) != before and not doubted and not learnt:
            yield f"{call} was {before} and is {now.get(call)}"
    agent.verdicts = now


# --- killing --------------------------------------------------------------------------------------------------------


def live(agent: Agent, seconds: float | None) -> bool:
    """Let a child live for so long, then kill it; True if it was killed, False if it had ended well by itself.

    Args:
        seconds: None to let it finish.

    Raises:
        RuntimeError: it ended badly, or one of its commands does not come to its end.
    """
    pid = agent.fork()
    if seconds is not None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in {0, -signal.SIGKILL}:
        raise RuntimeError(f"a child ended with {status}: {agent.errors.read_text()}")
    deadline = time.monotonic() + PATIENCE
    while agent.commands():
        if time.monotonic() > deadline:
            raise RuntimeError("a command does not come to its end")
        time.sleep(0.002)
    return status != 0


class Tally:
    """What came of it all."""

    def __init__(self) -> None:
        self.kills = self.lives = self.sessions = 0
        self.verdicts: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.lost: list[str] = []

    def __str__(self) -> str:
        calls = ", ".join(f"{count} {verdict}" for verdict, count in sorted(self.verdicts.items()))
        states = ", ".join(f"{count} {state}" for state, count in sorted(self.found.items()))
        return (
            f"{self.kills} kills of {self.lives} processes in {self.sessions} sessions, found {states or 'nothing'}; "
            f"calls: {calls or 'none'}; {len(self.wrong)} wrong, {len(self.lost)} lost"
        )


class Soak:
    """Sessions, one after another, until so many processes were killed.

    Args:
        root: a directory; of a session in which nothing was wrong nothing stays there.
        kept: the store.
        kills: processes to kill.
        seed: of the scripts, and of the times to kill at.
    """

    def __init__(self, root: Path, kept: Files, kills: int, seed: int) -> None:
        self.tally = Tally()
        self._root = root
        self._kept = kept
        self._kills = kills
        self._chance = random.Random(seed)
        self._life = 0.0

    def run(self) -> Tally:
        """Kill them; returns what came of it."""
        begun, told = time.monotonic(), 0
        self._session(0)  # undisturbed
        self._life = (time.monotonic() - begun) * PART
        print(f"each process lives for {self._life:.2f} s at most", flush=True)
        while self.tally.kills < self._kills:
            self._session(self._kills)
            if self.tally.kills - told >= 100:
                told = self.tally.kills
                print(self.tally, flush=True)
        return self.tally

    def _session(self, kills: int) -> None:
        """Kill the agents of one session until its script is done; once enough were killed, let it finish."""
        home, tally = self._root / f"session-{self.tally.sessions}", self.tally
        agent = Agent(home, self._chance, self._kept)
        killed = True
        while killed:
            killed = live(agent, self._chance.uniform(0, self._life) if tally.kills < kills else None)
            tally.lives += 1
            tally.kills += killed
            judged, wrong, lost = problems(agent)
            tally.wrong += [f"{home.name}, process {tally.lives}: {problem}" for problem in wrong]
            tally.lost += [f"{home.name}, process {tally.lives}: {problem}" for problem in lost]
            tally.found[judged.view.state if judged.view else "no session"] += 1
        tally.sessions += 1
        tally.verdicts.update(agent.verdicts.values())
        tally.lost += _not_run_once(agent)
        if not tally.wrong and not tally.lost:
            shutil.rmtree(home)


def _not_run_once(agent: Agent) -> Iterator[str]:
    consumed = Counter(event.input_id for event in agent.judged().events if isinstance(event, ev.UserMessage))
    for name, _ in agent.saw("ack"):
        if consumed[name] != 1:
            yield f"the prompt {name} ran {consumed[name]} times"


def main(argv: list[str] | None = None) -> int:
    """Run the soak; 0 if nothing was wrong and nothing lost."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("kills", nargs="?", type=int, default=1000)
    parser.add_argument("--store", choices=KINDS, default=KINDS[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args(argv)
    root = Path(tempfile.mkdtemp(prefix="fencepost-soak-"))
    started = time.monotonic()
    print(f"store {arguments.store}, seed {arguments.seed}", flush=True)
    with store_for(arguments.store, root) as kept:
        tally = Soak(root, kept, arguments.kills, arguments.seed).run()
    print(f"{tally}; {time.monotonic() - started:.0f} s")
    for problem in (*tally.wrong, *tally.lost):
        print(f"  {problem}")
    if tally.wrong or tally.lost:
        print(f"what it left is in {root}")
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
