"""fencepost: an agent harness whose session log tells the truth after a crash.

import fencepost as fp

async with fp.open("jsonl:./sessions", model="openai:gpt-5", tools=[send_mail]) as runtime:
    session = await runtime.create()
    turn = await session.prompt("Tell Ada that the build is green.")
    print(turn.text)
"""

from fencepost.apps.embed import open  # noqa: A004 - written as fencepost.open
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
    SessionExistsError,
    SessionNotFoundError,
    StoreError,
    UnsupportedError,
    UsageError,
)
from fencepost.journal.inspect import CallView, Inspection, SessionRow
from fencepost.journal.session import Recovery
from fencepost.runtime.hooks import Hooks, Position
from fencepost.runtime.loop import TurnResult
from fencepost.runtime.models import Model
from fencepost.runtime.plugin import Plugin, PluginContext
from fencepost.runtime.runtime import Runtime, Settings
from fencepost.runtime.session import Guarantees, Session
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext, Tool, ToolReply
from fencepost.stores.base import Handle, Store, StoredLog
from fencepost.stores.memory import MemoryStore

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - grouped by what a reader looks for
    # Running an agent
    "open",
    "tool",
    "CallContext",
    "Guarantees",
    "Recovery",
    "Runtime",
    "Session",
    "Settings",
    "Tool",
    "ToolReply",
    "TurnResult",
    # Looking at sessions
    "CallView",
    "Inspection",
    "SessionRow",
    "Verdict",
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
    # Testing your own agent
    "MemoryStore",
    # Errors
    "CompositionError",
    "ConfigError",
    "DamagedError",
    "FencepostError",
    "HeldError",
    "ModelError",
    "NotSavedError",
    "SessionExistsError",
    "SessionNotFoundError",
    "StoreError",
    "UnsupportedError",
    "UsageError",
]
