"""The soak runs: a short one, with a fixed seed. The long one is `make soak`."""

import subprocess
import sys

from tests.crash.processes import PATIENCE, ROOT


def test_a_short_soak_finds_nothing_wrong():
    command = [sys.executable, "-m", "tests.crash.soak", "12", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 kills" in done.stdout
    assert "0 wrong, 0 lost" in done.stdout
