"""Where a model's requests go, and what is configured for it: a URL, a key, settings. No IO.

Rules:
    1. What is missing or cannot be right is named here, before anything is sent: the variable, and what to set it to.
    2. The key is in nothing that is shown. `Endpoint.clean` takes it out of other people's words too.
    3. An endpoint on this machine works without a key; every other one needs one.
"""

from __future__ import annotations

import importlib.util
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from fencepost.core.events import Json
from fencepost.errors import ConfigError, UsageError

SENTENCE: Final = 400
"""Letters of somebody else's words that go into a sentence of ours."""

NO_KEY: Final = "none"
"""What an endpoint on this machine is sent in place of a key; the forms demand one."""


class Provider(msgspec.Struct, frozen=True):
    """One provider: its base URL, the variables that configure it, and what is added to the URL for a request."""

    url: str
    key_variable: str
    url_variable: str
    path: str


class Named(msgspec.Struct, frozen=True):
    """What `SCHEME:MODEL` and the environment say."""

    provider: str
    model: str
    base_url: str | None
    api_key: str | None


def read_spec(spec: str, environ: Mapping[str, str], providers: Mapping[str, Provider], package: str) -> Named:
    """The model that `spec` names, configured by its provider's environment variables.

    Args:
        spec: `SCHEME:MODEL`.
        environ: where the provider's variables are.
        providers: the schemes of this form.
        package: the SDK that it needs, which is also the name of the extra.

    Raises:
        UsageError: the name is missing, or the scheme is not one of `providers`.
        ConfigError: the SDK is not installed.
    """
    scheme, _, name = spec.partition(":")
    if scheme not in providers or not name.strip():
        known = ", ".join(f"{known}:MODEL" for known in providers)
        raise UsageError(f"{spec!r} names no model of this form ({known})")
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"{spec} needs the package `{package}`", next_act=install(package))
    provider = providers[scheme]
    return Named(
        scheme,
        name.strip(),
        environ.get(provider.url_variable, "").strip() or None,
        environ.get(provider.key_variable, "").strip() or None,
    )


def install(extra: str) -> str:
    """What to do where an extra is missing."""
    return f"Run `pip install 'fencepost[{extra}]'`"


class Endpoint:
    """Where requests go, in words that hold no secret.

    Attributes:
        name: the model, as people write it (`openai:gpt-5`).
        url: the base URL without user and password.
        provider: what configures it.
    """

    def __init__(self, name: str, url: str, key: str, provider: Provider) -> None:
        self.name = name
        self.url = without_credentials(url)
        self.provider = provider
        secrets = {key, urlsplit(url).password or ""}
        self._secrets = tuple(secret for secret in secrets if len(secret) > 3 and secret != NO_KEY)

    def __repr__(self) -> str:
        return f"<Endpoint {self.name} at {self.url}>"

    def clean(self, text: str) -> str:
        """One short line of somebody else's words, without our secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        line = " ".join(text.split())
        return line if len(line) <= SENTENCE else f"{line[:SENTENCE]}…"


def without_credentials(url: str) -> str:
    """The URL as it may be shown: without user, password and query."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "a URL that cannot be read"
    if "@" in url and not parts.netloc:
        return "a URL without a host"
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))


# --- what is configured -----------------------------------------------------------------------------------------


def checked_url(url: str, provider: Provider) -> str:
    """The base URL.

    Raises:
        ConfigError: it is none; names the variable.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"{provider.url_variable}: {without_credentials(url)!r} is no http or https URL",
            next_act=f"Give the URL that {provider.path} is added to, such as {_example(provider)}",
        )
    return url


def _example(provider: Provider) -> str:
    return "http://127.0.0.1:8080" + ("" if provider.path.startswith("/v1/") else "/v1")


def checked_key(key: str, provider: Provider, name: str) -> str:
    """The key.

    Raises:
        ConfigError: there is none, or no header can carry it; names the variable.
    """
    if not key:
        raise ConfigError(
            f"no key for {name}: {provider.key_variable} is not set",
            next_act=f"Set {provider.key_variable}, or {provider.url_variable} to an endpoint on this machine",
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"{provider.key_variable} holds a character that no header can carry")
    return key


def checked_settings(settings: Mapping[str, Json], ours: frozenset[str]) -> dict[str, Json]:
    """The settings of requests.

    Raises:
        ConfigError: one names a field that comes from the log.
    """
    taken = sorted(ours.intersection(settings))
    if taken:
        raise ConfigError(f"settings may not hold {', '.join(taken)}: that comes from the session")
    return dict(settings)


def is_loopback(url: str) -> bool:
    """Whether a URL leads to this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
