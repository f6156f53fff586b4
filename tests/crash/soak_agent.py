"""An agent of the soak: a random script for the shell and file tools, and what its calls did to the world.

Each call leaves a trace of its own: the shell a line with the call's id, `write_file` a file of its own, `edit_file` a
slot of its own in a ledger.
"""

import asyncio
import contextlib
import json
import os
import random
import traceback
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from fencepost.journal.inspect import CallView
from fencepost.plugins.script import ScriptModel
from fencepost.plugins.shipped import compose
from fencepost.runtime.models import Model
from fencepost.runtime.runtime import Runtime
from fencepost.stores.urls import open_store
from tests.crash import child as actor
from tests.crash.judging import Judged, events_of
from tests.crash.processes import Place
from tests.crash.reading import judge_in_memory
from tests.crash.soak_stores import Files

PROMPTS = 3
"""In each session."""

LEFT_OVER = ["There is nothing more to do."] * 200
"""Answers for turns that had to be gone on with behind their last one."""


class Agent(Place):
    """One session with its script, its world and its working directory.

    Args:
        home: a directory for these; the session is named after it.
        chance: makes up the script.
        kept: the store of the session.
        script: what the model says; made up if not given.
    """

    def __init__(
        self, home: Path, chance: random.Random, kept: Files, script: Sequence[dict | str] | None = None
    ) -> None:
        self.session = home.name
        self.kept = kept
        self.cwd = home / "work"
        self.cwd.mkdir(parents=True)
        super().__init__(home, [*(script or _script(chance, home / "world")), *LEFT_OVER])
        (self.cwd / "ledger.txt").write_text("".join(f"slot-{number}: empty\n" for number in range(200)))
        self.verdicts: dict[str, str] = {}

    def fork(self) -> int:
        """Fork a child that resumes, goes on, and asks what was not asked yet; returns its process id."""
        begun = len(self.saw("ack"))
        return self.forked(lambda: self._act(begun))

    def forked(self, work: Callable[[], Coroutine[Any, Any, None]]) -> int:
        """Do some work in a forked child; returns its process id."""
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            asyncio.run(work())
            code = 0
        except BaseException:  # noqa: BLE001 - whatever it is, the parent process has to hear of it
            self.errors.write_text(traceback.format_exc())
        finally:
            os._exit(code)

    def runtime(self, model: Model | None) -> Runtime:
        """The agent with its tools."""
        plugins = compose(("models", "checkpoint", "retry", "approval", "files", "shell"), "all")
        return Runtime(open_store(self.kept.url), model, plugins)

    async def _act(self, begun: int) -> None:
        world = actor.WorldFile(self.world)
        async with self.runtime(ScriptModel(self.script)) as runtime:
            name = self.session
            there = name in await runtime.store.sessions()
            # The owner before is dead, and where only its lease would say so some time later, it is taken over.
            session = await (runtime.resume(name, takeover=True) if there else runtime.create(name, self.cwd))
            showing = asyncio.create_task(actor.show(session, world))
            await session.go_on()
            left = [f"Prompt {number}." for number in range(begun, PROMPTS)]
            await actor.run(session, world, left, early=begun % 2 == 1)
            await session.close()
            await showing

    def judged(self) -> Judged:
        """What the store holds, judged in memory; nothing is touched."""
        stored = self.kept.read(self.session)
        if stored is None:
            self.kept.await_reservations()
            return Judged()
        return judge_in_memory(Judged(stored=stored, events=events_of(stored)))

    # --- what the world shows -----------------------------------------------------------------------------------

    def effects(self, call: CallView) -> int:
        """How often a call's effect happened."""
        arguments = call.arguments
        assert isinstance(arguments, dict)
        if call.name == "shell":
            return sum(name == call.call_id for (name,) in self.saw("done"))
        if call.name == "write_file":
            return int((self.cwd / str(arguments["path"])).exists())
        if call.name == "edit_file":
            return int(f"{arguments['new']}\n" in (self.cwd / "ledger.txt").read_text())
        return 0

    def commands(self) -> list[int]:
        """Processes that still work in the agent's directory."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):  # it ended meanwhile
                    if (entry / "cwd").readlink() == self.cwd:
                        found.append(int(entry.name))
        return found


def _script(chance: random.Random, world: Path) -> list[dict | str]:
    """For each prompt some answers with calls, and one without."""
    out: list[dict | str] = []
    number = 0
    for _ in range(PROMPTS):
        for _ in range(chance.randint(1, 3)):
            calls = []
            for _ in range(chance.randint(1, 3)):
                number += 1
                calls.append({"id": f"p{number}", "function": _call(chance, number, world)})
            out.append({"content": "I go on. " * chance.randint(0, 30), "tool_calls": calls})
        out.append("That is done.")
    return out


def _call(chance: random.Random, number: int, world: Path) -> dict:
    match chance.choice(["shell", "shell", "write_file", "edit_file", "read_file", "list_files"]):
        case "shell":
            line = f"""printf '%s\\t"%s"\\n' KIND "$FENCEPOST_CALL_ID" >> {world}"""
            waits = [f"sleep {chance.choice([0, 0, 0.005, 0.02])}" for _ in range(2)]
            parts = [line.replace("KIND", "entered"), waits[0], line.replace("KIND", "done"), waits[1]]
            name, arguments = "shell", {"command": "; ".join(parts)}
        case "write_file":
            name, arguments = "write_file", {"path": f"out/{number}.txt", "content": "x" * chance.randint(0, 5000)}
        case "edit_file":
            name, arguments = (
                "edit_file",
                {
                    "path": "ledger.txt",
                    "old": f"slot-{number}: empty",
                    "new": f"slot-{number}: full",
                },
            )
        case "read_file":
            name, arguments = "read_file", {"path": "ledger.txt"}
        case _:
            name, arguments = "list_files", {}
    return {"name": name, "arguments": json.dumps(arguments)}
