"""An agent whose model asks for one command: started, held until its launcher is watched, and killed by whoever likes.

    python -m tests.crash.shell_agent STORE COMMAND finish|end

It prints the launcher's process id, waits for a line, then runs its turn in the working directory.
"""

import asyncio
import json
import sys
from pathlib import Path

from fencepost.plugins.shell_launch import LAUNCHER
from fencepost.plugins.shipped import compose
from fencepost.runtime.runtime import Runtime
from fencepost.stores.urls import open_store
from fencepost.testing.scripted import ScriptedModel

SESSION = "s1"


async def main(store: str, command: str, on_crash: str) -> None:
    """One turn."""
    LAUNCHER._start()
    print(LAUNCHER._pid, flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    call = {"function": {"name": "shell", "arguments": json.dumps({"command": command})}}
    model = ScriptedModel([{"content": "", "tool_calls": [call]}, "Done."])
    plugins = compose(("checkpoint", "approval", "shell"), "all")
    settings = {"shell": {"on_crash": on_crash}}
    async with Runtime(open_store(store), model, plugins, plugin_settings=settings) as runtime:
        session = await runtime.create(SESSION, Path.cwd())
        await session.prompt("Do it.")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
