"""An agent with `http_request`: the process that is killed while a server has its request.

python -m tests.crash.http_agent STORE SCRIPT [--resume [EFFECT]]
"""

import asyncio
import sys
from pathlib import Path

import fencepost as fp
from fencepost.plugins.http_request import http_tool
from fencepost.plugins.script import ScriptModel

SESSION = "http"


async def main(store: str, script: str, arguments: list[str]) -> None:
    """Ask, or resume and run again what was declared so."""
    async with fp.open(store, model=ScriptModel(Path(script)), tools=[http_tool()]) as runtime:
        if "--resume" in arguments:
            await runtime.resume(SESSION, rerun=frozenset(arguments[1:]))
        else:
            await (await runtime.create(SESSION, Path("/"))).prompt("Go.")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
