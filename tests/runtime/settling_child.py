"""The process that is killed while it resumes.

    python -m tests.runtime.settling_child STORE WHEN EVENT MARKER WORLD [EFFECT]

It settles the calls of session `s1` and runs those of EFFECT again; its store stops before or after the first batch
with an EVENT, and writes MARKER there. What its tools do is appended to WORLD, a line each.
"""

import asyncio
import os
import sys
from pathlib import Path

from tests.runtime.settling import runtime, teller

from fencepost.apps.demo.pause import PausePoint, PausingStore
from fencepost.core import events as ev
from fencepost.runtime.settlement import Completed, Unknown
from fencepost.stores.urls import open_store


def tools(world):
    """`pay` knows what happened; `look` and `put` do not, and may run again."""

    def note(text):
        descriptor = os.open(world, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)

    async def body(context, arguments):
        note(f"ran {context.call_id}")
        return "ran"

    return (
        teller(lambda _: Completed("paid", "the bank"), tidy=lambda call: note(f"tidied {call.call_id}")),
        teller(lambda _: Unknown(), name="look", effect="read", body=body),
        teller(lambda _: Unknown(), name="put", effect="idempotent", body=body),
    )


async def main(url, when, kind, marker, world, *effects):
    """Resume, and wait to be killed."""
    stop = PausePoint(
        when, lambda entry: entry.type_name() == kind if isinstance(entry, ev.Event) else False, Path(marker)
    )
    async with runtime(PausingStore(open_store(url), stop), *tools(world)) as agent:
        await agent.resume("s1", rerun=frozenset(effects))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
