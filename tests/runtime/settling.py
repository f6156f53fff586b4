"""Sessions that a crash left in the middle of their calls, and tools that have something to say about these."""

import hashlib
from pathlib import Path

import msgspec
from tests.runtime.rig import identity

from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.journal.inspect import fold_stored
from fencepost.journal.session import Journal
from fencepost.plugins.checkpoint import Checkpoint
from fencepost.plugins.shipped import ToolsPlugin
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.tools import Tool
from fencepost.stores.jsonl import JsonlStore
from fencepost.stores.memory import MemoryStore
from fencepost.stores.sqlite import SqliteStore

GATES = ("step", "request", "tool", "closing")
STORES = ("memory", "jsonl", "sqlite")


def store_at(kind, place):
    """A store of a kind below a directory."""
    made = {
        "memory": MemoryStore,
        "jsonl": lambda: JsonlStore(place / "sessions"),
        "sqlite": lambda: SqliteStore(place / "sessions.db"),
    }
    return made[kind]()


class Left(msgspec.Struct):
    """One call as a crash left it.

    Attributes:
        call_id: its id.
        let_go: its `tool/call` is durable.
        effect: as it was declared then.
        parent: the call that made it.
        arguments: as the model wrote them.
        name: of its tool.
    """

    call_id: str
    let_go: bool = True
    effect: str = "write"
    parent: str | None = None
    arguments: str = '{"text":"hello"}'
    name: str = "pay"


async def leave(store, *calls, gates=GATES, session="s1", cwd="/", before_step_end=(), who=None):
    """A session whose process died with these calls open."""
    journal = await Journal.create(store, session, str(cwd), who or identity(), CORE)
    journal.append(ev.InputQueued, input_id="i1", target="turn", content=(ev.Text("go"),))
    journal.append(ev.TurnStart, turn=1, gates=gates, policy="checkpoint" if gates else "none")
    journal.append(ev.StepStart, turn=1, step=1)
    journal.append(ev.UserMessage, message_id="m1", content=(ev.Text("go"),), source="user", input_id="i1")
    journal.append(ev.RequestHeader, provider="p", model="m", settings={}, system="", tools=(), reason="initial")
    asked = tuple(ev.CallRequest(one.call_id, one.name, one.arguments) for one in calls if one.parent is None)
    journal.append(ev.AssistantMessage, turn=1, step=1, message_id="m2", content=asked, finish="tool_calls")
    for one in calls:
        if one.let_go:
            journal.append(
                ev.ToolCall,
                turn=1,
                step=1,
                call_id=one.call_id,
                name=one.name,
                arguments=msgspec.json.decode(one.arguments),
                effect=one.effect,
                parent=one.parent,
            )
    for cls, fields in before_step_end:
        journal.append(cls, **fields)
    await journal.close()


def teller(settle=None, *, name="pay", effect="write", tidy=None, body=None, **more):
    """A tool that says, when it is asked about a call, what `settle` says."""

    async def never(context, arguments):
        raise AssertionError("a body ran")

    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}
    spec = ev.ToolSpec(name, "Pay.", schema)
    return Tool(spec=spec, body=body or never, effect=effect, settle=settle, tidy=tidy, **more)


def runtime(store, *tools, model=None, plugins=(), gates=True):
    """A runtime that offers these tools."""
    composed = [*([Checkpoint()] if gates else []), ToolsPlugin("tools", tools), *plugins]
    return Runtime(store, model, composed, identity=identity())


async def results(store, session="s1"):
    """The results of a stored session, by call id."""
    fold = fold_stored(await store.read(session)).fold
    return {name: record.result for name, record in fold.calls.items()}


def digest(place: Path) -> str:
    """All names and bytes below a directory, but for the index that readers of a SQLite database share in memory."""
    summary = hashlib.sha256()
    for path in sorted(place.rglob("*")):
        if path.name.endswith("-shm"):
            continue
        summary.update(f"{path}\0".encode())
        summary.update(path.read_bytes() if path.is_file() else b"")
    return summary.hexdigest()
