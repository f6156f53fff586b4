"""`fencepost.open`: what composes, what is refused, and that the shipped models work through it."""

import asyncio

import pytest

import fencepost as fp
from fencepost.core import events as ev
from fencepost.errors import CompositionError, ConfigError, UsageError
from fencepost.plugins.approval import Verdict
from fencepost.testing import ModelServer, ScriptedModel

ACT = {"tool_calls": [{"function": {"name": "act", "arguments": {}}}]}


@fp.tool
async def act() -> str:
    """Act."""
    return "did it"


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), 30))


async def prompted(runtime):
    """One prompt in a new session; its log and how it ended."""
    async with runtime:
        session = await runtime.create()
        result = await session.prompt("go")
        return session.journal.log, result


def results(log):
    return [event.code or "ok" for event in log.events() if isinstance(event, ev.ToolResult)]


def test_the_gates_are_on_and_calls_pass_unless_said_otherwise(tmp_path):
    async def scenario():
        runtime = fp.open(f"jsonl:{tmp_path}", model=ScriptedModel([ACT, "ok"]), tools=[act])
        log, result = await prompted(runtime)
        assert (result.text, result.saved) == ("ok", True)
        assert results(log) == ["ok"]
        assert log.fold.turn.gates == ("step", "request", "tool", "closing")
        assert log.fold.turn.policy == "checkpoint"

    run(scenario)


def test_without_gates_is_spelled_out_and_recorded():
    async def scenario():
        log, _ = await prompted(fp.open("memory:", model=ScriptedModel(["ok"]), gates=False))
        assert (log.fold.turn.gates, log.fold.turn.policy) == (("closing",), "none")

    run(scenario)


@pytest.mark.parametrize(("approve", "code"), [("all", "ok"), ("read", "DENIED"), ("none", "DENIED")])
def test_approval(approve, code):
    async def scenario():
        log, _ = await prompted(fp.open("memory:", model=ScriptedModel([ACT, "ok"]), tools=[act], approve=approve))
        assert results(log) == [code]

    run(scenario)


def test_asking():
    async def scenario():
        async def ask(question):
            return Verdict(allowed=question.tool == "act", by="ada")

        model = ScriptedModel([ACT, "ok"])
        log, _ = await prompted(fp.open("memory:", model=model, tools=[act], approve="ask", ask=ask))
        assert results(log) == ["ok"]

    run(scenario)


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"approve": "maybe"}, UsageError, "approve='maybe' is not one of ask, read, all, none"),
        ({"approve": "ask"}, UsageError, "needs somebody to ask"),
        ({"tools": [len]}, UsageError, "is no tool"),
        ({"tools": [act, act]}, CompositionError, "the tool 'act' is there already"),
        ({"plugins": [object()]}, CompositionError, "is no plugin"),
        ({"model": "gpt-5"}, UsageError, "no model is known for 'gpt-5'"),
        ({"model": "openai:"}, UsageError, "no model is known for 'openai:'"),
        ({"model": "nobody:x"}, UsageError, "no model is known for 'nobody:x'"),
        ({"model": "script:/no/such/file"}, UsageError, "there is no script"),
        ({"model": "openai:gpt-5", "environ": {}}, ConfigError, "OPENAI_API_KEY"),
        ({"model": ScriptedModel([]), "model_settings": {"temperature": 0}}, UsageError, "model_settings"),
        ({"plugin_settings": {"retry": {"atempts": 3}}}, ConfigError, "atempts"),
        ({"plugin_settings": {"weather": {}}}, ConfigError, "not composed"),
        ({"store": "nowhere:"}, UsageError, "no store is known for 'nowhere:'"),
        ({"store": "jsonl:"}, UsageError, "names no directory"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(given, error, words):
    with pytest.raises(error, match=words):
        fp.open(given.pop("store", "memory:"), **given)


def test_schemes_that_are_known_are_named():
    with pytest.raises(UsageError) as caught:
        fp.open("memory:", model="nobody:x")
    assert caught.value.next_act == "Write SCHEME:NAME; known are anthropic:, deepseek:, local:, openai:, script:"


def test_a_plugin_adds_a_scheme():
    class Weather:
        name = "weather"
        requires = ()

        def apply(self, context):
            context.model("weather", lambda spec, environ, settings: ScriptedModel([spec], settings=dict(settings)))

    async def scenario():
        runtime = fp.open("memory:", model="weather:sunny", plugins=[Weather()], model_settings={"temperature": 0})
        log, result = await prompted(runtime)
        assert result.text == "weather:sunny"
        assert log.fold.header.settings == {"temperature": 0}

    run(scenario)


def test_a_script_from_a_file(tmp_path):
    (tmp_path / "answers.jsonl").write_text('{"content": "From a file."}\n')

    async def scenario():
        _, result = await prompted(fp.open("memory:", model=f"script:{tmp_path / 'answers.jsonl'}"))
        assert result.text == "From a file."

    run(scenario)


def test_every_request_over_the_wire_is_rebuilt_from_the_log_to_the_byte():
    """Through the official SDK and a real socket: what left is `body` of the projection of what was durable."""
    import json

    from fencepost.core import projection
    from fencepost.core.codec import CORE
    from fencepost.core.log import Log

    script = [
        {"content": "First.", "tool_calls": [{"id": "", "function": {"name": "act", "arguments": "{}"}}] * 2},
        [{"content": "x", "fault": {"kind": "status", "status": 503}}, {"content": "Over."}],
        {"content": "Again."},
    ]

    async def scenario(server):
        environ = {"OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "not-needed"}
        async with fp.open(
            "memory:",
            model="openai:gpt-5",
            tools=[act],
            environ=environ,
            model_settings={"temperature": 0.5},
            plugin_settings={"retry": {"base": 0}},
        ) as runtime:
            session = await runtime.create()
            await session.prompt("go \u2028 \ud800")
            await session.prompt("on")
            return session.journal.log, runtime.model

    with ModelServer(script) as server:
        log, model = run(lambda: scenario(server))
        sent = [json.loads(body) for body in server.requests]
    events = list(log.events())
    asks = [
        index
        for index, event in enumerate(events)
        if isinstance(event, ev.RequestRetry)
        or (isinstance(event, ev.AssistantChunk) and not isinstance(events[index - 1], ev.AssistantChunk))
    ]
    rebuilt = [model.body(projection.request(Log(log.header, lambda: 0, CORE, events[:index]))) for index in asks]
    assert len(sent) == len(rebuilt) == 4
    assert rebuilt == sent
