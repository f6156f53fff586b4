"""Models that run on this machine: `local:FILE.gguf`, any model in llama.cpp's format. Needs no key and no network.

The model is loaded when the first request is sent, by a server of its own (see `local_server`) that speaks the form of
chat completions to this process and nobody else, and ends when the model is closed. What was loaded once serves all
sessions of the process.

Settings that `ServerSettings` names (`n_ctx` …) shape the loading; they are recorded and not sent. All others go over
the wire, as they do for `openai:`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import secrets
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from fencepost.core.events import Json
from fencepost.core.projection import ModelRequest
from fencepost.errors import ConfigError, ModelError, UsageError
from fencepost.plugins.endpoint import checked_settings, install
from fencepost.plugins.local_server import Order, Report, ServerSettings, reason
from fencepost.plugins.openai import OpenAIModel
from fencepost.plugins.openai_wire import OURS, chat_body
from fencepost.runtime.models import ModelDelta

PROVIDER: Final = "local"

PACKAGES: Final = ("xllamacpp", "openai")
"""What the extra brings."""

MAGIC: Final = b"GGUF"
"""How every file of this format begins."""

ENDING_SECONDS: Final = 1.0
"""How long a process whose connection broke off may take to end, if that is why."""

LOADING: Final = frozenset(ServerSettings.__struct_fields__)
"""Settings that are not sent."""


def open_model(spec: str, environ: Mapping[str, str], settings: Mapping[str, Json] | None = None) -> LocalModel:  # noqa: ARG001 - the shape of every scheme's factory
    """The model that `local:FILE.gguf` names.

    Raises:
        UsageError: no file is named, it is not there, or it is no GGUF.
        ConfigError: the extra is not installed, or a setting has the wrong type.
    """
    scheme, _, path = spec.partition(":")
    if scheme != PROVIDER or not path.strip():
        raise UsageError(f"{spec!r} names no model file (local:FILE.gguf)")
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if missing:
        raise ConfigError(f"{spec} needs the package `{missing[0]}`", next_act=install(PROVIDER))
    return LocalModel(path.strip(), settings=settings)


class _LocalEndpoint(OpenAIModel):
    """A connection for each request: llama.cpp's server drops an idle one after seconds, perhaps just as it is used."""

    def _headers(self) -> dict[str, Any]:
        return {**super()._headers(), "Connection": "close"}


class LocalModel:
    """One model file, and the server that has it loaded.

    Args:
        path: the file.
        settings: what shapes its loading and its requests.

    Raises:
        UsageError: the file is not there, cannot be read, or is no GGUF.
        ConfigError: a setting has the wrong type, or names a field that comes from the log.
    """

    def __init__(self, path: str | Path, *, settings: Mapping[str, Json] | None = None) -> None:
        self._name = str(path)
        self._path = checked_file(path)
        given = checked_settings(settings or {}, OURS)
        self._loading = _loading({name: value for name, value in given.items() if name in LOADING})
        self._settings: dict[str, Json] = {"n_ctx": self._loading.n_ctx, **given}
        self._starting = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._model: OpenAIModel | None = None

    def __repr__(self) -> str:
        state = "loaded" if self._model is not None else "not loaded"
        return f"<LocalModel {self._path} {state}>"

    @property
    def provider(self) -> str:
        """`local`."""
        return PROVIDER

    @property
    def model(self) -> str:
        """The file, as it was named."""
        return self._name

    @property
    def settings(self) -> dict[str, Json]:
        """What shapes its loading and its requests, recorded in `request/header`."""
        return dict(self._settings)

    def body(self, request: ModelRequest) -> dict[str, Json]:
        """The request as it goes over the wire."""
        return chat_body(_sent(request))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Load the model if it is not, send the request, and stream the answer.

        Raises:
            ModelError: `NOT_LOADED`, llama.cpp could not load the file; or see `endpoint_errors`.
        """
        model = await asyncio.to_thread(self._loaded)
        try:
            async with contextlib.aclosing(model.stream(_sent(request))) as deltas:
                async for delta in deltas:
                    yield delta
        except ModelError as error:
            if error.code == "CONNECTION":
                await asyncio.to_thread(self._see_whether_it_ended)
            if error.code == "CONTEXT_TOO_LONG":
                error.next_act = f"Give it more context (now n_ctx = {self._loading.n_ctx}), or compact the session"
            elif error.next_act:
                error.next_act = "The model runs on this machine: no variable and no key has to do with it"
            raise

    async def close(self) -> None:
        """End the server. Idempotent; a later stream starts a new one."""
        model, self._model = self._model, None
        if model is not None:
            await model.close()
        await asyncio.to_thread(self._end)

    def _loaded(self) -> OpenAIModel:
        """The model behind a server that lives. Runs in a thread: loading takes its time."""
        with self._starting:
            server = self._server
            if self._model is None or server is None or server.poll() is not None:
                self._model = None
                self._model = self._start()
            return self._model

    def _see_whether_it_ended(self) -> None:
        """A connection is lost a moment before the process that held it is known to be gone."""
        server = self._server
        if server is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(ENDING_SECONDS)

    def _start(self) -> OpenAIModel:
        self._forget()
        key = secrets.token_urlsafe()
        with tempfile.TemporaryFile() as log:
            server = self._server = _spawn(log)
            report = _first_line(server, Order(str(self._path), key, self._loading))
            if not report:
                code = server.wait()
                log.seek(0)
                said = reason(log.read().decode(errors="replace"))
                raise ModelError(
                    f"{self._path} could not be loaded (llama.cpp ended with {code}): {said}",
                    code="NOT_LOADED",
                    next_act="Check the file, and whether there is memory for it: a smaller n_ctx needs less",
                )
        url = msgspec.json.decode(report, type=Report).url
        return _LocalEndpoint(self._name, base_url=url, api_key=key, provider=PROVIDER)

    def _end(self) -> None:
        """Kill first, so that whoever waits for it to load is done, then make sure that nothing was started since."""
        server = self._server
        if server is not None:
            server.kill()
        with self._starting:
            self._model = None
            self._forget()

    def _forget(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.kill()
            server.communicate()


def _spawn(log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "fencepost.plugins.local_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,  # what interrupts the terminal's programs is not meant for it
    )


def _first_line(server: subprocess.Popen[bytes], order: Order) -> bytes:
    """What the server says when it is given `order`: nothing, where it ended."""
    assert server.stdin is not None
    assert server.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        server.stdin.write(msgspec.json.encode(order) + b"\n")
        server.stdin.flush()
    return server.stdout.readline()


def _sent(request: ModelRequest) -> ModelRequest:
    """The request without what shaped the loading."""
    sent = {name: value for name, value in request.settings.items() if name not in LOADING}
    return msgspec.structs.replace(request, settings=sent)


def _loading(given: Mapping[str, Json]) -> ServerSettings:
    try:
        return msgspec.convert(given, ServerSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"[settings]: {error}", next_act=f"For local models: {', '.join(sorted(LOADING))}") from None


def checked_file(path: str | Path) -> Path:
    """The model file, absolute.

    Raises:
        UsageError: it is not there, cannot be read, or is no GGUF.
    """
    whole = Path(path).expanduser().absolute()
    advice = "Give a model in llama.cpp's format: local:FILE.gguf"
    try:
        with whole.open("rb") as file:
            begins = file.read(len(MAGIC))
    except FileNotFoundError:
        raise UsageError(f"there is no model file {whole}", next_act=advice) from None
    except OSError as error:
        raise UsageError(f"the model file {whole} cannot be read: {error.strerror}", next_act=advice) from None
    if begins != MAGIC:
        raise UsageError(f"{whole} is no GGUF file: it begins with {begins!r}", next_act=advice)
    return whole
