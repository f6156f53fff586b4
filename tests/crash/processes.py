"""Real children: starting them, killing them, and reading what they left, in the store and in the world.

`Place` is one directory with all that belongs to one agent. Every child that is started is ended, whatever happens.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from fencepost.core.projection import request
from fencepost.errors import IllegalEventError
from tests.crash import laws
from tests.crash.boundaries import tree_of
from tests.crash.child import fingerprint
from tests.crash.judging import Judged, events_of, log_of
from tests.crash.reading import judge_in_memory, look
from tests.crash.scenario import SESSION, asks, call
from tests.crash.soak_stores import Files
from tests.crash.world import Witness

PATIENCE = 60.0
"""Seconds after which a child that does not come to its point is a failure."""

ROOT = Path(__file__).parents[2]

SCRIPT = [
    asks(call("look", place="left"), call("look", place="right")),
    asks(call("send", text="a")),
    "Done.",
    asks(call("send", text="b")),
    "Done too.",
]
PROMPTS = ("First.", "Second.")
"""The usual work of a child: what its model says, and what it is asked."""


class Place:
    """The store, the world and the script of one agent, below one directory.

    Args:
        store: the store's directory, or its file; below `home` if not given.
        scheme: what kind of store it is.
    """

    def __init__(
        self, home: Path, script: Sequence[dict | str], store: Path | None = None, scheme: str = "jsonl"
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.store = store or home / "sessions"
        self.url = f"{scheme}:{self.store}"
        self.world = home / "world"
        self.script = home / "script.jsonl"
        self.errors = home / "stderr"
        lines = [json.dumps({"content": line} if isinstance(line, str) else line) for line in script]
        self.script.write_text("\n".join(lines))

    def start(self, *arguments: str, under: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        """A child, under another program (strace) if one is given."""
        command = [*under, sys.executable, "-m", "tests.crash.child", self.url, self.world, self.script, *arguments]
        with self.errors.open("wb") as errors:
            return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=errors, process_group=0)

    def run(self, *arguments: str, under: Sequence[str] = ()) -> int:
        """A child to its end; returns its exit code, negative for a signal."""
        with ended(self.start(*arguments, under=under)) as child:
            return child.wait(PATIENCE)

    def finish(self, *arguments: str, under: Sequence[str] = ()) -> None:
        """A child that has to end well."""
        code = self.run(*arguments, under=under)
        assert code == 0, self.errors.read_text()

    # --- what is left -------------------------------------------------------------------------------------------

    def lines(self) -> list[tuple[str, list[str]]]:
        """What the world saw: the kind of each line, and its values."""
        data = self.world.read_bytes() if self.world.exists() else b""
        assert data == b"" or data.endswith(b"\n")
        split = [line.split(b"\t") for line in data.splitlines()]
        return [(kind.decode(), [msgspec.json.decode(value) for value in values]) for kind, *values in split]

    def saw(self, kind: str) -> list[list[str]]:
        """The values of the lines of one kind."""
        return [values for each, values in self.lines() if each == kind]

    def witness(self) -> Witness:
        """What had happened by now."""

        def pairs(kind: str) -> tuple[tuple[str, str], ...]:
            return tuple((name, text) for name, text in self.saw(kind))

        return Witness(
            entered=tuple(name for (name,) in self.saw("entered")),
            done=tuple(name for (name,) in self.saw("done")),
            replies=pairs("replied"),
            acknowledged=pairs("ack"),
            shown=pairs("shown"),
        )

    def judged(self) -> Judged:
        """What the store holds, judged in memory; no log is touched."""
        if not self.url.startswith("jsonl:"):
            stored = Files(self.url).read(SESSION)
            return judge_in_memory(Judged(stored=stored, events=events_of(stored)) if stored else Judged())
        files = {self.store / name: data for name, data in tree_of(self.store).items()} if self.store.exists() else {}
        return judge_in_memory(look(files, self.store))

    def check(self, *, whole: bool) -> Judged:
        """Every law that can be asked of a process from outside.

        Args:
            whole: no write can have been torn.
        """
        witness, judged = self.witness(), self.judged()
        for law in CHECKED:
            law(witness, judged)
        laws.gates_are_recorded(("step", "request", "tool", "closing"), judged)
        laws.unknown_only_if_unavoidable(witness, judged, whole=whole)
        assert judged.refused is None
        self._no_ghost_request(judged)
        return judged

    def _no_ghost_request(self, judged: Judged) -> None:
        """Law 3, by fingerprints: each request that left is one that some prefix of the durable log calls for."""
        sent = [name for (name,) in self.saw("request")]
        known = set()
        for prefix in laws.request_prefixes(judged.events) if judged.stored else ():
            with contextlib.suppress(IllegalEventError):  # a step that died before its request was whole
                known.add(fingerprint(request(log_of(judged.stored, prefix))))
        assert set(sent) <= known, "a request left that cannot be rebuilt"


CHECKED = (
    laws.no_ghost,
    laws.no_false_innocence,
    laws.one_result_per_call,
    laws.nothing_acknowledged_is_lost,
    laws.completed_is_real,
    laws.repair_tells_what_looking_told,
    laws.strict_providers_take_it,
)


@contextlib.contextmanager
def ended(child: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The child, and its group, are gone behind the block."""
    try:
        yield child
    finally:
        kill(child)


def kill(child: subprocess.Popen[bytes]) -> None:
    """SIGKILL to the child and to what it started in its group."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def await_that(reached: Callable[[], bool], child: subprocess.Popen[bytes]) -> None:
    """Wait until something is seen of a child that has to live until then."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        assert child.poll() is None, f"the child ended with {child.returncode} before it came to this point"
        assert time.monotonic() < deadline, "the child did not come to its point"
        time.sleep(0.005)


def need(program: str) -> str:
    """The path of a program; without it the test is skipped, but on a machine that has to have it (CI) it fails."""
    found = shutil.which(program)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(f"{program} is not installed")
        pytest.skip(f"{program} is not installed")
    return found
