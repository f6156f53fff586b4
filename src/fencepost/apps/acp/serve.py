"""The process: descriptors, signals, and the way out.

Standard output carries the protocol and nothing else: it is taken away at once, and whatever a library prints goes to
standard error. Standard input is the client's too, and nothing that is started here can read from it.

The way out is the same whether the client closes its end, is gone, or a signal comes: bridges, the agents with the real
closers of their turns, policies and models, stores; within the bound of `stop`.
"""

from __future__ import annotations

import asyncio
import os
import sys

from fencepost.apps.acp.framing import Lines, StdioTransport
from fencepost.apps.acp.house import House, Wanted
from fencepost.apps.acp.server import Server
from fencepost.apps.cli import exits
from fencepost.apps.cli.live import sentence
from fencepost.apps.cli.outlet import Outlet
from fencepost.apps.cli.stop import Cause, Stop
from fencepost.errors import FencepostError
from fencepost.runtime.cancel import CLOSING

GONE = Cause(exits.OTHERWISE, CLOSING)
"""The client closed its end. The status is for a close that takes too long; one in order gives `exits.DONE`."""


def serve(wanted: Wanted) -> int:
    """Serve one client over standard input and output; returns the exit status."""
    client_in, client_out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return asyncio.run(_serve(wanted, client_in, client_out))


async def _serve(wanted: Wanted, client_in: int, client_out: int) -> int:
    stop = Stop()
    with stop.listening():
        out = Outlet(client_out, stop.output_failed)
        server = Server(House(wanted), StdioTransport(Lines(client_in), out))
        listening = asyncio.create_task(server.listen(), name="listen")
        asked = asyncio.create_task(stop.asked.wait(), name="asked to end")
        await asyncio.wait({listening, asked}, return_when=asyncio.FIRST_COMPLETED)
        gone = stop.cause is None
        if gone:
            stop.request(GONE)
        failed = await server.close()
        listening.cancel()
        await asyncio.wait({listening})
    for error in failed:
        sys.stderr.write(f"fencepost: error: {sentence(error)}\n")
    if failed:
        leaves = [leaf for error in failed for leaf in exits.leaves(error)]
        return exits.worst([exits.status_of(e) if isinstance(e, FencepostError) else exits.INTERNAL for e in leaves])
    return exits.DONE if gone or stop.cause is None else stop.cause.status
