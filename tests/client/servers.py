"""Real servers for the tests of `fencepost serve` and of its SDK."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 30
"""A bound on a failing test, never a measurement."""
TOKEN = "a token"


class Place:
    """A directory with a store, a script of answers and a configuration.

    Args:
        root: a temporary directory.
    """

    def __init__(self, root: Path) -> None:
        self.work = root / "work"
        self.work.mkdir()
        self.store = f"jsonl:{root / 'store'}"
        self._script = root / "script.jsonl"
        self.model = f"script:{self._script}"
        self.environ = {"HOME": str(root), "XDG_CONFIG_HOME": str(root / "config"), "FENCEPOST_TOKEN": TOKEN}

    def script(self, *answers: object) -> None:
        """What the model says."""
        self._script.write_text("".join(json.dumps(answer) + "\n" for answer in answers))

    def configure(self, text: str) -> None:
        """Write `fencepost.toml`."""
        (self.work / "fencepost.toml").write_text(text)

    def start(self, *words: str, **pipes: Any) -> subprocess.Popen[bytes]:
        """A server."""
        command = [sys.executable, "-m", "fencepost", "serve", "--store", self.store, "--model", self.model, *words]
        return subprocess.Popen(command, cwd=self.work, env={**os.environ, **self.environ}, **pipes)

    @contextmanager
    def over_http(self, *words: str, address: str = "127.0.0.1:0") -> Iterator[tuple[subprocess.Popen[bytes], str]]:
        """One that speaks HTTP, and its URL."""
        with self.start("--http", address, *words, stderr=subprocess.PIPE) as server:
            try:
                assert server.stderr is not None
                said = server.stderr.readline().decode()
                found = re.search(r"http://[^;]+", said)
                assert found is not None, said
                yield server, found.group()
            finally:
                server.kill()


def asks(command: str) -> dict[str, Any]:
    """An answer that asks for one shell command."""
    function = {"name": "shell", "arguments": json.dumps({"command": command})}
    return {"content": "", "tool_calls": [{"id": "t1", "function": function}]}


async def until(path: Path) -> None:
    """Wait for a file that a tool makes."""
    async with asyncio.timeout(SECONDS):
        while not path.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
