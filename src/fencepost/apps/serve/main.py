"""`fencepost serve`: the agent for other programs, over standard input and output or over HTTP.

    --stdio               one program, which started this one; its end is the end of this one
    --http HOST:PORT      any number of them; loopback unless you say otherwise; a bearer token always

Shutdown is ordered: no more requests, the turns are cancelled and write their real closers, the closing flush, the
policies, the store; then what was said last goes out.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from fencepost.apps.cli import chosen, exits
from fencepost.apps.cli.outlet import Outlet
from fencepost.apps.cli.ready import ready_agent
from fencepost.apps.cli.stop import END_OF_INPUT, Stop
from fencepost.apps.serve.api import Api
from fencepost.apps.serve.stdio import LineServer
from fencepost.errors import UsageError
from fencepost.plugins.approval import Mode
from fencepost.runtime.config import load
from fencepost.stores.urls import open_store

if TYPE_CHECKING:
    import uvicorn

TOKEN = "FENCEPOST_TOKEN"  # noqa: S105 - the name of the variable that holds it
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    return asyncio.run(_serve(arguments))


def composed(arguments: argparse.Namespace) -> Api:
    """The API over the ready agent of this directory."""
    loaded = load(chosen.directory(None))
    approve = chosen.approve(arguments, loaded)
    asks = not approve.explicit and loaded.config.approve in {None, "ask"}
    mode: Mode = "ask" if asks else approve.mode  # whoever is connected can be asked
    store = open_store(chosen.store_url(arguments.store, loaded))
    model = chosen.model_spec(arguments.model, loaded)
    api = Api()
    writes = approve.explicit and approve.mode == "all"
    api.runtime = ready_agent(store, model, loaded.config, mode, api.questions, writes=writes)
    return api


async def _serve(arguments: argparse.Namespace) -> int:
    stop = Stop()
    err = Outlet(2, lambda _error: None)
    with stop.listening():
        api = composed(arguments)
        try:
            serve = _lines(api, stop) if arguments.http is None else _http(api, stop, err, arguments)
            await serve
        finally:
            await err.drained()
    return exits.DONE if stop.cause in {None, END_OF_INPUT} else stop.cause.status


async def _lines(api: Api, stop: Stop) -> None:
    with _protocol_only() as output:
        out = Outlet(output, stop.output_failed)
        server = LineServer(api, 0, out, lambda: stop.request(END_OF_INPUT))
        await stop.asked.wait()
        if stop.cause is END_OF_INPUT:
            await server.answered()
        await _shut(api, stop)
        await server.finish()
        await out.drained()


@contextlib.contextmanager
def _protocol_only() -> Iterator[int]:
    """A descriptor of standard output; whatever else prints there prints to standard error (a library, a child)."""
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield output
    finally:
        os.dup2(output, 1)
        os.close(output)


async def _shut(api: Api, stop: Stop) -> None:
    """Cancel what runs, for the cause's reason, and close in order."""
    if stop.cause is not None:
        api.cancel_soon(stop.cause.reason)
    await api.close()


# --- HTTP -------------------------------------------------------------------------------------------------------


async def _http(api: Api, stop: Stop, err: Outlet, arguments: argparse.Namespace) -> None:
    import uvicorn

    from fencepost.apps.serve.http import application

    listening = _listening(arguments.http)
    host, port = listening.getsockname()[:2]
    token, told = _token(arguments.token_file)
    names = {*LOOPBACK, host, *(arguments.host_name or ())}
    hosts = frozenset(f"{name.lower()}:{port}" for name in names)
    config = uvicorn.Config(application(api, token, hosts), log_config=None, access_log=False, lifespan="off")
    server = _server(config)
    running = asyncio.create_task(server.serve([listening]), name="http")
    where = f"[{host}]" if ":" in host else host
    err.put(f"fencepost: serving http://{where}:{port}; {told}\n".encode())
    await stop.asked.wait()
    await _shut(api, stop)
    server.should_exit = True
    await running


def _server(config: uvicorn.Config) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        """Signals are ours: they close the sessions first."""

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Server(config)


def _listening(text: str) -> socket.socket:
    """A socket at `HOST:PORT`.

    Raises:
        UsageError: that is no address, or it cannot be had.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65_535:
        raise UsageError(
            f"--http {text!r} is no address", next_act="Write HOST:PORT, as in 127.0.0.1:8700; port 0 is any"
        )
    name = host.strip("[]") or "127.0.0.1"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(128)  # before its address is told to anyone
    except OSError as error:
        raise UsageError(f"--http {text}: {error.strerror or error}", next_act="Choose another host or port") from None
    return listening


def _token(file: str | None) -> tuple[str, str]:
    """The bearer token, and a sentence that says where it is.

    Raises:
        UsageError: the file cannot be used.
    """
    given = os.environ.get(TOKEN)
    if given and file is None:
        return given, f"the token is that of {TOKEN}"
    if file is None:
        token = secrets.token_urlsafe(32)
        return token, f"the token is {token}"
    path = Path(file).expanduser()
    try:
        if path.exists():
            return path.read_text().strip(), f"the token is in {path}"
        token = given or secrets.token_urlsafe(32)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as out:
            out.write(token + "\n")
    except OSError as error:
        raise UsageError(f"--token-file {path}: {error.strerror}") from None
    return token, f"the token is in {path}"
