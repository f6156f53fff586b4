"""The soak runs: a short one, with a fixed seed. The long one is `make soak`."""

import subprocess
import sys

import pytest

from tests.crash.processes import PATIENCE, ROOT
from tests.crash.soak_stores import KINDS
from tests.stores.postgres import servers


@pytest.mark.parametrize("store", KINDS)
def test_a_short_soak_finds_nothing_wrong(store):
    if store == "postgres" and servers.binaries() is None:
        servers.absent()
    command = [sys.executable, "-m", "tests.crash.soak", "12", "--store", store, "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 kills" in done.stdout
    assert "0 wrong, 0 lost" in done.stdout
