"""What the models behind an official SDK have in common: one request is one stream, and every failure a `ModelError`.

Rules:
    1. One stream is one request. The SDK's retries and redirects are off: another request is another entry in the log.
    2. The SDK is imported and its client built when the first stream is pulled, and in a thread: both are slow.
    3. The SDKs let errors of their transport and of their JSON pass. `_events` is the only place that touches one while
       a request runs, and nothing leaves it but `ModelError` (and the cancellation of its task).
    4. The key is in the client and nowhere else: not in `repr`, not in settings, not in an error.
    5. An endpoint on this machine is never asked through a proxy.

It does not know what is on the wire: that is each form's own.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import importlib
import threading
import time
from collections.abc import AsyncGenerator, Mapping
from types import ModuleType
from typing import Any, ClassVar, Final, Protocol

from fencepost.core.events import Json
from fencepost.core.projection import ModelRequest
from fencepost.errors import ModelError
from fencepost.plugins import endpoint_errors as errors
from fencepost.plugins.endpoint import (
    NO_KEY,
    Endpoint,
    Provider,
    checked_key,
    checked_settings,
    checked_url,
    install,
    is_loopback,
)
from fencepost.runtime.models import ModelDelta

CONNECT_SECONDS: Final = 10.0
"""How long a connection may take to open."""

SILENCE_SECONDS: Final = 600.0
"""How long a stream may be silent: models that think may be for minutes."""


class StreamReader(Protocol):
    """Turns the events of one stream into deltas."""

    @property
    def chunks(self) -> int:
        """How many events were read."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the end marker came and nothing behind it: a connection lost after that lost nothing."""
        ...

    def read(self, chunk: object) -> list[ModelDelta]:
        """The deltas of one event."""
        ...

    def end(self) -> list[ModelDelta]:
        """What the stream said last: nothing, where it was cut."""
        ...


class SdkModel(abc.ABC):
    """One model of one endpoint; see the module.

    Args:
        model: the provider's name of the model.
        provider: the name that is recorded.
        place: how it is configured.
        base_url: what the path of a request is added to; None for the provider's own.
        api_key: the key; may be None for an endpoint on this machine only.
        settings: what else shapes requests, recorded and sent as it is.
        timeout: seconds for which the stream may be silent.

    Raises:
        ConfigError: the key is missing, the URL is none, or a setting names a field that comes from the log.
    """

    package: ClassVar[str]
    """The SDK, which is also the name of the extra."""

    ours: ClassVar[frozenset[str]]
    """Fields of a body that no setting may name."""

    def __init__(
        self,
        model: str,
        provider: str,
        place: Provider,
        *,
        base_url: str | None,
        api_key: str | None,
        settings: Mapping[str, Json],
        timeout: float,
    ) -> None:
        self._base_url = checked_url(base_url or place.url, place)
        self._local = is_loopback(self._base_url)
        self._key = checked_key(api_key or (NO_KEY if self._local else ""), place, provider)
        self._model = model
        self._provider = provider
        self._settings = checked_settings(settings, self.ours)
        self._timeout = timeout
        self._endpoint = Endpoint(f"{provider}:{model}", self._base_url, self._key, place)
        self._client: Any = None
        self._connecting = threading.Lock()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._endpoint.name} at {self._endpoint.url}>"

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

    @abc.abstractmethod
    def body(self, request: ModelRequest) -> dict[str, Json]:
        """The request as it goes over the wire."""

    @abc.abstractmethod
    def _reader(self, request: ModelRequest) -> StreamReader:
        """What reads the answer to `request`."""

    @abc.abstractmethod
    def _new_client(self, options: dict[str, Any]) -> Any:
        """The SDK's client, made with `options` and what is its own."""

    def _headers(self) -> dict[str, Any]:
        """Headers of a request beside the SDK's."""
        return {}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta]:
        """Send the request when the first delta is pulled, and stream the answer.

        Raises:
            ModelError: see `endpoint_errors`.
        """
        reader = self._reader(request)
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

    async def _events(self, body: dict[str, Json], reader: StreamReader) -> AsyncGenerator[object]:
        """Send the body once and give the events of the stream as they are (rule 3)."""
        client = await asyncio.to_thread(self._connect)
        sdk = importlib.import_module(self.package)
        try:
            stream = await client.post(
                self._endpoint.provider.path,
                cast_to=object,
                body=body,
                options={"headers": self._headers(), "follow_redirects": False},
                stream=True,
                stream_cls=sdk.AsyncStream[object],
            )
            async with stream:
                async for event in stream:
                    yield event
                content_type = stream.response.headers.get("content-type", "")
        except Exception as error:  # noqa: BLE001 - the SDK's own and its transport's; see rule 3
            raise self._model_error(sdk, error) from None
        if not reader.chunks and "event-stream" not in content_type:
            raise errors.no_stream_error(self._endpoint, content_type)

    def _connect(self) -> Any:
        """The client, made once. Runs in a thread (rule 2)."""
        try:
            sdk = importlib.import_module(self.package)
        except ImportError as error:
            raise ModelError(
                f"{self._endpoint.name} lacks its SDK: {error}", code="NOT_INSTALLED", next_act=install(self.package)
            ) from None
        with self._connecting:
            if self._client is None:
                options = {
                    "api_key": self._key,
                    "base_url": self._base_url,
                    "max_retries": 0,
                    "timeout": sdk.Timeout(self._timeout, connect=CONNECT_SECONDS),
                    "http_client": sdk.DefaultAsyncHttpxClient(trust_env=False) if self._local else None,
                }
                self._client = self._new_client(options)
            return self._client

    def _model_error(self, sdk: ModuleType, error: Exception) -> ModelError:
        if isinstance(error, sdk.APIStatusError):
            status, said = error.status_code, errors.said(error.body)
            if status < 300:  # it came inside a stream that had begun well
                return errors.stream_error(self._endpoint, said)
            return errors.status_error(self._endpoint, status, error.response.headers, said, time.time())
        if isinstance(error, sdk.APIConnectionError):
            cause = error.__cause__ or error
            return errors.connection_error(self._endpoint, str(cause) or type(cause).__name__)
        if isinstance(error, sdk.APIError):
            return errors.stream_error(self._endpoint, errors.said(error.body))
        if isinstance(error, ValueError | RecursionError):
            return errors.malformed_error(self._endpoint, str(error))
        return errors.connection_error(self._endpoint, f"{type(error).__name__}: {error}")
