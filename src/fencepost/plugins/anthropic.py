"""Models behind Anthropic's messages, through the official SDK: `anthropic:MODEL`.

What is on the wire stands in `anthropic_wire` and `anthropic_events`, how the SDK is used in `sdk`, which failure is
which in `endpoint_errors`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from fencepost.core.events import Json
from fencepost.core.projection import ModelRequest
from fencepost.plugins.anthropic_events import MessageReader
from fencepost.plugins.anthropic_wire import OURS, PROVIDER, messages_body
from fencepost.plugins.endpoint import Provider, read_spec
from fencepost.plugins.sdk import SILENCE_SECONDS, SdkModel

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

PROVIDERS: Final[Mapping[str, Provider]] = {
    PROVIDER: Provider("https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "/v1/messages"),
}

MAX_TOKENS: Final = 8192
"""Tokens of an answer, beside those of a thinking budget, where the settings do not say; the form demands a number."""


def open_model(spec: str, environ: Mapping[str, str], settings: Mapping[str, Json] | None = None) -> AnthropicModel:
    """The model that `anthropic:NAME` names, configured by the environment.

    Raises:
        UsageError: the name is missing.
        ConfigError: the key is missing, the URL is none, or the SDK is not installed; the message says which.
    """
    named = read_spec(spec, environ, PROVIDERS, AnthropicModel.package)
    return AnthropicModel(named.model, base_url=named.base_url, api_key=named.api_key, settings=settings)


class AnthropicModel(SdkModel):
    """One model of Anthropic, or of an endpoint that speaks the same form.

    Settings go over the wire under the names they are given (`max_tokens`, `temperature`, `thinking` …), and what is
    recorded is what is sent. `thinking = {type = "adaptive"}` lets newer models think; older ones want
    `{type = "enabled", budget_tokens = N}`, which is left out of a request whose turn began without thinking.
    Two have a default: `max_tokens`; and `cache_control`, with which Anthropic's own endpoint keeps what it has read
    of a session (`false` turns that off).

    Args:
        model: the provider's name of the model.
        base_url: what `/v1/messages` is added to; None for the provider's own.
        api_key: the key; may be None for an endpoint on this machine only.
        settings: what else shapes requests.
        timeout: seconds for which the stream may be silent.

    Raises:
        ConfigError: see `open_model`; or a setting names a field that comes from the log.
    """

    package: ClassVar[str] = "anthropic"
    ours: ClassVar[frozenset[str]] = OURS

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        settings: Mapping[str, Json] | None = None,
        timeout: float = SILENCE_SECONDS,
    ) -> None:
        super().__init__(
            model,
            PROVIDER,
            PROVIDERS[PROVIDER],
            base_url=base_url,
            api_key=api_key,
            settings=with_defaults(settings or {}, caches=base_url is None),
            timeout=timeout,
        )

    def body(self, request: ModelRequest) -> dict[str, Json]:
        """The request as it goes over the wire."""
        return messages_body(request)

    def _reader(self, request: ModelRequest) -> MessageReader:
        return MessageReader(request.model)

    def _new_client(self, options: dict[str, Any]) -> AsyncAnthropic:
        from anthropic import AsyncAnthropic

        return AsyncAnthropic(**options)


def with_defaults(settings: Mapping[str, Json], *, caches: bool) -> dict[str, Json]:
    """The settings with what the form demands, and what an agent's long transcript wants.

    Args:
        settings: as they were given.
        caches: whether the endpoint is known to keep prompts.
    """
    whole: dict[str, Json] = {"max_tokens": MAX_TOKENS + _budget(settings.get("thinking"))}
    if caches:
        whole["cache_control"] = {"type": "ephemeral"}
    whole.update(settings)
    if whole.get("cache_control") is False:
        del whole["cache_control"]
    return whole


def _budget(thinking: Json) -> int:
    tokens = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return tokens if isinstance(tokens, int) else 0
