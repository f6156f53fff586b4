"""Models behind the OpenAI chat-completions form, through the official SDK: `openai:MODEL` and `deepseek:MODEL`.

Rules:
    1. One stream is one request. The SDK's retries and redirects are off: another request is another entry in the log.
    2. The SDK is imported and its client built when the first stream is pulled, and in a thread: both are slow.
    3. The SDK lets errors of its transport and of its JSON pass. `_events` is the only place that touches it while a
       request runs, and nothing leaves it but `ModelError` (and the cancellation of its task).
    4. The key is in the client and nowhere else: not in `repr`, not in settings, not in an error.
    5. An endpoint on this machine is never asked through a proxy, and works without a key.

What is on the wire stands in `openai_wire`, which failure is which in `openai_errors`.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import os
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from fencepost.core.events import Json
from fencepost.core.projection import ModelRequest
from fencepost.errors import ConfigError, ModelError, UsageError
from fencepost.plugins import openai_errors as errors
from fencepost.plugins.openai_wire import OURS, ChunkReader, chat_body
from fencepost.runtime.models import ModelDelta

if TYPE_CHECKING:
    from openai import AsyncOpenAI, Omit

CONNECT_SECONDS: Final = 10.0
"""How long a connection may take to open."""

SILENCE_SECONDS: Final = 600.0
"""How long a stream may be silent: models that think may be for minutes."""

NO_KEY: Final = "none"
"""What an endpoint on this machine is sent in place of a key; the form demands one."""

INSTALL: Final = "Run `pip install 'fencepost[openai]'`"


class Provider(msgspec.Struct, frozen=True):
    """A provider of this form: its base URL and where its key and its URL are configured."""

    url: str
    key_variable: str
    url_variable: str


PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    "deepseek": Provider("https://api.deepseek.com", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL"),
}


def open_model(spec: str, environ: Mapping[str, str], settings: Mapping[str, Json] | None = None) -> OpenAIModel:
    """The model that `openai:NAME` or `deepseek:NAME` names, configured by its provider's environment variables.

    Raises:
        UsageError: the name is missing or the provider is not one of `PROVIDERS`.
        ConfigError: the key is missing, the URL is none, or the SDK is not installed; the message says which.
    """
    scheme, _, name = spec.partition(":")
    if scheme not in PROVIDERS or not name.strip():
        known = ", ".join(f"{known}:MODEL" for known in PROVIDERS)
        raise UsageError(f"{spec!r} names no model of this form ({known})")
    if importlib.util.find_spec("openai") is None:
        raise ConfigError(f"{spec} needs the package `openai`", next_act=INSTALL)
    provider = PROVIDERS[scheme]
    return OpenAIModel(
        name.strip(),
        base_url=environ.get(provider.url_variable, "").strip() or None,
        api_key=environ.get(provider.key_variable, "").strip() or None,
        provider=scheme,
        settings=settings,
    )


class OpenAIModel:
    """One model of one endpoint.

    Settings go over the wire under the names they are given. One is renamed, when the model is made: `max_tokens` for
    OpenAI's own endpoint, which only takes `max_completion_tokens`, while many compatible endpoints ignore that name.
    What is recorded is what is sent. `echo_reasoning` (see `openai_wire`) is recorded and not sent.

    Args:
        model: the provider's name of the model.
        base_url: what `/chat/completions` is added to; None for the provider's own.
        api_key: the key; may be None for an endpoint on this machine only.
        provider: the name that is recorded, `openai` or `deepseek` or another one that speaks this form.
        settings: what else shapes requests (temperature, max_tokens, reasoning_effort …).
        timeout: seconds for which the stream may be silent.

    Raises:
        ConfigError: see `open_model`; or a setting names a field that comes from the log.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str = "openai",
        settings: Mapping[str, Json] | None = None,
        timeout: float = SILENCE_SECONDS,
    ) -> None:
        known = PROVIDERS.get(provider) or _compatible(provider)
        self._base_url = _checked_url(base_url or known.url, known)
        self._local = _is_loopback(self._base_url)
        self._key = _checked_key(api_key or (NO_KEY if self._local else ""), known, provider)
        self._model = model
        self._provider = provider
        self._settings = _checked_settings(settings or {}, rename=base_url is None and provider == "openai")
        self._timeout = timeout
        self._endpoint = errors.Endpoint(
            f"{provider}:{model}", self._base_url, self._key, known.key_variable, known.url_variable
        )
        self._client: AsyncOpenAI | None = None
        self._connecting = threading.Lock()

    def __repr__(self) -> str:
        return f"<OpenAIModel {self._endpoint.name} at {self._endpoint.url}>"

    @property
    def provider(self) -> str:
        """The provider's name, recorded in `request/header`."""
        return self._provider

    @property
    def model(self) -> str:
        """The model's name, recorded in `request/header`."""
        return self._model

    @property
    def settings(self) -> dict[str, Json]:
        """What else shapes its requests, recorded in `request/header`."""
        return dict(self._settings)

    def body(self, request: ModelRequest) -> dict[str, Json]:
        """The request as it goes over the wire."""
        return chat_body(request)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Send the request when the first delta is pulled, and stream the answer.

        Raises:
            ModelError: see `openai_errors`.
        """
        reader = ChunkReader()
        try:
            async with contextlib.aclosing(self._events(self.body(request), reader)) as chunks:
                async for chunk in chunks:
                    for delta in reader.read(chunk):
                        yield delta
        except ModelError as error:
            if not (error.code == "CONNECTION" and reader.complete):
                raise
        for delta in reader.end():
            yield delta

    async def close(self) -> None:
        """Release connections. Idempotent; a later stream opens new ones."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _events(self, body: dict[str, Json], reader: ChunkReader) -> AsyncGenerator[object]:
        """Send the body once and give the events of the stream as they are (rule 3)."""
        client = await asyncio.to_thread(self._connect)
        from openai import AsyncStream

        try:
            stream = await client.post(
                "/chat/completions",
                cast_to=object,
                body=body,
                options={"headers": self._headers(), "follow_redirects": False},
                stream=True,
                stream_cls=AsyncStream[object],
            )
            async with stream:
                async for event in stream:
                    yield event
                content_type = stream.response.headers.get("content-type", "")
        except Exception as error:  # noqa: BLE001 - the SDK's own and its transport's; see rule 3
            raise self._model_error(error) from None
        if not reader.chunks and "event-stream" not in content_type:
            raise errors.no_stream_error(self._endpoint, content_type)

    def _connect(self) -> AsyncOpenAI:
        """The client, made once. Runs in a thread (rule 2)."""
        try:
            import openai
        except ImportError as error:
            name = self._endpoint.name
            raise ModelError(f"{name} lacks its SDK: {error}", code="NOT_INSTALLED", next_act=INSTALL) from None
        with self._connecting:
            if self._client is None:
                self._client = openai.AsyncOpenAI(
                    api_key=self._key,
                    base_url=self._base_url,
                    max_retries=0,
                    timeout=openai.Timeout(self._timeout, connect=CONNECT_SECONDS),
                    http_client=openai.DefaultAsyncHttpxClient(trust_env=False) if self._local else None,
                )
            return self._client

    def _headers(self) -> dict[str, str | Omit]:
        """The SDK adds what the environment holds for OpenAI to every request. It is nobody else's to see."""
        if self._provider == "openai":
            return {}
        from openai import Omit

        lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
        ambient = [name.strip() for name, colon, _ in (line.partition(":") for line in lines) if colon]
        headers: dict[str, str | Omit] = {name: Omit() for name in (*ambient, "OpenAI-Organization", "OpenAI-Project")}
        return {**headers, "Authorization": f"Bearer {self._key}"}

    def _model_error(self, error: Exception) -> ModelError:
        import openai

        match error:
            case openai.APIStatusError():
                headers = error.response.headers
                return errors.status_error(self._endpoint, error.status_code, headers, error.body, time.time())
            case openai.APIConnectionError():
                cause = error.__cause__ or error
                return errors.connection_error(self._endpoint, str(cause) or type(cause).__name__)
            case openai.APIError():
                return errors.stream_error(self._endpoint, error.body)
            case ValueError() | RecursionError():
                return errors.malformed_error(self._endpoint, str(error))
            case _:
                return errors.connection_error(self._endpoint, f"{type(error).__name__}: {error}")


# --- what is configured -----------------------------------------------------------------------------------------


def _compatible(name: str) -> Provider:
    return Provider("", f"{name.upper()}_API_KEY", f"{name.upper()}_BASE_URL")


def _checked_url(url: str, provider: Provider) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"{provider.url_variable}: {errors.without_credentials(url)!r} is no http or https URL",
            next_act="Give the URL that /chat/completions is added to, such as http://127.0.0.1:8080/v1",
        )
    return url


def _checked_key(key: str, provider: Provider, name: str) -> str:
    if not key:
        raise ConfigError(
            f"no key for {name}: {provider.key_variable} is not set",
            next_act=f"Set {provider.key_variable}, or {provider.url_variable} to an endpoint on this machine",
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{provider.key_variable} holds a character that no header can carry")
    return key


def _checked_settings(settings: Mapping[str, Json], *, rename: bool) -> dict[str, Json]:
    taken = sorted(OURS.intersection(settings))
    if taken:
        raise ConfigError(f"settings may not hold {', '.join(taken)}: that comes from the session")
    return {("max_completion_tokens" if rename and name == "max_tokens" else name): settings[name] for name in settings}


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
