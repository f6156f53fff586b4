"""Models behind the OpenAI chat-completions form, through the official SDK: `openai:MODEL` and `deepseek:MODEL`.

What is on the wire stands in `openai_wire`, how the SDK is used in `sdk`, which failure is which in `endpoint_errors`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from fencepost.core.events import Json
from fencepost.core.projection import ModelRequest
from fencepost.plugins.endpoint import Provider, read_spec
from fencepost.plugins.openai_wire import OURS, ChunkReader, chat_body
from fencepost.plugins.sdk import SILENCE_SECONDS, SdkModel

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PATH: Final = "/chat/completions"

PROVIDERS: Final[Mapping[str, Provider]] = {
    "openai": Provider("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL", PATH),
    "deepseek": Provider("https://api.deepseek.com", "DEEPSEEK_API_KEY", "DEEPSEEK_BASE_URL", PATH),
}


def open_model(spec: str, environ: Mapping[str, str], settings: Mapping[str, Json] | None = None) -> OpenAIModel:
    """The model that `openai:NAME` or `deepseek:NAME` names, configured by its provider's environment variables.

    Raises:
        UsageError: the name is missing or the provider is not one of `PROVIDERS`.
        ConfigError: the key is missing, the URL is none, or the SDK is not installed; the message says which.
    """
    named = read_spec(spec, environ, PROVIDERS, OpenAIModel.package)
    return OpenAIModel(
        named.model, base_url=named.base_url, api_key=named.api_key, provider=named.provider, settings=settings
    )


class OpenAIModel(SdkModel):
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

    package: ClassVar[str] = "openai"
    ours: ClassVar[frozenset[str]] = OURS

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
        rename = {"max_tokens": "max_completion_tokens"} if base_url is None and provider == "openai" else {}
        super().__init__(
            model,
            provider,
            PROVIDERS.get(provider) or _compatible(provider),
            base_url=base_url,
            api_key=api_key,
            settings={rename.get(name, name): value for name, value in (settings or {}).items()},
            timeout=timeout,
        )

    def body(self, request: ModelRequest) -> dict[str, Json]:
        """The request as it goes over the wire."""
        return chat_body(request)

    def _reader(self, request: ModelRequest) -> ChunkReader:  # noqa: ARG002 - any chunk may be read by itself
        return ChunkReader()

    def _new_client(self, options: dict[str, Any]) -> AsyncOpenAI:
        from openai import AsyncOpenAI

        return AsyncOpenAI(**options)

    def _headers(self) -> dict[str, Any]:
        """The SDK adds what the environment holds for OpenAI to every request. It is nobody else's to see."""
        if self._provider == "openai":
            return {}
        from openai import Omit

        lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
        ambient = [name.strip() for name, colon, _ in (line.partition(":") for line in lines) if colon]
        headers: dict[str, Any] = {name: Omit() for name in (*ambient, "OpenAI-Organization", "OpenAI-Project")}
        return {**headers, "Authorization": f"Bearer {self._key}"}


def _compatible(name: str) -> Provider:
    return Provider("", f"{name.upper()}_API_KEY", f"{name.upper()}_BASE_URL", PATH)
