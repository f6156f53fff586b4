"""What went wrong between us and a model's endpoint, as a `ModelError`. No IO.

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

from fencepost.errors import ModelError
from fencepost.plugins.endpoint import Endpoint, without_credentials

CODES: Final[Mapping[int, str]] = {
    401: "AUTH",
    402: "QUOTA",
    403: "AUTH",
    404: "NOT_FOUND",
    408: "TIMEOUT",
    409: "CONFLICT",
    413: "CONTEXT_TOO_LONG",
    429: "RATE_LIMITED",
    529: "OVERLOADED",
}

TOO_LONG: Final = ("context_length_exceeded", "maximum context length", "prompt is too long", "available context size")
"""The code, and the words where there is no code, with which a provider says that the transcript is too long."""

LASTING: Final[Mapping[str, str]] = {
    "insufficient_quota": "QUOTA",
    "billing_error": "QUOTA",
    "permission_error": "AUTH",
    "not_found_error": "NOT_FOUND",
    "request_too_large": "CONTEXT_TOO_LONG",
    "invalid_api_key": "AUTH",
    "authentication_error": "AUTH",
    "invalid_request_error": "BAD_REQUEST",
    "model_not_found": "NOT_FOUND",
    "context_length_exceeded": "CONTEXT_TOO_LONG",
}
"""Error codes inside a stream that say: the same request will fail again."""

PASSING: Final[Mapping[str, str]] = {
    "rate_limit_error": "RATE_LIMITED",
    "overloaded_error": "OVERLOADED",
    "timeout_error": "TIMEOUT",
}
"""Error codes inside a stream that have a name of their own, and pass."""


def connection_error(endpoint: Endpoint, reason: str) -> ModelError:
    """Nothing, or not everything, came back."""
    return ModelError(
        f"the connection to {endpoint.name} at {endpoint.url} failed: {endpoint.clean(reason)}",
        code="CONNECTION",
        retryable=True,
        next_act=f"Check the network and {endpoint.provider.url_variable}",
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
        next_act=f"Check {endpoint.provider.url_variable}: it is the URL that {endpoint.provider.path} is added to",
    )


def said(body: object) -> object:
    """The error object of a body: some SDKs give it, some give what is around it."""
    inner = body.get("error") if isinstance(body, dict) else None
    return body if inner is None else inner


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
        f"{endpoint.name} answered {status}{_words(endpoint, error)}",
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
        names = (_field(error, "code"), _field(error, "type"))
        lasting = next((LASTING[name] for name in names if name in LASTING), None)
        if lasting == "BAD_REQUEST" and _is_too_long(error):
            lasting = "CONTEXT_TOO_LONG"
        passing = next((PASSING[name] for name in names if name in PASSING), code)
        code, retryable = (lasting, False) if lasting else (passing, True)
    return ModelError(
        f"{endpoint.name} broke off its stream{_words(endpoint, error)}",
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
        return CODES.get(status, "SERVER"), True
    if "insufficient_quota" in {_field(error, "code"), _field(error, "type")}:
        return "QUOTA", False
    if status in {400, 422} and _is_too_long(error):
        return "CONTEXT_TOO_LONG", False
    return CODES.get(status, "BAD_REQUEST"), status in {408, 409, 429}


def _is_too_long(error: object) -> bool:
    return any(mark in f"{_field(error, 'code')} {_message(error)}" for mark in TOO_LONG)


def _next_act(endpoint: Endpoint, code: str, headers: Mapping[str, str]) -> str | None:
    match code:
        case "AUTH":
            return f"Check the key in {endpoint.provider.key_variable}"
        case "QUOTA":
            return f"Check the plan and the balance behind {endpoint.provider.key_variable}"
        case "NOT_FOUND":
            return f"Check the model's name and {endpoint.provider.url_variable} (now {endpoint.url})"
        case "REDIRECT":
            target = without_credentials(headers.get("location", "")).removesuffix(endpoint.provider.path)
            where = endpoint.clean(target) or "it does not say"
            return f"Set {endpoint.provider.url_variable} to where it points: {where}"
        case "CONTEXT_TOO_LONG":
            return "Compact the session, or start another one"
    return None


def _words(endpoint: Endpoint, error: object) -> str:
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
