"""Every test gets a command line of its own."""

from pathlib import Path

import pytest

from tests.apps.command import Command, Stock


@pytest.fixture(scope="session")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    """Sessions to begin with."""
    return Stock(tmp_path_factory.mktemp("stock"))


@pytest.fixture
def cli(tmp_path: Path, stock: Stock) -> Command:
    """`fencepost` in a directory of its own."""
    return Command(tmp_path, stock)
