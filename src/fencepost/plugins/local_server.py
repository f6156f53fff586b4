"""llama.cpp's own server with one model, over loopback, in a process that ends with its parent.

    python -m fencepost.plugins.local_server     started by `local`; one JSON object comes in on standard input

Why a process: loading a model keeps the interpreter's lock from its beginning to its end, and so does letting a server
go that somebody still talks to (half a minute). Inside the agent both would stop every session's loop. And what
llama.cpp aborts on is then not the end of the agent.

Rules:
    1. One line comes out when it serves: `{"url": …}`. Where it cannot, it ends, and standard error says why.
    2. It serves until standard input ends: with the parent, however that ended.
    3. Only who has the key that came in is answered; it is on no command line and in no environment.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Annotated, Any

import msgspec

CACHE_MIB = 512
"""Memory for prompts that were read before, beside the one that is being worked on."""

_LOGGED = re.compile(r"^[\d.]+ E (?:\S+\s+)?\S+: +")
"""What llama.cpp writes in front of an error: a time, its part, its function."""

Positive = Annotated[int, msgspec.Meta(ge=1)]


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the model is loaded; named as llama.cpp names it.

    Attributes:
        n_ctx: tokens of context; memory grows with it.
        n_threads: of computation; None for what llama.cpp finds right.
        n_gpu_layers: layers on the GPU, where there is one; None for as many as fit.
        n_parallel: requests that are worked on at once; they share the context.
        chat_template: in place of the model's own (Jinja).
    """

    n_ctx: Positive = 16384
    n_threads: Positive | None = None
    n_gpu_layers: Annotated[int, msgspec.Meta(ge=0)] | None = None
    n_parallel: Positive = 1
    chat_template: str | None = None


class Order(msgspec.Struct, frozen=True):
    """What comes in: the model, the key, and how to load it."""

    path: str
    key: str
    settings: ServerSettings


class Report(msgspec.Struct, frozen=True):
    """What comes out (rule 1)."""

    url: str


def serve(order: Order) -> Any:
    """Load and serve. What is returned serves as long as it is kept.

    Raises:
        ImportError: the package, or a library that it needs, is missing.
        RuntimeError: llama.cpp could not; what it said is on standard error.
    """
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = order.path
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys, params.cors_origins = [order.key], ""
    params.ui = params.endpoint_slots = False
    params.verbosity, params.cache_ram_mib = 1, CACHE_MIB
    params.n_ctx, params.n_parallel = order.settings.n_ctx, order.settings.n_parallel
    if order.settings.n_threads is not None:
        params.cpuparams.n_threads = order.settings.n_threads
    if order.settings.n_gpu_layers is not None:
        params.n_gpu_layers = order.settings.n_gpu_layers
    if order.settings.chat_template is not None:
        params.chat_template = order.settings.chat_template
    return xllamacpp.Server(params)


def reason(log: str) -> str:
    """Why a server could not begin, from what it left on standard error.

    What llama.cpp said first is closest to the cause; where something else went wrong, it is what was said last.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [_LOGGED.sub("", line) for line in lines if _LOGGED.match(line)]
    return "; ".join(list(dict.fromkeys(errors))[:2] or lines[-1:]) or "it does not say why"


def main() -> int:
    """See the module."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    report = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed is no report
    try:
        server = serve(order)
    except RuntimeError:
        return 1  # llama.cpp has said why, or will when this process ends
    with os.fdopen(report, "wb") as out:
        out.write(msgspec.json.encode(Report(f"{server.listening_address}/v1")) + b"\n")
    sys.stdin.buffer.read()
    os._exit(0)  # letting go of the server would wait for whoever still talks to it


if __name__ == "__main__":
    sys.exit(main())
