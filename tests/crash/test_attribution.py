"""What is known after a kill, and whether it is true: a short run, seeded. The long one is `make attribution`."""

import subprocess
import sys

import pytest

from tests.crash.attribution import AIM, Tally, Told
from tests.crash.processes import PATIENCE, ROOT


@pytest.mark.parametrize("store", ["jsonl", "sqlite"])
def test_a_short_run_finds_nothing_wrong(store):
    command = [sys.executable, "-m", "tests.crash.attribution", "12", "--store", store, "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert "12 kills of agents" in done.stdout, done.stdout + done.stderr
    assert "; 0 wrong;" in done.stdout
    for line in done.stdout.splitlines():
        # A dozen kills are no measure for a share; but what has an effect leaves evidence, each time.
        assert not line.startswith("  ") or line.startswith("  unknown: read_file"), line


def told(verdict):
    return Told("c1", "shell", {}, verdict, False, True, True, "", "", "")


def test_the_share_counts_every_call():
    tally = Tally()
    for number in range(100):
        tally.take({str(number): told("completed" if number else "outcome_unknown")})
    assert tally.share() == pytest.approx(AIM)
    assert "100 calls, the outcome of 99.00 % is known" in str(tally)
    assert len(tally.open) == 1
