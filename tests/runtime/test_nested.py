"""Calls that a body makes: their own gate, circles, depth, and what they may do."""

import asyncio

import msgspec
import pytest
from tests.runtime.rig import FULL, QUICK, Agent, At, TouchyStore, balanced, call, calls, run, until

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.log import Fold
from fencepost.core.repair import closers
from fencepost.errors import LostOwnershipError, UsageError
from fencepost.runtime.replies import NotStarted
from fencepost.runtime.subjects import Deny
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.toolrun import ToolRules
from fencepost.runtime.tools import CallContext


@tool
async def act(what: str = "") -> str:
    """Act."""
    return f"did {what}"


def outer_that(makes, **about):
    """A tool whose body is `makes(context)`."""

    @tool(name="outer", **about)
    async def outer(context: CallContext, n: int = 0) -> str:
        """Calls."""
        return str(await makes(context))

    return outer


# --- the gate ---------------------------------------------------------------------------------------------------


def test_with_a_gate_of_its_own_a_nested_call_is_durable_before_its_body():
    """Law 1, for nested calls that ask for it."""

    async def scenario():
        store, durable = TouchyStore(), []

        @tool
        async def inner(context: CallContext) -> str:
            """Looks for its own record in the store."""
            stored = await store.read("s1")
            durable.append(context.call_id in {e.call_id for e in stored.entries if isinstance(e, ev.ToolCall)})
            return "ok"

        async def makes(context):
            await context.call("inner", {}, gate="own")
            return "ok"

        async with Agent([calls(call("outer")), "ok"], store=store, tools=[outer_that(makes), inner]) as agent:
            await agent.session.prompt("go")
            assert durable == [True]
            assert agent.results() == ["inner: ok", "outer: ok"]

    run(scenario)


@pytest.mark.parametrize("error", [FULL, LostOwnershipError("session s1: another writer has it")], ids=["full", "lost"])
def test_once_the_session_is_known_not_to_be_saved_nothing_more_happens_inside_a_call(error):
    """Law 4, and law 8 for a writer that was taken over from while one of its bodies goes on."""

    async def scenario():
        store, replies, entered = TouchyStore(), [], []

        @tool
        async def inner() -> str:
            """Inner."""
            entered.append("inner")

        async def makes(context):
            await context.call("inner", {})
            broken = store.fail(error=error)
            await until(lambda: agent.session.journal.unsaved is not None)
            replies.append(await context.call("inner", {}))
            broken.off()
            replies.append(await context.call("inner", {}))
            return "went on"

        async with Agent([calls(call("outer")), "ok"], store=store, tools=[outer_that(makes), inner]) as agent:
            await agent.session.prompt("go")
            assert [reply.code for reply in replies] == [v.NOT_SAVED, ""]
            assert entered == ["inner", "inner"]

    run(scenario)


def test_a_body_that_made_a_call_cannot_say_that_it_had_no_effect():
    """Law 2: the log would say in one line that something ran, and in the next that nothing did."""

    async def scenario():
        async def makes(context):
            await context.call("act", {})
            raise NotStarted("the server was not there")

        async with Agent([calls(call("outer")), "ok"], tools=[outer_that(makes), act]) as agent:
            await agent.session.prompt("go")
            assert agent.results() == ["act: ok", "outer: TOOL_OUTCOME_UNKNOWN"]
            assert agent.text("outer").endswith(v.not_started_text("the server was not there"))

    run(scenario)


def test_when_that_gate_fails_the_body_is_not_entered_and_the_parent_can_go_on():
    async def scenario():
        store, replies, entered = TouchyStore(), [], []

        @tool
        async def inner() -> str:
            """Inner."""
            entered.append("inner")

        async def makes(context):
            full = store.fail()
            replies.append(await context.call("inner", {}, gate="own"))
            full.off()
            return "went on"

        async with Agent([calls(call("outer")), "ok"], store=store, tools=[outer_that(makes), inner]) as agent:
            result = await agent.session.prompt("go")
            assert (entered, replies[0].code) == ([], v.NOT_SAVED)
            assert agent.results() == [f"inner: {v.NOT_SAVED}", "outer: ok"]
            assert (result.reason, result.saved) == ("completed", True)

    run(scenario)


def test_a_cancel_while_that_gate_waits_keeps_the_body_out():
    async def scenario():
        store, entered, held = TouchyStore(), [], []

        @tool
        async def inner() -> str:
            """Inner."""
            entered.append("inner")

        async def makes(context):
            held.append(store.hold(ev.ToolCall))
            return (await context.call("inner", {}, gate="own")).code

        tools, rules = [outer_that(makes), inner], ToolRules(settle=5)
        async with Agent([calls(call("outer"))], store=store, tools=tools, rules=rules) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: held)
            await held[0].reached.wait()
            agent.session.cancel_soon()
            held[0].off()
            await turn
            assert entered == []
            assert agent.results() == [f"inner: {v.ABORTED_BEFORE_DISPATCH}", "outer: ok"]

    run(scenario)


def test_below_a_call_with_its_own_gate_others_rest_on_the_gate_of_the_outermost():
    async def scenario():
        store, replies = TouchyStore(), []

        async def makes(context):
            replies.append(await context.call("middle", {}, gate="own"))
            return "ok"

        @tool
        async def middle(context: CallContext) -> str:
            """Middle."""
            full = store.fail()
            reply = await context.call("act", {"what": "a"})
            full.off()
            return reply.text

        async with Agent([calls(call("outer")), "ok"], store=store, tools=[outer_that(makes), middle, act]) as agent:
            await agent.session.prompt("go")
            assert agent.results() == ["act: ok", "middle: ok", "outer: ok"]

    run(scenario)


def test_there_are_two_gates_and_no_third():
    async def scenario():
        async def makes(context):
            with pytest.raises(UsageError, match="no gate 'none'"):
                await context.call("act", {}, gate="none")
            return "ok"

        async with Agent([calls(call("outer")), "ok"], tools=[outer_that(makes), act]) as agent:
            await agent.session.prompt("go")
            assert agent.results() == ["outer: ok"]

    run(scenario)


# --- circles, depth, effects ------------------------------------------------------------------------------------


async def refusal(asked, tools, rules=None):
    """The replies of a turn that asks for `asked`."""
    async with Agent([calls(asked), "ok"], tools=tools, rules=rules) as agent:
        result = await agent.session.prompt("go")
        assert result.reason == "completed"
        assert balanced(agent.log)
        return agent


def test_a_call_that_makes_itself_is_refused():
    async def scenario():
        async def makes(context):
            return (await context.call("outer", {"n": 1})).text

        agent = await refusal(call("outer", {"n": 0}), [outer_that(makes)])
        first, second = [record.result for record in agent.log.fold.calls.values()]
        why = "outer with these arguments is running already and would call itself in a circle (outer > outer > outer)"
        assert v.not_started_text(why, "Do not repeat it unless the user asks for it.") == ev.text_of(second.content)
        assert first.content == second.content
        assert len(agent.events(ev.ToolCall)) == 2, "the third would be the second again"

    run(scenario)


def test_a_circle_over_other_tools_is_one_too():
    async def scenario():
        async def makes(context):
            return (await context.call("back", {})).text

        @tool
        async def back(context: CallContext) -> str:
            """Goes back."""
            return (await context.call("outer", {})).text

        agent = await refusal(call("outer"), [outer_that(makes), back])
        assert "in a circle (outer > back > outer)" in agent.text("outer")

    run(scenario)


def test_a_chain_is_bounded():
    async def scenario():
        @tool
        async def deeper(context: CallContext, n: int) -> str:
            """Goes deeper."""
            return (await context.call("deeper", {"n": n + 1})).text

        rules = msgspec.structs.replace(QUICK, depth=3)
        agent = await refusal(call("deeper", {"n": 0}), [deeper], rules)
        assert [one.arguments["n"] for one in agent.events(ev.ToolCall)] == [0, 1, 2, 3]
        texts = {ev.text_of(one.content) for one in agent.events(ev.ToolResult)}
        assert len(texts) == 1
        assert "the calls are nested 3 deep already, and deeper is not allowed" in texts.pop()

    run(scenario)


def test_the_same_call_twice_one_after_the_other_is_no_circle():
    async def scenario():
        async def makes(context):
            return [(await context.call("act", {"what": "a"})).text for _ in range(2)]

        agent = await refusal(call("outer"), [outer_that(makes), act])
        assert agent.results() == ["act: ok", "act: ok", "outer: ok"]

    run(scenario)


@pytest.mark.parametrize(("parent", "child"), [("read", "write"), ("read", "idempotent"), ("idempotent", "write")])
def test_a_call_makes_none_that_may_do_more_than_itself(parent, child):
    """A policy let the parent through, and a crash may run it again, for what it was declared to be."""

    async def scenario():
        entered = []

        @tool(effect=child)
        async def inner() -> str:
            """Inner."""
            entered.append("inner")

        async def makes(context):
            return (await context.call("inner", {})).text

        agent = await refusal(call("outer"), [outer_that(makes, effect=parent), inner])
        assert f"outer is declared '{parent}' and may not call inner, which is '{child}'" in agent.text("outer")
        assert entered == []

    run(scenario)


def test_a_policy_still_has_its_say_and_sees_whose_call_it_is():
    async def scenario():
        seen = []

        async def policy(candidate, go_on):
            seen.append((candidate.tool.name, candidate.parent is not None, candidate.own_gate))
            return Deny("no") if candidate.parent else await go_on(candidate)

        async def makes(context):
            return (await context.call("act", {}, gate="own")).code

        async with Agent(
            [calls(call("outer")), "ok"], tools=[outer_that(makes), act], plugins=[At("tool_admit", policy)]
        ) as agent:
            await agent.session.prompt("go")
            assert seen == [("outer", False, False), ("act", True, True)]
            assert agent.text("outer") == v.DENIED

    run(scenario)


def test_a_value_that_no_log_can_hold_is_refused_and_not_called():
    async def scenario():
        async def makes(context):
            return (await context.call("act", {"what": {1, 2}})).code

        agent = await refusal(call("outer"), [outer_that(makes), act])
        assert agent.text("outer") == v.INVALID_ARGUMENTS

    run(scenario)


def test_an_effect_that_cannot_be_told_is_refused():
    async def scenario():
        def effect(arguments):
            raise LookupError("no such method")

        async def makes(context):
            return (await context.call("act", {})).text

        agent = await refusal(call("outer"), [outer_that(makes), msgspec.structs.replace(act, effect_by=effect)])
        assert "LookupError: no such method" in agent.text("outer")

    run(scenario)


def test_a_plain_function_cannot_call():
    async def scenario():
        @tool
        def plain(context: CallContext) -> str:
            """Plain."""
            return asyncio.run(context.call("act", {})).text

        agent = await refusal(call("plain"), [plain, act])
        assert agent.results() == ["plain: TOOL_ERROR"]
        assert "only an async tool" in agent.text("plain")

    run(scenario)


# --- what a crash leaves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gate", "known"), [("own", 2), ("parent", 1)])
def test_after_a_crash_inside_a_nested_call(gate, known):
    """What is durable while the nested body runs decides: with its own gate it is in the log, and so is its parent."""

    async def scenario():
        store, inside = TouchyStore(), asyncio.Event()

        @tool
        async def inner() -> str:
            """Never ends."""
            inside.set()
            await asyncio.Event().wait()

        async def makes(context):
            if gate == "parent":
                store.fail()
            return (await context.call("inner", {}, gate=gate)).text

        async with Agent(
            [calls(call("outer"), call("act"))], store=store, tools=[outer_that(makes), inner, act]
        ) as one:
            turn = asyncio.create_task(one.session.prompt("go"))
            await inside.wait()
            stored = await store.read("s1")
            fold = Fold()
            for entry in stored.entries:
                fold.take(entry)
            found = {f"{item.call.name}": item.verdict for item in v.verdicts(fold)}
            assert found["outer"] == "outcome_unknown"
            assert found["act"] == "not_started"
            assert len(fold.calls) == known + 1
            assert found.get("inner", "outcome_unknown") == "outcome_unknown"
            names = [fold.calls[c.fields["call_id"]].name for c in closers(fold) if c.cls is ev.ToolResult]
            assert names == (["inner", "outer", "act"] if gate == "own" else ["outer", "act"])
            for rule in store.rules:
                rule.off()
            await one.session.cancel()
            await turn

    run(scenario)
