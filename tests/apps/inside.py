"""The command line inside of this process, for what needs no process of its own."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fencepost.apps.cli.main import main
from fencepost.journal.inspect import Reading, fold_stored
from fencepost.stores.jsonl import JsonlStore


def put(store: Path, data: bytes, session: str = "s1") -> None:
    """Put a log into a store."""
    (store / session).mkdir()
    (store / session / "log.jsonl").write_bytes(data)


def reading(store: Path, session: str = "s1") -> Reading:
    """A session, read and folded."""

    async def read() -> Reading:
        opened = JsonlStore(store)
        try:
            return fold_stored(await opened.read(session))
        finally:
            await opened.close()

    return asyncio.run(read())


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command; its status, and what it printed."""
    status = main(words)
    said = capsys.readouterr()
    return status, said.out, said.err


def record(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> Any:
    """What a command prints for programs."""
    found, out, err = run(capsys, *words, "--json")
    assert found == status, err
    return json.loads(out)
