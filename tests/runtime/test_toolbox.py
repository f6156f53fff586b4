"""Tools that have to be fetched for a session: once, in front of its first turn, and given back at its end."""

import asyncio

import pytest
from tests.runtime.rig import TouchyStore, call, calls, run, until
from tests.runtime.settling import Left, leave, runtime, teller

from fencepost.core import events as ev
from fencepost.errors import MediumError
from fencepost.runtime.settlement import Completed
from fencepost.runtime.toolbox import Toolbox
from fencepost.testing import ScriptedModel


class Source:
    """A source of tools, and what was asked of it.

    Args:
        tools: what it gives, or what it raises.
        gate: it waits for this before.
    """

    def __init__(self, *tools, gate=None):
        self.tools = tools
        self.gate = gate
        self.opened = []
        self.closed = []
        self.cancelled = 0

    async def __call__(self, site):
        self.opened.append(site)
        site.closing.callback(self.closed.append, site.journal.session)
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.tools and isinstance(self.tools[0], BaseException):
            raise self.tools[0]
        return self.tools


class Plugin:
    """A plugin whose tools are fetched."""

    name = "fetching"
    requires = ()

    def __init__(self, *sources):
        self._sources = sources

    def apply(self, context):
        for source in self._sources:
            context.tools_from(source)


async def said(context, arguments):
    return f"said {arguments.get('text', '')}"


def fetched(name="far"):
    return teller(name=name, effect="read", body=said)


FAR = calls(call("far", {"text": "x"}))


async def turns(agent, session, *prompts):
    """The results of the calls of some turns."""
    for prompt in prompts:
        await session.prompt(prompt)
    return [ev.text_of(event.content) for event in session.journal.log.events() if isinstance(event, ev.ToolResult)]


def test_sources_are_opened_once_in_front_of_the_first_turn_and_closed_with_the_session(tmp_path):
    async def scenario():
        own, given = Source(fetched()), Source(fetched("near"))
        agent = runtime(TouchyStore(), model=ScriptedModel([FAR, "one", FAR, "two"]), plugins=[Plugin(own)], gates=True)
        session = await agent.create("s1", tmp_path, sources=[given])
        assert (own.opened, given.opened) == ([], []), "opening a session runs nothing"
        assert await turns(agent, session, "a", "b") == ["said x"] * 2
        assert (len(own.opened), len(given.opened)) == (1, 1)
        site = own.opened[0]
        assert (site.cwd, site.files, site.journal) == (tmp_path, agent.store.files("s1"), session.journal)
        offered = next(event for event in session.journal.log.events() if isinstance(event, ev.RequestHeader)).tools
        assert {tool.name for tool in offered} == {"far", "near"}
        assert own.closed == []
        await session.close()
        assert (own.closed, given.closed) == (["s1"], ["s1"])
        await agent.close()

    run(scenario)


def test_each_session_fetches_its_own(tmp_path):
    async def scenario():
        source = Source(fetched())
        agent = runtime(TouchyStore(), model=ScriptedModel(["one", "two"]), plugins=[Plugin(source)])
        for name in ("s1", "s2"):
            await (await agent.create(name, tmp_path)).prompt("go")
        assert [site.journal.session for site in source.opened] == ["s1", "s2"]
        await agent.close()
        assert sorted(source.closed) == ["s1", "s2"]

    run(scenario)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ((MediumError("the server is gone"),), "the server is gone"),
        ((ValueError("bad port"),), "ValueError: bad port"),
        ((SystemExit(2),), "SystemExit"),
        (("far",), "a source of tools gave str"),
    ],
    ids=["ours", "another", "exit", "no tool"],
)
def test_a_source_that_fails_is_told_and_the_session_goes_on(tmp_path, given, part):
    async def scenario():
        agent = runtime(
            TouchyStore(), model=ScriptedModel([FAR, "one"]), plugins=[Plugin(Source(*given), Source(fetched()))]
        )
        session = await agent.create("s1", tmp_path)
        told = []
        session.on_notice(told.append)
        assert await turns(agent, session, "a") == ["said x"], "the next source is opened all the same"
        assert [part in notice.text and notice.text.startswith("tools are missing") for notice in told] == [True]
        await agent.close()

    run(scenario)


def test_a_source_that_gives_nothing_to_go_through_is_told(tmp_path):
    async def scenario():
        async def nothing(site):
            return None

        agent = runtime(TouchyStore(), model=ScriptedModel(["one"]), plugins=[Plugin(nothing)])
        session = await agent.create("s1", tmp_path)
        told = []
        session.on_notice(told.append)
        assert (await session.prompt("a")).reason == "completed"
        assert "TypeError" in told[0].text
        await agent.close()

    run(scenario)


def test_a_name_that_is_taken_stays_with_whom_it_belongs_to(tmp_path):
    async def scenario():
        async def other(context, arguments):
            return "impostor"

        source = Source(teller(name="far", effect="read", body=other))
        agent = runtime(TouchyStore(), fetched(), model=ScriptedModel([FAR, "one"]), plugins=[Plugin(source)])
        session = await agent.create("s1", tmp_path)
        told = []
        session.on_notice(told.append)
        assert await turns(agent, session, "a") == ["said x"]
        assert "'far' is left out" in told[0].text
        await agent.close()

    run(scenario)


def test_a_turn_that_is_cancelled_while_a_slow_source_opens_ends_and_the_next_one_waits_on(tmp_path):
    async def scenario():
        gate = asyncio.Event()
        source = Source(fetched(), gate=gate)
        agent = runtime(TouchyStore(), model=ScriptedModel([FAR, "one"]), plugins=[Plugin(source)])
        session = await agent.create("s1", tmp_path)
        first = asyncio.create_task(session.prompt("a"))
        await until(lambda: source.opened)
        await session.cancel()
        assert (await first).reason == "aborted"
        assert source.cancelled == 0
        second = asyncio.create_task(session.prompt("b"))
        await until(lambda: session.journal.log.fold.pending)
        gate.set()
        assert (await second).text == "one"
        assert len(source.opened) == 1
        await agent.close()

    run(scenario)


def test_closing_while_a_slow_source_opens_ends_it_and_closes_what_is_open(tmp_path):
    async def scenario():
        quick, slow = Source(fetched()), Source(gate=asyncio.Event())
        agent = runtime(TouchyStore(), model=ScriptedModel(["one"]), plugins=[Plugin(quick, slow)])
        session = await agent.create("s1", tmp_path)
        turn = asyncio.create_task(session.prompt("a"))
        await until(lambda: slow.opened)
        await agent.close()
        assert (await turn).reason == "aborted"
        assert slow.cancelled == 1
        assert (quick.closed, slow.closed) == (["s1"], ["s1"])

    run(scenario)


def test_a_session_without_turns_opens_nothing(tmp_path):
    async def scenario():
        source, store = Source(fetched()), TouchyStore()
        await leave(store, Left("c1"))
        agent = runtime(store, plugins=[Plugin(source)])
        await (await agent.resume("s1")).close()
        assert (source.opened, source.closed) == ([], [])
        await agent.close()

    run(scenario)


def test_running_calls_again_needs_the_tools_and_opens_the_sources_for_all_later_turns():
    async def scenario():
        source, store = Source(fetched()), TouchyStore()
        await leave(store, Left("c1", name="far", effect="read"))
        agent = runtime(store, model=ScriptedModel(["one"]), plugins=[Plugin(source)])
        session = await agent.resume("s1", rerun=frozenset({"read"}))
        assert [item.verdict for item in session.recovery.calls] == ["completed"]
        await session.go_on()
        assert len(source.opened) == 1
        await agent.close()
        assert source.closed == ["s1"]

    run(scenario)


def test_what_is_missing_while_resuming_is_told_too():
    async def scenario():
        source, store, told = Source(ValueError("bad port")), TouchyStore(), []
        await leave(store, Left("c1", name="far", effect="read"))
        agent = runtime(store, plugins=[Plugin(source)])
        session = await agent.resume("s1", rerun=frozenset({"read"}), notify=told.append)
        assert [item.verdict for item in session.recovery.calls] == ["outcome_unknown"]
        assert "bad port" in told[0].text
        await agent.close()

    run(scenario)


def test_a_resume_that_fails_closes_what_it_opened():
    async def scenario():
        source, store = Source(fetched()), TouchyStore()
        await leave(store, Left("c1", name="far", effect="read"))
        store.fail(ev.ToolResult)
        agent = runtime(store, plugins=[Plugin(source)])
        with pytest.raises(Exception, match="not saved"):
            await agent.resume("s1", rerun=frozenset({"read"}))
        assert source.closed == ["s1"]

    run(scenario)


def test_fetched_tools_that_know_what_happened_are_asked_where_they_are_there():
    async def scenario():
        tool = teller(lambda _: Completed("x", "the far end"), name="far", effect="read", body=said)
        source, store = Source(tool), TouchyStore()
        await leave(store, Left("c1", name="far", effect="read"))
        agent = runtime(store, plugins=[Plugin(source)])
        session = await agent.resume("s1", rerun=frozenset({"read"}))
        assert [item.settled_by for item in session.recovery.calls] == ["far"]
        await agent.close()

    run(scenario)


def test_a_source_that_will_not_stop_is_left_and_the_rest_is_closed(tmp_path):
    async def scenario():
        free, quick = asyncio.Event(), Source(fetched())

        async def deaf(site):
            while not free.is_set():
                try:
                    await free.wait()
                except asyncio.CancelledError:
                    continue
            return ()

        agent = runtime(TouchyStore())
        session = await agent.create("s1", tmp_path)
        toolbox = Toolbox({}, [quick, deaf], patience=0.01)
        opening = asyncio.create_task(toolbox.open(session.journal, tmp_path, lambda _: None))
        await until(lambda: "far" in toolbox.tools)
        await toolbox.close()
        assert quick.closed == ["s1"]
        free.set()
        await opening
        await agent.close()

    run(scenario)


def test_what_cannot_be_closed_is_raised_and_the_session_is_free_all_the_same(tmp_path):
    async def scenario():
        first, store = Source(fetched()), TouchyStore()

        async def bad(site):
            def fail():
                raise RuntimeError("the server does not let go")

            site.closing.callback(fail)
            return ()

        agent = runtime(store, model=ScriptedModel(["one"]), plugins=[Plugin(first, bad)])
        session = await agent.create("s1", tmp_path)
        await session.prompt("a")
        with pytest.raises(RuntimeError, match="does not let go"):
            await session.close()
        assert first.closed == ["s1"]
        assert (await store.read("s1")).owner is None
        await agent.close()

    run(scenario)
