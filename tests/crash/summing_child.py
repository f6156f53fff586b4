"""The process that is killed while its history is summed up: a real model over HTTP, and a limit that is soon met.

    python -m tests.crash.summing_child STORE URL [--continue | PROMPT]

It prints the answer of its turn.
"""

import asyncio
import sys
from pathlib import Path

import fencepost as fp
from tests.crash.scenario import SESSION

LIMIT = 2_000
"""Tokens. Two reads are more than what is allowed of it."""


@fp.tool(effect="read")
async def read(n: int) -> str:
    """Read."""
    return f"{n}: {'word ' * 700}"


async def main(store: str, url: str, *arguments: str) -> None:
    environ = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "none"}
    settings = {"compaction": {"limit": LIMIT, "keep": 1}}
    async with fp.open(store, model="openai:any", tools=[read], plugin_settings=settings, environ=environ) as runtime:
        if arguments == ("--continue",):
            session = await runtime.resume(SESSION)
            result = await session.go_on()
        else:
            session = await runtime.create(SESSION, Path("/"))
            result = await session.prompt(*arguments)
        print(result.text if result is not None else "", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
