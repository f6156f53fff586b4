"""Clients for the tests of the editor protocol."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.apps.acp.client import Client, Schema
from tests.apps.command import SECONDS, Command

Connect = Callable[..., Client]


@pytest.fixture(scope="session")
def schema() -> Schema:
    """The official schema."""
    return Schema()


@pytest.fixture
def connect(cli: Command, schema: Schema) -> Iterator[Connect]:
    """Starts servers with a client each; whatever still runs at the end is killed."""
    with contextlib.ExitStack() as stack:
        stack.callback((cli.work / "begun").unlink, missing_ok=True)

        def start(*words: str, capabilities: dict[str, Any] | None = None, checked: bool = True) -> Client:
            client = Client(cli, schema if checked else None, *words)
            stack.callback(_end, client)
            client.initialize(**(capabilities or {}))
            return client

        yield start


def _end(client: Client) -> None:
    client.process.kill()
    client.process.wait(SECONDS)
    client.gone()
