"""How many calls have a known outcome after a crash, and whether it is the true one.

    python -m tests.crash.attribution [KILLS] [--store jsonl|sqlite|postgres] [--seed N]

Agents that work with shell and file tools, several calls in a row, are killed with SIGKILL at random times. Commands
live on and finish, as they would; then another process resumes the session, waits for what still runs, and settles the
rest. Now and then it is killed while it does, and another one does it again. What the session then says of each call is
compared with the world, where each call leaves a trace of its own, and with what its command printed.

    known     the log says that the call completed, or that it did not run
    wrong     the world says something else; or what was said once is said differently later

Exits non-zero if anything was wrong, or too little is known; its directory is then kept.
"""

import argparse
import contextlib
import json
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

import msgspec

from fencepost.core import events as ev
from fencepost.core.verdict import verdicts
from tests.crash.soak_agent import Agent
from tests.crash.soak_stores import KINDS, Files, store_for
from tests.crash.world import twice

AIM = 0.99
"""The share of calls whose outcome has to be known."""

PROMPTS, STEPS, CALLS = 3, 2, 4
"""Answers with calls for each prompt, and calls of each answer."""

PART = 0.5
"""A process lives at most for this part of the time that an undisturbed one takes for all of its work, here and now."""

WHILE_SETTLING = 0.2
"""How often the process that settles is killed, too."""

READS = frozenset({"read_file", "list_files"})
"""Tools that leave no trace in the world: if they ran makes no difference to it."""


class Told(msgspec.Struct, frozen=True):
    """What a settled session says of one call."""

    call_id: str
    name: str
    arguments: dict[str, ev.Json]
    verdict: str
    is_error: bool
    caught: bool
    """Whether the kill caught it without a durable result."""
    let_go: bool
    """Whether it had been let go."""
    settled_by: str
    evidence: str
    text: str


class Worker(Agent):
    """An agent whose every call leaves a trace; see `soak_agent`."""

    def __init__(self, home: Path, chance: random.Random, kept: Files) -> None:
        super().__init__(home, chance, kept, _script(chance, home / "world"))
        self.report = home / "told.json"
        self.told: dict[str, Told] = {}

    def settle(self) -> int:
        """Fork a child that resumes, waits, settles, and reports; returns its process id."""
        return self.forked(self._settle)

    async def _settle(self) -> None:
        async with self.runtime(None) as runtime:
            if self.session not in await runtime.store.sessions():
                return self._report([])
            session = await runtime.resume(self.session, takeover=True, running="wait")
            fold = session.journal.log.fold
            made = [_told(found) for found in verdicts(fold)]
        return self._report(made)

    def _report(self, made: list[Told]) -> None:
        self.report.write_bytes(msgspec.json.encode(made))

    def heard(self) -> list[Told]:
        """What was reported."""
        return msgspec.json.decode(self.report.read_bytes(), type=list[Told])


def _told(found) -> Told:
    record, result = found.call, found.call.result
    return Told(
        record.call_id,
        record.name,
        json.loads(record.arguments),
        found.verdict,
        result.is_error,
        bool(result.synthetic or result.settled_by),
        record.admitted is not None,
        found.settled_by,
        found.evidence,
        ev.text_of(result.content),
    )


def _script(chance: random.Random, world: Path) -> list[dict | str]:
    out: list[dict | str] = []
    number = 0
    for _ in range(PROMPTS):
        for _ in range(STEPS):
            calls = []
            for _ in range(CALLS):
                number += 1
                calls.append({"id": f"p{number}", "function": _call(chance, number, world)})
            out.append({"content": "I go on.", "tool_calls": calls})
        out.append("That is done.")
    return out


def _call(chance: random.Random, number: int, world: Path) -> dict[str, str]:
    name, arguments = chance.choice([_shell, _shell, _write, _edit, _look])(chance, number, world)
    return {"name": name, "arguments": json.dumps(arguments)}


def _shell(chance: random.Random, number: int, world: Path) -> tuple[str, dict]:
    def trace(kind: str) -> str:
        return f"""printf '{kind}\\t"%s"\\n' "$FENCEPOST_CALL_ID" >> {world}"""

    def wait() -> str:
        return f"sleep {chance.choice([0, 0.005, 0.03])}"

    parts = [trace("entered"), wait(), trace("done"), 'echo "printed by $FENCEPOST_CALL_ID"', wait()]
    return "shell", {"command": "; ".join(parts)}


def _write(chance: random.Random, number: int, world: Path) -> tuple[str, dict]:
    return "write_file", {"path": f"out/{number}.txt", "content": "x" * chance.randint(1, 5000)}


def _edit(chance: random.Random, number: int, world: Path) -> tuple[str, dict]:
    return "edit_file", {"path": "ledger.txt", "old": f"slot-{number}: empty", "new": f"slot-{number}: full"}


def _look(chance: random.Random, number: int, world: Path) -> tuple[str, dict]:
    return "read_file", {"path": "ledger.txt"}


# --- judging --------------------------------------------------------------------------------------------------------


def wrong(worker: Worker, told: list[Told]) -> Iterator[str]:
    """What the session says that the world does not, and what it says differently than before."""
    for call in told:
        before = worker.told.get(call.call_id)
        if before is not None and before != call:
            yield f"{call.call_id} was {before} and is {call}"
        if call.name not in READS:
            yield from _against_the_world(worker, call)
    missing = worker.told.keys() - {call.call_id for call in told}
    yield from (f"{name} is not there any more" for name in missing)
    yield from (f"the effect of {name} happened twice" for name in twice(worker.witness().done))


def _against_the_world(worker: Worker, call: Told) -> Iterator[str]:
    happened = worker.effects(call)
    if call.verdict == "not_started" and happened:
        yield f"{call} and its effect happened"
    if call.verdict == "completed" and happened != (0 if call.is_error else 1):
        yield f"{call} and its effect happened {happened} times"
    printed = f"printed by {call.call_id}\n" in f"{call.text}\n"
    if call.name == "shell" and call.verdict == "completed" and not call.is_error and not printed:
        yield f"{call} and that is not what it printed"


# --- killing --------------------------------------------------------------------------------------------------------


def lived(worker: Worker, pid: int, seconds: float | None) -> bool:
    """Let a child live for so long, then kill it; True if it was killed, False if it had ended well by itself.

    Raises:
        RuntimeError: it ended badly.
    """
    if seconds is not None:
        time.sleep(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status not in {0, -signal.SIGKILL}:
        raise RuntimeError(f"a child ended with {status}: {worker.errors.read_text()}")
    return status != 0


class Tally:
    """What came of it all."""

    def __init__(self) -> None:
        self.kills = self.settlers = self.sessions = 0
        self.calls: Counter[str] = Counter()
        self.caught: Counter[str] = Counter()
        self.running: Counter[str] = Counter()
        self.open: list[str] = []
        self.wrong: list[str] = []

    def take(self, told: dict[str, Told]) -> None:
        """Count the calls of a session that is done."""
        for call in told.values():
            self.calls[call.verdict] += 1
            if call.caught:
                self.caught[call.verdict] += 1
                self.running[call.verdict] += call.let_go
                if call.verdict == "outcome_unknown":
                    self.open.append(f"{call.name} {call.call_id}: {call.evidence or call.text}")

    def share(self) -> float:
        """Of all calls, how many have a known outcome."""
        return 1 - self.calls["outcome_unknown"] / max(self.calls.total(), 1)

    def __str__(self) -> str:
        caught, running = self.caught.total(), self.running.total()
        return (
            f"{self.kills} kills of agents and {self.settlers} of settling processes in {self.sessions} sessions; "
            f"{self.calls.total()} calls, the outcome of {100 * self.share():.2f} % is known; "
            f"{caught} were caught without a result, {running} of these after they had been let go: "
            f"{self.running['completed']} of those completed, {self.running['not_started']} did not run, "
            f"{self.running['outcome_unknown']} are unknown; {len(self.wrong)} wrong"
        )


class Attribution:
    """Sessions, one after another, until so many agents were killed.

    Args:
        root: a directory; of a session in which nothing was wrong nothing stays there.
        kept: the store.
        kills: agents to kill.
        seed: of the scripts, and of the times to kill at.
    """

    def __init__(self, root: Path, kept: Files, kills: int, seed: int) -> None:
        self.tally = Tally()
        self._root = root
        self._kept = kept
        self._kills = kills
        self._chance = random.Random(seed)
        self._life = self._settling = 0.0

    def run(self) -> Tally:
        """Kill them; returns what came of it."""
        begun, told = time.monotonic(), 0
        self._session(0)  # undisturbed
        self._life = (time.monotonic() - begun) * PART
        while self.tally.kills < self._kills:
            self._session(self._kills)
            if self.tally.kills - told >= 100:
                told = self.tally.kills
                print(self.tally, flush=True)
        return self.tally

    def _session(self, kills: int) -> None:
        home, tally = self._root / f"session-{self.tally.sessions}", self.tally
        worker = Worker(home, self._chance, self._kept)
        killed = True
        while killed:
            span = self._chance.uniform(0, self._life) if tally.kills < kills else None
            killed = lived(worker, worker.fork(), span)
            tally.kills += killed
            self._settle(worker)
            told = worker.heard()
            tally.wrong += [f"{home.name}, kill {tally.kills}: {problem}" for problem in wrong(worker, told)]
            worker.told = {call.call_id: call for call in told}
        tally.sessions += 1
        tally.take(worker.told)
        if not tally.wrong:
            shutil.rmtree(home)

    def _settle(self, worker: Worker) -> None:
        """Settle, killed in the middle now and then."""
        while self._settling and self._chance.random() < WHILE_SETTLING:
            if not lived(worker, worker.settle(), self._chance.uniform(0, self._settling)):
                return
            self.tally.settlers += 1
        begun = time.monotonic()
        lived(worker, worker.settle(), None)
        self._settling = time.monotonic() - begun


def main(argv: list[str] | None = None) -> int:
    """Measure; 0 if nothing was wrong and enough is known."""
    parser = argparse.ArgumentParser(prog="make attribution", description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("kills", nargs="?", type=int, default=500)
    parser.add_argument("--store", choices=KINDS, default=KINDS[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args(argv)
    root = Path(tempfile.mkdtemp(prefix="fencepost-attribution-"))
    started = time.monotonic()
    print(f"store {arguments.store}, seed {arguments.seed}", flush=True)
    with store_for(arguments.store, root) as kept:
        tally = Attribution(root, kept, arguments.kills, arguments.seed).run()
    print(f"{tally}; {time.monotonic() - started:.0f} s")
    for problem in (*tally.wrong, *(f"unknown: {call}" for call in tally.open)):
        print(f"  {problem}")
    if tally.wrong or tally.share() < AIM:
        print(f"what it left is in {root}")
        return 1
    shutil.rmtree(root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
