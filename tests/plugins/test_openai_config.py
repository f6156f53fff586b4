"""Models over real HTTP: what is configured, and what the environment must not change."""

import asyncio
import json
import os
import subprocess
import sys

import pytest
from tests.plugins.asking import KEY, ask, fail, text
from tests.plugins.transcripts import Talk, request

from fencepost.errors import ConfigError, UsageError
from fencepost.plugins.openai import OpenAIModel, open_model
from fencepost.runtime.models import Model
from fencepost.testing import ModelServer

# --- what is configured -----------------------------------------------------------------------------------------


def test_the_key_is_sent_and_shown_nowhere():
    with ModelServer(["hello"]) as server:
        ask(server)
        model = OpenAIModel("any", base_url=server.url, api_key=KEY)
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in f"{model!r} {model.settings} {model.body(request())}"
    assert KEY.encode() not in server.requests[0]


def test_the_sdk_does_not_retry():
    fault = {"kind": "status", "status": 500}
    with ModelServer([[{"fault": fault}, "second attempt"]]) as server:
        _, error = fail(server)
    assert (error.code, len(server.requests)) == ("SERVER", 1)


def test_it_is_a_model():
    model = open_model("openai:gpt-5", {"OPENAI_API_KEY": KEY})
    assert isinstance(model, Model)
    assert (model.provider, model.model, model.settings) == ("openai", "gpt-5", {})
    assert repr(model) == "<OpenAIModel openai:gpt-5 at https://api.openai.com/v1>"


def test_deepseek_has_its_own_key_and_endpoint():
    model = open_model("deepseek:deepseek-chat", {"DEEPSEEK_API_KEY": KEY, "OPENAI_BASE_URL": "http://127.0.0.1:1"})
    assert (model.provider, model.model) == ("deepseek", "deepseek-chat")
    assert repr(model) == "<OpenAIModel deepseek:deepseek-chat at https://api.deepseek.com>"


@pytest.mark.parametrize(
    ("spec", "environ", "says"),
    [
        ("openai:gpt-5", {}, "OPENAI_API_KEY"),
        ("openai:gpt-5", {"OPENAI_API_KEY": "  "}, "OPENAI_API_KEY"),
        ("deepseek:x", {"OPENAI_API_KEY": KEY}, "DEEPSEEK_API_KEY"),
        ("openai:gpt-5", {"OPENAI_BASE_URL": "https://models.example/v1"}, "OPENAI_API_KEY"),
        ("openai:gpt-5", {"OPENAI_API_KEY": "sk-\u00e4"}, "OPENAI_API_KEY"),
        ("openai:gpt-5", {"OPENAI_API_KEY": "sk-a\nb"}, "OPENAI_API_KEY"),
        ("openai:gpt-5", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "models.example/v1"}, "OPENAI_BASE_URL"),
        ("openai:gpt-5", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://[::1"}, "OPENAI_BASE_URL"),
        ("openai:gpt-5", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "http://a:99999"}, "OPENAI_BASE_URL"),
        ("openai:gpt-5", {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": "ftp://me:pw@a"}, "OPENAI_BASE_URL"),
        ("deepseek:x", {"DEEPSEEK_API_KEY": KEY, "DEEPSEEK_BASE_URL": "x"}, "DEEPSEEK_BASE_URL"),
    ],
)
def test_what_is_missing_is_named_before_anything_is_sent(spec, environ, says):
    with pytest.raises(ConfigError) as caught:
        open_model(spec, environ)
    assert says in caught.value.explain()
    assert "me:pw" not in caught.value.explain()
    assert KEY not in caught.value.explain()


@pytest.mark.parametrize("spec", ["openai:", "openai", "other:x", ":x", ""])
def test_a_spec_that_names_no_model(spec):
    with pytest.raises(UsageError, match="openai:MODEL, deepseek:MODEL"):
        open_model(spec, {})


@pytest.mark.parametrize("key", [None, "", "  "])
def test_an_endpoint_on_this_machine_needs_no_key(key):
    with ModelServer(["hello"]) as server:
        environ = {"OPENAI_BASE_URL": server.url} | ({} if key is None else {"OPENAI_API_KEY": key})

        async def work():
            model = open_model("openai:any", environ)
            try:
                return text([delta async for delta in model.stream(request())])
            finally:
                await model.close()

        assert asyncio.run(work()) == "hello"


def test_settings_go_over_the_wire_as_they_are_recorded():
    settings = {"temperature": 0.5, "max_tokens": 9, "reasoning_effort": "low", "seed": 1}
    talk = Talk(settings=settings).user("hi")
    with ModelServer(["hello"]) as server:
        ask(server, talk.request(), settings=settings)
    assert json.loads(server.requests[0]).items() >= settings.items()


@pytest.mark.parametrize(
    ("provider", "base_url", "name"),
    [
        ("openai", None, "max_completion_tokens"),
        ("openai", "http://127.0.0.1:1/v1", "max_tokens"),
        ("deepseek", None, "max_tokens"),
    ],
)
def test_the_output_limit_has_the_name_that_its_endpoint_listens_to(provider, base_url, name):
    model = OpenAIModel("any", base_url=base_url, api_key=KEY, provider=provider, settings={"max_tokens": 9})
    assert model.settings == {name: 9}


@pytest.mark.parametrize("name", ["model", "messages", "tools", "stream", "stream_options", "n"])
def test_no_setting_may_replace_what_comes_from_the_log(name):
    with pytest.raises(ConfigError, match=name):
        OpenAIModel("any", api_key=KEY, settings={name: 1})


# --- what surrounds it: the environment, in a process of its own --------------------------------------------------

CHILD = """
import asyncio, os, sys
from fencepost.errors import ModelError
from fencepost.plugins.openai import open_model
from tests.plugins.transcripts import request

async def main(spec):
    loaded = "openai" in sys.modules
    model = open_model(spec, os.environ)
    try:
        async for _ in model.stream(request(provider=spec.partition(":")[0])):
            pass
    finally:
        await model.close()
    print(loaded, "openai" in sys.modules)

asyncio.run(main(sys.argv[1]))
"""


def child(spec, **environ):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHILD, spec],
        env=os.environ | environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout.strip()


def test_the_sdk_is_imported_when_the_first_stream_is_pulled_and_not_before():
    with ModelServer(["hello"]) as server:
        assert child("openai:any", OPENAI_BASE_URL=server.url) == "False True"


def test_an_endpoint_on_this_machine_is_not_asked_through_a_proxy():
    nobody = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"), "http://127.0.0.1:9")
    with ModelServer(["hello"]) as server:
        child("openai:any", OPENAI_BASE_URL=server.url, NO_PROXY="", no_proxy="", **nobody)
    assert len(server.requests) == 1


def test_what_the_environment_holds_for_openai_is_not_sent_to_another_provider():
    theirs = {
        "OPENAI_API_KEY": "sk-openai-key",
        "OPENAI_ADMIN_KEY": "sk-openai-admin",
        "OPENAI_ORG_ID": "org-mine",
        "OPENAI_PROJECT_ID": "proj-mine",
        "OPENAI_CUSTOM_HEADERS": "X-Gateway: sk-gateway\nauthorization: Bearer sk-other",
    }
    with ModelServer(["hello", "again"]) as server:
        child("deepseek:any", DEEPSEEK_BASE_URL=server.url, DEEPSEEK_API_KEY=KEY, **theirs)
    [headers] = server.headers
    assert headers["authorization"] == f"Bearer {KEY}"
    for secret in ("sk-openai", "org-mine", "proj-mine", "sk-gateway", "sk-other"):
        assert secret not in json.dumps(headers)
