"""`anthropic:MODEL`: what is configured, and what the environment must not change."""

import json
import os
import subprocess
import sys

import pytest
from tests.plugins import asking
from tests.plugins.asking import KEY, messages
from tests.plugins.transcripts import request

from fencepost.errors import ConfigError, UsageError
from fencepost.plugins.anthropic import MAX_TOKENS, AnthropicModel, open_model
from fencepost.runtime.models import Model
from fencepost.testing import ModelServer


def test_it_is_a_model():
    model = open_model("anthropic:claude-x", {"ANTHROPIC_API_KEY": KEY})
    assert isinstance(model, Model)
    assert (model.provider, model.model) == ("anthropic", "claude-x")
    assert repr(model) == "<AnthropicModel anthropic:claude-x at https://api.anthropic.com>"
    assert model.settings == {"max_tokens": MAX_TOKENS, "cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    ("given", "recorded"),
    [
        ({"max_tokens": 100, "temperature": 0.5}, {"max_tokens": 100, "temperature": 0.5}),
        ({"thinking": {"type": "adaptive"}}, {"max_tokens": MAX_TOKENS, "thinking": {"type": "adaptive"}}),
        (
            {"thinking": {"type": "enabled", "budget_tokens": 4096}},
            {"max_tokens": MAX_TOKENS + 4096, "thinking": {"type": "enabled", "budget_tokens": 4096}},
        ),
        ({"cache_control": False}, {"max_tokens": MAX_TOKENS}),
    ],
)
def test_settings_are_recorded_as_they_are_sent(given, recorded):
    model = AnthropicModel("any", base_url="http://127.0.0.1:1", settings=given)
    assert model.settings == recorded
    sent = model.body(request(provider="anthropic", settings=model.settings))
    assert {name: sent[name] for name in recorded} == recorded
    assert "cache_control" not in sent


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream", "system"])
def test_no_setting_may_replace_what_comes_from_the_log(name):
    with pytest.raises(ConfigError, match=name):
        AnthropicModel("any", api_key=KEY, settings={name: 1})


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({}, "Set ANTHROPIC_API_KEY, or ANTHROPIC_BASE_URL to an endpoint on this machine"),
        ({"ANTHROPIC_API_KEY": " "}, "ANTHROPIC_API_KEY is not set"),
        ({"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": "x"}, "/v1/messages is added to, such as http://127.0.0.1"),
        ({"ANTHROPIC_API_KEY": "sk-\u00e4"}, "ANTHROPIC_API_KEY"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_sent(environ, says):
    with pytest.raises(ConfigError) as caught:
        open_model("anthropic:x", environ)
    assert says in caught.value.explain()
    assert KEY not in caught.value.explain()


@pytest.mark.parametrize("spec", ["anthropic:", "anthropic", "openai:x"])
def test_a_spec_that_names_no_model(spec):
    with pytest.raises(UsageError, match="anthropic:MODEL"):
        open_model(spec, {})


def test_the_key_is_sent_and_shown_nowhere():
    with ModelServer(["hello"]) as server:
        asking.ask(server, request(provider="anthropic", settings={"max_tokens": 9}), make=messages)
        model = messages(server)
    assert KEY in str(server.headers[0])
    assert KEY not in f"{model!r} {model.settings} {model.body(request())}"
    assert KEY.encode() not in server.requests[0]


CHILD = """
import asyncio, os, sys
from fencepost.plugins.anthropic import open_model
from tests.plugins.transcripts import request

async def main():
    loaded = "anthropic" in sys.modules
    model = open_model("anthropic:any", os.environ)
    try:
        async for _ in model.stream(request(provider="anthropic", settings=model.settings)):
            pass
    finally:
        await model.close()
    print(loaded, "anthropic" in sys.modules)

asyncio.run(main())
"""


def test_other_credentials_of_the_environment_are_not_sent_and_no_proxy_is_asked(tmp_path):
    """The SDK looks for tokens and profiles of its own; an endpoint on this machine gets none of them."""
    (tmp_path / "configs").mkdir()
    with ModelServer(["hello"]) as server:
        environ = {
            **os.environ,
            "ANTHROPIC_BASE_URL": server.anthropic_url,
            "ANTHROPIC_AUTH_TOKEN": "token-of-somebody",
            "ANTHROPIC_CONFIG_DIR": str(tmp_path),
            "HTTP_PROXY": "http://127.0.0.1:1",
            "ALL_PROXY": "http://127.0.0.1:1",
        }
        environ.pop("ANTHROPIC_API_KEY", None)
        done = subprocess.run([sys.executable, "-c", CHILD], env=environ, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False True\n", "")
    assert "token-of-somebody" not in str(server.headers)
    assert json.loads(server.requests[0])["stream"] is True
