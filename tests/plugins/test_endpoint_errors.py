"""Which failure is which, and which may be retried: the table."""

import pytest

from fencepost.plugins.endpoint import Endpoint, Provider, without_credentials
from fencepost.plugins.endpoint_errors import retry_after, said, status_error, stream_error

KEY = "sk-secret-0123456789"
WHERE = Endpoint(
    "openai:gpt-5",
    "https://me:pass-word@api.example/v1?token=abc",
    KEY,
    Provider("https://api.example/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL", "/chat/completions"),
)


def failed(status, error=None, headers=None):
    return status_error(WHERE, status, headers or {}, error, now=0.0)


@pytest.mark.parametrize(
    ("status", "error", "code", "retryable"),
    [
        (400, {"message": "bad"}, "BAD_REQUEST", False),
        (400, {"message": "x", "code": "context_length_exceeded"}, "CONTEXT_TOO_LONG", False),
        (400, {"message": "This model's maximum context length is 8192 tokens"}, "CONTEXT_TOO_LONG", False),
        (401, {"message": "who are you"}, "AUTH", False),
        (402, {"message": "Insufficient Balance"}, "QUOTA", False),
        (403, None, "AUTH", False),
        (404, {"message": "no such model"}, "NOT_FOUND", False),
        (405, None, "BAD_REQUEST", False),
        (408, None, "TIMEOUT", True),
        (409, None, "CONFLICT", True),
        (413, None, "CONTEXT_TOO_LONG", False),
        (422, {"detail": "field required"}, "BAD_REQUEST", False),
        (429, {"message": "slow down"}, "RATE_LIMITED", True),
        (429, {"message": "pay", "code": "insufficient_quota"}, "QUOTA", False),
        (500, None, "SERVER", True),
        (502, "<html>Bad gateway</html>", "SERVER", True),
        (503, "overloaded", "SERVER", True),
        (529, {}, "OVERLOADED", True),
        (307, None, "REDIRECT", False),
    ],
)
def test_statuses(status, error, code, retryable):
    failure = failed(status, error)
    assert (failure.code, failure.retryable, failure.status) == (code, retryable, status)


@pytest.mark.parametrize(
    ("told", "status", "retryable"), [("false", 429, False), ("true", 400, True), ("x", 500, True)]
)
def test_an_endpoint_that_knows_better_is_believed(told, status, retryable):
    assert failed(status, None, {"x-should-retry": told}).retryable is retryable


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:30 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:05 GMT"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:01:00 GMT", "date": "Thu, 01 Jan 1970 00:00:55 GMT"}, 5.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "inf", "retry-after": "2"}, 2.0),
        ({"retry-after": "Thu, 99 Jan 1970 00:00:00 GMT"}, None),
    ],
)
def test_how_long_to_wait(headers, seconds):
    assert retry_after(headers, now=10.0) == seconds


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        ({"message": "overloaded", "type": "server_error"}, "PROVIDER_ERROR", True),
        ("something broke", "PROVIDER_ERROR", True),
        ({"message": "slow", "code": 429}, "RATE_LIMITED", True),
        ({"message": "gone", "code": "502"}, "SERVER", True),
        ({"message": "bad", "code": 400}, "BAD_REQUEST", False),
        ({"message": "bad", "type": "invalid_request_error"}, "BAD_REQUEST", False),
        ({"message": "pay", "code": "insufficient_quota"}, "QUOTA", False),
        (
            {"message": "long", "code": "context_length_exceeded", "type": "invalid_request_error"},
            "CONTEXT_TOO_LONG",
            False,
        ),
        ({"message": "Overloaded", "type": "overloaded_error"}, "OVERLOADED", True),
        ({"message": "slow", "type": "rate_limit_error"}, "RATE_LIMITED", True),
        ({"message": "oops", "type": "api_error"}, "PROVIDER_ERROR", True),
        ({"message": "pay", "type": "billing_error"}, "QUOTA", False),
        ({"message": "no", "type": "permission_error"}, "AUTH", False),
        ({"message": "prompt is too long: 3 > 2", "type": "invalid_request_error"}, "CONTEXT_TOO_LONG", False),
    ],
)
def test_errors_inside_a_stream(error, code, retryable):
    failure = stream_error(WHERE, error)
    assert (failure.code, failure.retryable) == (code, retryable)


@pytest.mark.parametrize(
    ("status", "names"),
    [(401, "OPENAI_API_KEY"), (402, "OPENAI_API_KEY"), (404, "OPENAI_BASE_URL"), (307, "OPENAI_BASE_URL")],
)
def test_what_to_do_names_the_variable(status, names):
    assert names in failed(status, None, {"location": "https://other.example/v1/chat/completions"}).explain()


def test_a_redirect_says_where_to():
    failure = failed(308, None, {"location": "https://other.example/v1/chat/completions?x=1"})
    assert failure.next_act == "Set OPENAI_BASE_URL to where it points: https://other.example/v1"


@pytest.mark.parametrize(
    "error",
    [
        {"message": f"Incorrect API key provided: {KEY}", "code": KEY},
        f"Authorization: Bearer {KEY}",
        {"message": "pass-word"},
        {"detail": f"x{KEY}y"},
    ],
)
def test_no_secret_comes_back_in_an_error(error):
    for failure in (failed(401, error, {"location": f"https://a/{KEY}"}), stream_error(WHERE, error)):
        assert KEY not in failure.explain()
        assert "pass-word" not in failure.explain()


def test_a_sentence_stays_short_and_on_one_line():
    failure = failed(500, {"message": "a\nb " * 5000})
    assert len(str(failure)) < 500
    assert "\n" not in str(failure)


def test_a_url_is_shown_without_what_is_secret_in_it():
    assert without_credentials("https://me:pass@api.example:8443/v1?token=abc") == "https://api.example:8443/v1"
    assert "pass" not in without_credentials("me:pass@api.example") + without_credentials("http://me:pass@[::1")
    assert repr(WHERE) == "<Endpoint openai:gpt-5 at https://api.example/v1>"


@pytest.mark.parametrize("body", [{"message": "m"}, {"type": "error", "error": {"message": "m"}}])
def test_an_error_is_found_with_and_without_what_is_around_it(body):
    assert said(body) == {"message": "m"}
