"""What went wrong between us and an endpoint of the chat-completions form, as a `ModelError`. No IO.

Which failures may be retried is decided here and nowhere else:

    retryable       a lost or refused connection, a timeout, 408, 409, 429, 5xx, a stream that broke off or is malformed
    not retryable   other 4xx, a redirect, an exhausted quota, an answer that is no event stream at all

`x-should-retry`, which OpenAI sends where it knows better, wins over the status. Sentences never hold the key.
"""

from __future__ import annotations

import email.utils
import math
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from fencepost.errors import ModelError

SENTENCE: Final = 400
"""Letters of a provider's own words that go into a sentence of ours."""

CODES: Final[Mapping[int, str]] = {
    401: "AUTH",
    402: "QUOTA",
    403: "AUTH",
    404: "NOT_FOUND",
    408: "TIMEOUT",
    409: "CONFLICT",
    413: "CONTEXT_TOO_LONG",
    429: "RATE_LIMITED",
}

TOO_LONG: Final = ("context_length_exceeded", "maximum context length")
"""The code, and the words where there is no code, with which a provider says that the transcript is too long."""

LASTING: Final[Mapping[str, str]] = {
    "insufficient_quota": "QUOTA",
    "invalid_api_key": "AUTH",
    "authentication_error": "AUTH",
    "invalid_request_error": "BAD_REQUEST",
    "model_not_found": "NOT_FOUND",
    "context_length_exceeded": "CONTEXT_TOO_LONG",
}
"""Error codes inside a stream that say: the same request will fail again."""


class Endpoint:
    """Where requests go, in words that hold no secret.

    Attributes:
        name: the model, as people write it (`openai:gpt-5`).
        url: the base URL without user and password.
        key_variable: the environment variable that holds the key.
        url_variable: the environment variable that sets the base URL.
    """

    def __init__(self, name: str, url: str, key: str, key_variable: str, url_variable: str) -> None:
        self.name = name
        self.url = without_credentials(url)
        self.key_variable = key_variable
        self.url_variable = url_variable
        secrets = {key, urlsplit(url).password or ""}
        self._secrets = tuple(secret for secret in secrets if len(secret) > 3)

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


def connection_error(endpoint: Endpoint, reason: str) -> ModelError:
    """Nothing, or not everything, came back."""
    return ModelError(
        f"the connection to {endpoint.name} at {endpoint.url} failed: {endpoint.clean(reason)}",
        code="CONNECTION",
        retryable=True,
        next_act=f"Check the network and {endpoint.url_variable}",
    )


def malformed_error(endpoint: Endpoint, reason: str) -> ModelError:
    """Something came back that does not have the form."""
    return ModelError(
        f"the stream of {endpoint.name} is malformed: {endpoint.clean(reason)}", code="MALFORMED_STREAM", retryable=True
    )


def no_stream_error(endpoint: Endpoint, content_type: str) -> ModelError:
    """An answer of 200 that is something else: the page of a proxy, or of a wrong URL."""
    return ModelError(
        f"{endpoint.url} answered with {endpoint.clean(content_type) or 'nothing'} instead of an event stream",
        code="MALFORMED_STREAM",
        next_act=f"Check {endpoint.url_variable}: it is the URL that /chat/completions is added to",
    )


def status_error(endpoint: Endpoint, status: int, headers: Mapping[str, str], error: object, now: float) -> ModelError:
    """The endpoint said no.

    Args:
        endpoint: who said it.
        status: HTTP status, 300 or above.
        headers: of the response, looked up in lower case.
        error: the error object of the body, or whatever the body was.
        now: seconds since the epoch, for a Retry-After that is a date.
    """
    code, retryable = _judge(status, error)
    told = headers.get("x-should-retry", "").lower()
    if told in {"true", "false"}:
        retryable = told == "true"
    return ModelError(
        f"{endpoint.name} answered {status}{_said(endpoint, error)}",
        code=code,
        retryable=retryable,
        status=status,
        retry_after=retry_after(headers, now),
        next_act=_next_act(endpoint, code, headers),
    )


def stream_error(endpoint: Endpoint, error: object) -> ModelError:
    """The endpoint said no inside a stream that had begun well: most often it is overloaded, so retryable."""
    status = _status(_field(error, "code"))
    code, retryable = _judge(status, error) if status else ("PROVIDER_ERROR", True)
    if not status:
        lasting = LASTING.get(_field(error, "code")) or LASTING.get(_field(error, "type"))
        code, retryable = (lasting, False) if lasting else (code, retryable)
    return ModelError(
        f"{endpoint.name} broke off its stream{_said(endpoint, error)}",
        code=code,
        retryable=retryable,
        status=status or None,
        next_act=_next_act(endpoint, code, {}),
    )


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the endpoint asks us to wait, from `retry-after-ms` or Retry-After (seconds or a date)."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after", "")
    seconds = _number(value)
    if seconds is not None or not value:
        return seconds
    try:
        date = email.utils.parsedate_to_datetime(value)
        sent = email.utils.parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else now
        return max(0.0, date.timestamp() - sent)
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def _judge(status: int, error: object) -> tuple[str, bool]:
    """The code, and whether the same request may be sent again."""
    if status < 400:
        return "REDIRECT", False
    if status >= 500:
        return "SERVER", True
    if "insufficient_quota" in {_field(error, "code"), _field(error, "type")}:
        return "QUOTA", False
    if status in {400, 422} and any(mark in f"{_field(error, 'code')} {_message(error)}" for mark in TOO_LONG):
        return "CONTEXT_TOO_LONG", False
    return CODES.get(status, "BAD_REQUEST"), status in {408, 409, 429}


def _next_act(endpoint: Endpoint, code: str, headers: Mapping[str, str]) -> str | None:
    match code:
        case "AUTH":
            return f"Check the key in {endpoint.key_variable}"
        case "QUOTA":
            return f"Check the plan and the balance behind {endpoint.key_variable}"
        case "NOT_FOUND":
            return f"Check the model's name and {endpoint.url_variable} (now {endpoint.url})"
        case "REDIRECT":
            target = without_credentials(headers.get("location", "")).removesuffix("/chat/completions")
            return f"Set {endpoint.url_variable} to where it points: {endpoint.clean(target) or 'it does not say'}"
        case "CONTEXT_TOO_LONG":
            return "Compact the session, or start another one"
    return None


def _said(endpoint: Endpoint, error: object) -> str:
    code = _field(error, "code") or _field(error, "type")
    message = _message(error)
    return (f" ({endpoint.clean(code)})" if code else "") + (f": {endpoint.clean(message)}" if message else "")


def _message(error: object) -> str:
    if isinstance(error, str):
        return "a page of HTML" if error.lstrip().startswith("<") else error
    return _field(error, "message") or _field(error, "detail")


def _field(error: object, name: str) -> str:
    value = error.get(name) if isinstance(error, dict) else None
    return str(value) if isinstance(value, str | int) else ""


def _status(code: str) -> int:
    return int(code) if len(code) == 3 and code.isascii() and code.isdigit() and code[0] in "45" else 0
