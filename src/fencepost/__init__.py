"""fencepost: an agent harness whose session log tells the truth after a crash.

    import fencepost as fp

    async with fp.open("jsonl:./sessions", model="openai:gpt-5", tools=[send_mail]) as runtime:
        session = await runtime.create()
        turn = await session.prompt("Tell Ada that the build is green.")
        print(turn.text)

This file is a table of contents. A name's module is imported when the name is first used: importing the package costs
next to nothing, and has no effect.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.apps.embed import open  # noqa: A004 - written as fencepost.open
    from fencepost.client.remote import Client, RemoteSession, connect
    from fencepost.core.events import Event
    from fencepost.core.verdict import Verdict
    from fencepost.errors import (
        CompositionError,
        ConfigError,
        DamagedError,
        FencepostError,
        HeldError,
        ModelError,
        NotSavedError,
        ServerLostError,
        SessionExistsError,
        SessionNotFoundError,
        StoreError,
        UnsupportedError,
        UsageError,
    )
    from fencepost.journal.fork import Forked
    from fencepost.journal.inspect import CallView, Inspection, SessionRow
    from fencepost.journal.session import Recovery
    from fencepost.plugins.approval import Choice, Question
    from fencepost.plugins.budget import Budget
    from fencepost.plugins.repeats import Repeats
    from fencepost.plugins.rules import Rule, Rules
    from fencepost.runtime.guarantees import Guarantees
    from fencepost.runtime.hooks import Hooks, Position
    from fencepost.runtime.loop import TurnResult
    from fencepost.runtime.models import Model
    from fencepost.runtime.plugin import Plugin, PluginContext
    from fencepost.runtime.replies import NotStarted
    from fencepost.runtime.runtime import Runtime, Settings
    from fencepost.runtime.session import Session
    from fencepost.runtime.settlement import Completed, DidNotRun, StillRunning, Unknown, UnsettledCall
    from fencepost.runtime.toolmaker import tool
    from fencepost.runtime.tools import CallContext, Tool, ToolReply
    from fencepost.stores.base import Handle, Store, StoredLog, Upkeep
    from fencepost.stores.memory import MemoryStore
    from fencepost.testing.scripted import ScriptedModel

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - grouped by what a reader looks for
    # Running an agent
    "open",
    "connect",
    "tool",
    "CallContext",
    "Client",
    "Guarantees",
    "Recovery",
    "RemoteSession",
    "Runtime",
    "Session",
    "Settings",
    "Tool",
    "ToolReply",
    "TurnResult",
    # Saying what really happened
    "Completed",
    "DidNotRun",
    "NotStarted",
    "StillRunning",
    "Unknown",
    "UnsettledCall",
    # Looking at sessions
    "CallView",
    "Forked",
    "Inspection",
    "SessionRow",
    "Verdict",
    # Saying what may run
    "Budget",
    "Choice",
    "Question",
    "Repeats",
    "Rule",
    "Rules",
    # Extending
    "Event",
    "Handle",
    "Hooks",
    "Model",
    "Plugin",
    "PluginContext",
    "Position",
    "Store",
    "StoredLog",
    "Upkeep",
    # Testing your own agent (more in fencepost.testing)
    "MemoryStore",
    "ScriptedModel",
    # Errors
    "CompositionError",
    "ConfigError",
    "DamagedError",
    "FencepostError",
    "HeldError",
    "ModelError",
    "NotSavedError",
    "ServerLostError",
    "SessionExistsError",
    "SessionNotFoundError",
    "StoreError",
    "UnsupportedError",
    "UsageError",
]

_HOMES = {
    "apps.embed": "open",
    "client.remote": "Client RemoteSession connect",
    "plugins.approval": "Choice Question",
    "plugins.budget": "Budget",
    "plugins.repeats": "Repeats",
    "plugins.rules": "Rule Rules",
    "runtime.toolmaker": "tool",
    "runtime.replies": "NotStarted",
    "runtime.settlement": "Completed DidNotRun StillRunning Unknown UnsettledCall",
    "runtime.tools": "CallContext Tool ToolReply",
    "runtime.guarantees": "Guarantees",
    "runtime.session": "Session",
    "journal.fork": "Forked",
    "journal.session": "Recovery",
    "runtime.runtime": "Runtime Settings",
    "runtime.loop": "TurnResult",
    "journal.inspect": "CallView Inspection SessionRow",
    "core.verdict": "Verdict",
    "core.events": "Event",
    "stores.base": "Handle Store StoredLog Upkeep",
    "runtime.hooks": "Hooks Position",
    "runtime.models": "Model",
    "runtime.plugin": "Plugin PluginContext",
    "stores.memory": "MemoryStore",
    "testing.scripted": "ScriptedModel",
}
_MODULES = dict.fromkeys((name for name in __all__ if name.endswith("Error")), "errors")
_MODULES.update({name: module for module, names in _HOMES.items() for name in names.split()})


def __getattr__(name: str) -> object:
    """Import the module that defines `name` and give what it holds."""
    if name not in _MODULES:
        raise AttributeError(f"module 'fencepost' has no attribute {name!r}")
    value: object = getattr(import_module(f"fencepost.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
