"""The command line as its users meet it: real child processes in a directory of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fencepost.apps.cli.lines import lines
from fencepost.journal.inspect import fold_stored
from fencepost.stores.urls import open_store

SECONDS = 30
"""How long a child may take at most; a bound on a failing test, never a measurement."""

HANGS = "echo begun > begun; exec sleep 600"
"""A command that does something, and does not return."""


class Stock:
    """Sessions that many tests begin with: each is made once, by a real process, and then copied.

    Args:
        root: a directory for as long as the tests run.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[tuple[str, str], Path] = {}

    def copy(self, kind: str, session: str, store: Path) -> None:
        """Put a session of a kind into a store."""
        if (kind, session) not in self._made:
            root = Path(tempfile.mkdtemp(prefix=kind, dir=self._root))
            self._make(kind, session, Command(root, self))
            self._made[kind, session] = root / "store" / session
        shutil.copytree(self._made[kind, session], store / session)

    def _make(self, kind: str, session: str, command: Command) -> None:
        if kind == "finished":
            command.script(call("shell", "I look.", command="echo one"), {"content": "It is one."})
            assert command.run("run", "--session", session, "--approve", "all", "look around").status == 0
            return
        command.script(call("shell", "I begin.", command=HANGS))
        (command.work / "fencepost.toml").write_text("[plugin.shell]\non_crash = 'end'\n")
        child = command.start("run", "--json", "--session", session, "--approve", "all", "do it")
        read_until(child, "tool/call")
        while not (command.work / "begun").exists():
            assert child.poll() is None, "it ended before its command had begun"
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=SECONDS)
        while commands_in(command.work):
            time.sleep(0.005)  # what is left of it writes its receipt


class Command:
    """`fencepost` with a home, a working directory and a store under `root`.

    Args:
        root: a temporary directory.
        stock: sessions to begin with.
    """

    def __init__(self, root: Path, stock: Stock) -> None:
        self.root = root
        self.stock = stock
        self.work = root / "work"
        self.store = root / "store"
        (root / "home").mkdir()
        self.work.mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR", "PYTHONPATH") if name in os.environ}
        self.environ = {**kept, "HOME": str(root / "home"), "FENCEPOST_STORE": f"jsonl:{self.store}"}

    def script(self, *answers: object) -> str:
        """A script of answers; returns the model that plays it, and makes it the one of this directory."""
        path = self.root / "script.jsonl"
        path.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
        self.environ["FENCEPOST_MODEL"] = f"script:{path}"
        return self.environ["FENCEPOST_MODEL"]

    def plugin(self, name: str, source: str) -> None:
        """Install a third party's plugin for these commands: a module, and its entry point."""
        site = self.root / "site"
        info = site / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[fencepost.plugins]\n{name} = {name}:plugin\n")
        (site / f"{name}.py").write_text(source)
        self.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
        shipped = ["models", "checkpoint", "retry", "approval", "shell", name]
        (self.work / "fencepost.toml").write_text(f"plugins = {json.dumps(shipped)}\n")

    def start(self, *words: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start a command."""
        settings: dict[str, Any] = {
            "cwd": self.work,
            "env": self.environ,
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        return subprocess.Popen([sys.executable, "-m", "fencepost", *words], **{**settings, **options})

    def run(self, *words: str, stdin: str = "", **options: Any) -> Finished:
        """Run a command to its end."""
        child = self.start(*words, stdin=subprocess.PIPE, **options)
        return finish(child, stdin)

    def log(self, session: str) -> Path:
        """The log file of a session with a plain id."""
        return self.store / session / "log.jsonl"

    def events(self, session: str) -> list[dict[str, Any]]:
        """The events of a session, as `export` prints them, without a process of its own."""

        async def read() -> list[dict[str, Any]]:
            store = open_store(f"jsonl:{self.store}")
            try:
                return [json.loads(line) for line in lines(fold_stored(await store.read(session)))]
            finally:
                await store.close()

        return asyncio.run(read())[1:]

    def finished(self, session: str = "s1") -> None:
        """Have a session whose one turn, with one call, completed."""
        self.script(call("shell", "I look.", command="echo one"), {"content": "It is one."})
        self.stock.copy("finished", session, self.store)

    def killed(self, *answers: object, session: str = "s1") -> None:
        """Have a session whose process was killed in a call, and its command with it; a model that goes on with it."""
        self.script(call("shell", "I begin.", command=HANGS), *answers)
        self.stock.copy("killed", session, self.store)


def commands_in(place: Path) -> list[int]:
    """Processes that work in a directory of ours, or below: commands live on after an agent that is killed."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it ended meanwhile, or is not ours to look at
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(place):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


class Finished:
    """A command that has ended."""

    def __init__(self, status: int, out: bytes, err: bytes) -> None:
        self.status = status
        self.out = out.decode()
        self.err = err.decode()

    def __repr__(self) -> str:
        return f"<exit {self.status}\n--- stdout\n{self.out}--- stderr\n{self.err}>"

    def records(self) -> list[dict[str, Any]]:
        """Standard output as JSON Lines: every line must be one."""
        return [json.loads(line) for line in self.out.splitlines()]

    def record(self) -> Any:
        """Standard output as one JSON value."""
        return json.loads(self.out)


def finish(child: subprocess.Popen[bytes], stdin: str = "") -> Finished:
    """Wait for a child's end, and check what no command may ever do."""
    out, err = child.communicate(stdin.encode() if child.stdin else None, timeout=SECONDS)
    finished = Finished(child.returncode, out or b"", err or b"")
    assert "Traceback" not in finished.err, finished
    return finished


def read_until(child: subprocess.Popen[bytes], kind: str) -> list[dict[str, Any]]:
    """Read JSON Lines of a running child up to the first of a type."""
    assert child.stdout is not None
    seen = []
    for line in child.stdout:
        seen.append(json.loads(line))
        if seen[-1]["type"] == kind:
            return seen
    raise AssertionError(f"the child ended before {kind}; it printed {[record['type'] for record in seen]}")


def call(name: str, content: str = "", **arguments: object) -> dict[str, Any]:
    """An answer that asks for one call."""
    return {"content": content, "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}


def tree(path: Path) -> dict[str, bytes | None]:
    """Every name under a directory with its bytes."""
    return {
        str(item.relative_to(path)): item.read_bytes() if item.is_file() else None for item in sorted(path.rglob("*"))
    }
