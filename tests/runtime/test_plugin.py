"""Plugins: in which order, whose registrations, whose settings, and how all of it is undone."""

import asyncio
import types

import msgspec
import pytest
from tests.runtime.rig import Agent, TouchyStore, run, until

from fencepost.core import events as ev
from fencepost.errors import CompositionError, ConfigError, UndeclaredEventError, UnsupportedError
from fencepost.plugins.shipped import ToolsPlugin
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import Composition, Plugin
from fencepost.runtime.runtime import Runtime
from fencepost.runtime.toolmaker import tool
from fencepost.stores.jsonl import JsonlStore
from fencepost.testing import ScriptedModel


class Named:
    """A plugin that says when it is applied and when it is undone."""

    def __init__(self, name, *requires, trace=None, then=None):
        self.name = name
        self.requires = requires
        self.trace = [] if trace is None else trace
        self.then = then

    def apply(self, context):
        self.trace.append(f"+{self.name}")
        context.on_close(lambda: self.trace.append(f"-{self.name}"))
        if self.then is not None:
            self.then(context)


@tool
async def act() -> str:
    """Act."""
    return "ok"


class Weather(ev.Event, frozen=True, tag="weather/seen"):
    """It was seen."""

    sky: str


class Whim(ev.Event, frozen=True, tag="whim"):
    """It may be stepped over."""


def declaring(*kinds):
    return Named("weather", then=lambda context: [context.declare(kind) for kind in kinds])


# --- order ------------------------------------------------------------------------------------------------------


def test_a_plugin_stands_behind_what_it_requires_else_as_given():
    plugins = [Named("d", "b"), Named("a"), Named("c", "a", "d"), Named("b")]
    assert [one.name for one in Composition(plugins, {}).plugins] == ["b", "d", "a", "c"]


@pytest.mark.parametrize(
    ("plugins", "words"),
    [
        ([Named("a"), Named("a")], "two plugins are named 'a'"),
        ([Named("a", "b")], "plugin a requires 'b', which is not composed"),
        ([Named("a", "b"), Named("b", "c"), Named("c", "a")], "a > b > c > a"),
        ([Named("a", "a")], "a > a"),
        ([object()], "is no plugin"),
    ],
)
def test_plugins_that_do_not_fit_together(plugins, words):
    with pytest.raises(CompositionError, match=words):
        Composition(plugins, {})
    assert all(one.trace == [] for one in plugins if isinstance(one, Named))


def test_a_module_is_a_plugin():
    module = types.ModuleType("clock")
    module.name, module.requires = "clock", ()
    module.apply = lambda context: context.tool(act)
    assert isinstance(module, Plugin)
    assert list(Composition([module], {}).registry.tools) == ["act"]


# --- undone -----------------------------------------------------------------------------------------------------


def test_closing_undoes_everything_in_reverse():
    async def scenario():
        trace = []

        async def slowly():
            await asyncio.sleep(0)
            trace.append("-resource")

        def everything(context):
            context.tool(act)
            context.hook(lambda hooks: hooks.tool_admit, Position.POLICY, lambda subject, go_on: go_on(subject))
            context.model("weather", lambda spec, environ, settings: ScriptedModel([]))
            context.declare(Weather)
            context.on_close(slowly)

        composition = Composition([Named("a", trace=trace, then=everything), Named("b", "a", trace=trace)], {})
        registry = composition.registry
        assert (list(registry.tools), list(registry.models), registry.events) == (["act"], ["weather"], [Weather])
        assert await composition.close() == []
        assert await composition.close() == []
        assert trace == ["+a", "+b", "-b", "-resource", "-a"]
        assert (registry.tools, registry.models, registry.events) == ({}, {}, [])
        assert registry.hooks.tool_admit.owners() == []

    run(scenario)


def test_a_close_that_fails_does_not_keep_the_others_open():
    async def scenario():
        trace = []
        plugins = [
            Named("a", trace=trace),
            Named("b", trace=trace, then=lambda context: context.on_close(lambda: 1 / 0)),
            Named("c", trace=trace),
        ]
        (failure,) = await Composition(plugins, {}).close()
        assert isinstance(failure, ZeroDivisionError)
        assert trace[3:] == ["-c", "-b", "-a"]

    run(scenario)


FAILING = {
    "it raises": lambda context: 1 / 0,
    "its tool is there": lambda context: context.tool(act),
    "its scheme is there": lambda context: context.model("scripted", None),
    "its event is there": lambda context: context.declare(Weather),
    "its event is ours": lambda context: context.declare(ev.ToolCall),
    "the gate is taken": lambda context: context.hook(lambda hooks: hooks.tool_execute, Position.GATE, None),
}


@pytest.mark.parametrize("running", [False, True], ids=["no loop", "in a loop"])
@pytest.mark.parametrize("way", FAILING)
def test_what_was_applied_is_undone_when_a_later_plugin_fails(way, running):
    trace = []
    kept = {}

    async def slowly():
        await asyncio.sleep(0)
        trace.append("-resource")

    def first(context):
        kept["registry"] = context._registry
        context.tool(act)
        context.model("scripted", lambda spec, environ, settings: ScriptedModel([]))
        context.declare(Weather)
        context.hook(lambda hooks: hooks.tool_execute, Position.GATE, lambda subject, go_on: go_on(subject))
        context.on_close(slowly)

    def compose():
        with pytest.raises((CompositionError, ZeroDivisionError)):
            Composition([Named("a", trace=trace, then=first), Named("b", trace=trace, then=FAILING[way])], {})

    async def scenario():
        compose()
        await until(lambda: len(trace) == 5)

    if running:
        run(scenario)
    else:
        compose()
    assert trace == ["+a", "+b", "-b", "-resource", "-a"]
    registry = kept["registry"]
    assert (registry.tools, registry.models, registry.events) == ({}, {}, [])
    assert registry.hooks.gates() == ("closing",)


def test_a_model_that_cannot_be_made_undoes_the_composition():
    trace = []

    def no_model(composition):
        raise ConfigError("no key")

    with pytest.raises(ConfigError):
        Runtime(TouchyStore(), no_model, [Named("a", trace=trace)])
    assert trace == ["+a", "-a"]


# --- settings ---------------------------------------------------------------------------------------------------


class Wanted(msgspec.Struct, frozen=True):
    """What a plugin wants to be told."""

    attempts: int = 3
    base: float = 0.5


def configured(settings, then=lambda context: context.configured(Wanted)):
    kept = []
    Composition([Named("a", then=lambda context: kept.append(then(context)))], {"a": settings} if settings else {})
    return kept[0]


def test_settings_become_a_record():
    assert configured({}) == Wanted()
    assert configured({"attempts": 5, "base": 2}) == Wanted(5, 2.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"attempts": "5"}, r"\[plugin.a\]: Expected `int`, got `str` - at `\$.attempts`"),
        ({"attempts": 1.5}, "Expected `int`"),
        ({"atempts": 5}, r"\[plugin.a\]: unknown key 'atempts'"),
    ],
)
def test_settings_that_are_wrong_name_the_plugin_and_the_key(settings, words):
    with pytest.raises(ConfigError, match=words):
        configured(settings)


def test_settings_for_nobody_are_an_error():
    with pytest.raises(ConfigError, match=r"\[plugin.b\] configures a plugin that is not composed") as caught:
        Composition([Named("a")], {"b": {"x": 1}})
    assert "Composed are: a" in caught.value.explain()
    with pytest.raises(ConfigError, match=r"\[plugin.a\]: this plugin takes no settings"):
        Composition([Named("a")], {"a": {"x": 1}})
    assert configured({"x": 1}, lambda context: dict(context.settings)) == {"x": 1}


# --- event types ------------------------------------------------------------------------------------------------


def test_an_event_type_that_nobody_declares_is_refused_at_append():
    async def scenario():
        async with Agent(["Hello."]) as agent:
            with pytest.raises(UndeclaredEventError, match="weather/seen"):
                agent.session.journal.append(Weather, sky="blue")
            assert agent.shape() == []

    run(scenario)


def test_a_declared_event_is_logged_and_the_log_goes_on_with_its_plugin_only(tmp_path):
    async def scenario():
        plugin = declaring(Weather, Whim)
        async with Agent(["Hello."], store=JsonlStore(tmp_path), plugins=[plugin]) as agent:
            await agent.session.prompt("hi")
            agent.session.journal.append(Weather, sky="blue")
            length = agent.log.fold.next_seq
        before = contents(tmp_path)
        async with Agent([], store=JsonlStore(tmp_path), session="other") as without:
            with pytest.raises(UnsupportedError, match="weather/seen"):
                await without.runtime.resume("s1")
            seen = await without.runtime.inspect("s1")
            assert (seen.state, seen.events, seen.owner) == ("unsupported", length, None)
            assert "weather/seen" in seen.problem
            (row,) = await without.runtime.sessions()
            assert (row.session, row.state, row.title) == ("s1", "unsupported", "hi")
        assert contents(tmp_path) == before
        async with Agent(["x", "Again."], store=JsonlStore(tmp_path), plugins=[plugin]) as agent:
            assert agent.one(Weather).sky == "blue"
            assert (await agent.session.prompt("on")).text == "Again."
            seen = await agent.runtime.inspect("s1")
            assert (seen.state, seen.problem) == ("running", None)

    run(scenario)


def contents(root):
    """Every log under a root, to the byte."""
    return {path: path.read_bytes() for path in root.rglob("log.jsonl")}


def test_an_ignorable_event_is_stepped_over(tmp_path):
    async def scenario():
        async with Agent(["Hello."], store=JsonlStore(tmp_path), plugins=[declaring(Whim)]) as agent:
            await agent.session.prompt("hi")
            agent.session.journal.append(Whim, ignorable=True)
        async with Agent(["x", "Again."], store=JsonlStore(tmp_path)) as agent:
            assert (await agent.runtime.inspect("s1")).problem is None
            assert (await agent.session.prompt("on")).text == "Again."
            assert [one.type for one in agent.events(ev.UnknownEvent)] == ["whim"]

    run(scenario)


def test_two_plugins_may_offer_different_tools():
    composition = Composition([ToolsPlugin("a", [act]), ToolsPlugin("b", [])], {})
    assert list(composition.registry.tools) == ["act"]
    assert repr(composition) == "<Composition a, b>"
