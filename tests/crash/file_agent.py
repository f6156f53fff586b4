"""An agent that writes and edits files: the process that the tests of receipts kill.

    python -m tests.crash.file_agent STORE CWD SCRIPT [--resume] [--rerun] [PROMPT]

It makes the session `files`, or resumes it, and runs the prompt if there is one.
"""

import asyncio
import sys
from pathlib import Path

import fencepost as fp
from fencepost.plugins.files import file_tools
from fencepost.plugins.script import ScriptModel

SESSION = "files"


async def main(store: str, cwd: str, script: str, arguments: list[str]) -> None:
    """Work, and close the session in order."""
    async with fp.open(store, model=ScriptModel(Path(script)), tools=file_tools()) as runtime:
        if "--resume" in arguments:
            session = await runtime.resume(SESSION, rerun={"idempotent"} if "--rerun" in arguments else frozenset())
        else:
            session = await runtime.create(SESSION, Path(cwd))
        for prompt in arguments:
            if not prompt.startswith("--"):
                await session.prompt(prompt)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]))
