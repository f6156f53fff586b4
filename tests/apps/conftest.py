"""Every test gets a command line of its own."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.command import Command, Stock, commands_in
from tests.stores.postgres.fixtures import cluster, private_url, server, url

__all__ = ["cluster", "private_url", "server", "url"]


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    """Sessions to begin with."""
    return Stock(tmp_path_factory.mktemp("stock"))


@pytest.fixture
def cli(tmp_path: Path, stock: Stock) -> Iterator[Command]:
    """`fencepost` in a directory of its own. What a killed one left running there is ended."""
    yield Command(tmp_path, stock)
    while left := commands_in(tmp_path):
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that commands inside of this process use."""
    root = tmp_path / "store"
    root.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FENCEPOST_STORE", f"jsonl:{root}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return root
