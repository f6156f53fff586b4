"""One call from request to result: what hooks, bodies and odd values may do, and what the log says all the same."""

import asyncio

import msgspec
import pytest
from tests.runtime.rig import Agent, At, TouchyStore, balanced, call, calls, run, until

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.core.verdict import verdicts
from fencepost.errors import FencepostError, NotSavedError
from fencepost.runtime.hooks import Position
from fencepost.runtime.replies import NEXT_ACTS, NotStarted
from fencepost.runtime.subjects import Admit, Cleared, Deny
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.toolrun import ToolRules
from fencepost.runtime.tools import CallContext, ToolReply

ENTERED = []


@tool
async def act(what: str = "it") -> str:
    """Act."""
    ENTERED.append(what)
    return f"did {what}"


@tool(effect="read")
async def look() -> str:
    """Look."""
    ENTERED.append("look")
    return "a tree"


@pytest.fixture(autouse=True)
def _nobody_entered():
    ENTERED.clear()


async def one_call(answer, tools, *plugins, **more):
    """Run one prompt whose first answer makes calls; the agent, closed, and how the turn ended."""
    async with Agent([answer, "ok"], tools=tools, plugins=plugins, **more) as agent:
        result = await agent.session.prompt("go")
        assert balanced(agent.log)
        return agent, result


# --- policies ---------------------------------------------------------------------------------------------------


def test_a_denial_is_what_the_model_reads():
    async def scenario():
        async def deny(candidate, go_on):
            return Deny("not on a Sunday")

        agent, result = await one_call(calls(call("act")), [act], At("tool_admit", deny))
        assert agent.results() == ["act: DENIED"]
        assert agent.text("act") == v.not_started_text("not on a Sunday", NEXT_ACTS[v.DENIED])
        assert result.reason == "completed"
        assert ENTERED == []

    run(scenario)


@pytest.mark.parametrize("answer", [None, True, "yes", Admit])
def test_a_policy_that_gives_no_decision_lets_nothing_pass(answer):
    """A hook that forgets to return what `next` gave is a refusal, not a yes."""

    async def scenario():
        async def forgetful(candidate, go_on):
            await go_on(candidate)
            return answer

        agent, result = await one_call(calls(call("act")), [act], At("tool_admit", forgetful))
        assert agent.results() == ["act: DENIED"]
        assert (result.reason, result.code) == ("error", "INTERNAL")
        assert ENTERED == []

    run(scenario)


def test_a_policy_that_raises_denies_its_call_and_a_fault_ends_the_turn():
    async def scenario():
        async def broken(candidate, go_on):
            raise KeyError("budget")

        agent, result = await one_call(calls(call("act"), call("act")), [act], At("tool_admit", broken))
        assert agent.results() == ["act: DENIED", "act: ABORTED_BEFORE_DISPATCH"]
        assert (result.reason, result.code) == ("error", "INTERNAL")
        assert ENTERED == []

    run(scenario)


def test_a_policy_that_refuses_by_an_error_of_ours_does_not_end_the_turn():
    async def scenario():
        async def refuse(candidate, go_on):
            raise FencepostError("the vault is closed")

        agent, result = await one_call(calls(call("act")), [act], At("tool_admit", refuse))
        assert agent.results() == ["act: DENIED"]
        assert "the vault is closed" in agent.text("act")
        assert result.reason == "completed"

    run(scenario)


# --- hooks around the body --------------------------------------------------------------------------------------


def test_a_hook_that_breaks_before_the_body_keeps_it_from_running():
    async def scenario():
        async def broken(admitted, go_on):
            raise ZeroDivisionError("before")

        agent, result = await one_call(calls(call("act")), [act], At("tool_execute", broken, Position.OBSERVE))
        assert agent.results() == ["act: ABORTED_BEFORE_DISPATCH"]
        assert result.message == "ZeroDivisionError: before"
        assert ENTERED == []

    run(scenario)


@pytest.mark.parametrize("error", [ZeroDivisionError("after"), NotSavedError("after"), asyncio.CancelledError()])
def test_a_hook_that_breaks_behind_the_body_does_not_lose_its_answer(error):
    async def scenario():
        async def broken(admitted, go_on):
            await go_on(admitted)
            raise error

        agent, _ = await one_call(calls(call("act")), [act], At("tool_execute", broken, Position.OBSERVE))
        assert agent.results() == ["act: ok"]
        assert agent.text("act") == "did it"

    run(scenario)


def test_a_hook_that_breaks_while_the_body_runs_leaves_the_outcome_unknown():
    async def scenario():
        entered, stopped = asyncio.Event(), []

        @tool
        async def forever() -> str:
            """Never ends."""
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(True)

        async def impatient(admitted, go_on):
            body = asyncio.ensure_future(go_on(admitted))
            await entered.wait()
            body.cancel()
            await asyncio.wait({body})
            raise NotSavedError("a flush of my own failed")

        agent, _ = await one_call(calls(call("forever")), [forever], At("tool_execute", impatient, Position.OBSERVE))
        assert agent.results() == ["forever: TOOL_OUTCOME_UNKNOWN"]
        assert stopped == [True], "the body does not go on behind its result"

    run(scenario)


@pytest.mark.parametrize("code", sorted(v.NOT_ENTERED))
def test_nobody_can_say_not_started_once_the_body_was_entered(code):
    """Law 2: not a body, not a hook around it."""

    async def scenario():
        @tool
        async def liar() -> ToolReply:
            """Lies."""
            return ToolReply("I never ran", code=code)

        async def liars_friend(admitted, go_on):
            await go_on(admitted)
            return ToolReply(v.not_started_text("so it seems"), is_error=True, code=code)

        agent, _ = await one_call(calls(call("liar")), [liar])
        assert agent.results() == ["liar: TOOL_ERROR"]
        assert agent.one(ev.ToolResult).is_error
        agent, _ = await one_call(calls(call("act")), [act], At("tool_execute", liars_friend, Position.OBSERVE))
        assert agent.results() == ["act: ok"]

    run(scenario)


def test_a_body_can_vouch_that_it_had_no_effect():
    """For what certainly never left: a request to a server that was not there."""

    async def scenario():
        @tool
        async def distant() -> str:
            """Asks a server."""
            raise NotStarted("the server was not there")

        agent, _ = await one_call(calls(call("distant")), [distant])
        assert agent.results() == ["distant: TOOL_NOT_STARTED"]
        assert agent.text("distant") == v.not_started_text("the server was not there")
        assert [one.verdict for one in verdicts(agent.log.fold)] == ["not_started"]

    run(scenario)


def test_a_hook_can_answer_in_place_of_the_body():
    async def scenario():
        async def cached(admitted, go_on):
            return ToolReply("from the cache")

        agent, _ = await one_call(calls(call("act")), [act], At("tool_execute", cached, Position.OBSERVE))
        assert agent.results() == ["act: ok"]
        assert agent.text("act") == "from the cache"
        assert ENTERED == []

    run(scenario)


def test_a_hook_that_forgets_to_return_the_reply_does_not_lose_it():
    async def scenario():
        async def forgetful(admitted, go_on):
            await go_on(admitted)

        agent, result = await one_call(calls(call("act")), [act], At("tool_execute", forgetful, Position.OBSERVE))
        assert agent.results() == ["act: ok"]
        assert (result.reason, result.code) == ("error", "INTERNAL")

    run(scenario)


def test_a_write_is_entered_once_however_often_a_hook_calls_next():
    async def scenario():
        async def twice(admitted, go_on):
            await go_on(admitted)
            return await go_on(admitted)

        hook = At("tool_execute", twice, Position.RETRY)
        agent, result = await one_call(calls(call("act")), [act], hook)
        assert ENTERED == ["it"]
        assert agent.results() == ["act: ok"]
        assert result.reason == "error"
        agent, result = await one_call(calls(call("look")), [look], hook)
        assert ENTERED == ["it", "look", "look"]
        assert agent.results() == ["look: ok"]
        assert result.reason == "completed"

    run(scenario)


def test_the_body_gets_the_arguments_that_the_log_has():
    async def scenario():
        async def meddler(admitted, go_on):
            admitted.candidate.arguments["what"] = "something else"
            return await go_on(msgspec.structs.replace(admitted, candidate=other(admitted.candidate)))

        def other(candidate):
            return msgspec.structs.replace(candidate, arguments={"what": "something else again"}, tool=look)

        hook = At("tool_execute", meddler, Position.SHAPE)
        agent, _ = await one_call(calls(call("act", {"what": "this \ud83d"})), [act], hook)
        assert agent.one(ev.ToolCall).arguments == {"what": "this \ufffd"}
        assert ENTERED == ["this \ufffd"]

    run(scenario)


def test_what_a_body_does_to_its_arguments_does_not_reach_the_log():
    async def scenario():
        from fencepost.core.events import ToolSpec
        from fencepost.runtime.tools import Tool

        async def body(context, arguments):
            arguments["list"].append("more")
            return "ok"

        raw = Tool(spec=ToolSpec("raw", "Raw.", {"type": "object"}), body=body)
        agent, _ = await one_call(calls(call("raw", {"list": [1]})), [raw], gates=False)
        assert agent.one(ev.ToolCall).arguments == {"list": [1]}

    run(scenario)


# --- hooks around the result ------------------------------------------------------------------------------------


def test_a_hook_may_shape_the_text_and_nothing_else():
    async def scenario():
        async def shape(done, go_on):
            reply = await go_on(done)
            return ToolReply(reply.text.upper(), is_error=True, code=v.DENIED, unknown=True)

        agent, _ = await one_call(calls(call("act"), call("no_such")), [act], At("tool_done", shape))
        assert agent.text("act") == "DID IT"
        assert [(one.code, one.is_error) for one in agent.events(ev.ToolResult)] == [
            ("", False),
            ("UNKNOWN_TOOL", True),
        ]

    run(scenario)


@pytest.mark.parametrize("way", ["raises", "forgets", "is cancelled"])
def test_a_result_is_not_lost_to_a_broken_observer(way):
    async def scenario():
        async def broken(done, go_on):
            await go_on(done)
            if way == "raises":
                raise ZeroDivisionError("oh")
            if way == "is cancelled":
                raise asyncio.CancelledError

        agent, result = await one_call(calls(call("act")), [act], At("tool_done", broken))
        assert agent.results() == ["act: ok"]
        assert result.code == "INTERNAL"

    run(scenario)


def test_a_result_is_not_lost_to_an_observer_that_hangs():
    async def scenario():
        hanging = asyncio.Event()

        async def hang(done, go_on):
            hanging.set()
            await asyncio.Event().wait()

        async with Agent([calls(call("act"))], tools=[act], plugins=[At("tool_done", hang)]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await hanging.wait()
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert agent.results() == ["act: ok"]
            assert agent.text("act") == "did it"

    run(scenario)


def test_a_denied_call_passes_the_same_observers():
    async def scenario():
        seen = []

        async def deny(candidate, go_on):
            return Deny("no")

        async def watch(done, go_on):
            seen.append((done.candidate.tool.name, done.admitted, done.reply.code))
            return await go_on(done)

        await one_call(calls(call("act")), [act], At("tool_admit", deny), At("tool_done", watch, name="watch"))
        await one_call(calls(call("act")), [act], At("tool_done", watch))
        assert seen == [("act", False, "DENIED"), ("act", True, "")]

    run(scenario)


# --- cancel and hooks -------------------------------------------------------------------------------------------


def test_cancel_while_a_hook_in_front_of_the_body_waits():
    async def scenario():
        waiting = asyncio.Event()

        async def slow_down(admitted, go_on):
            waiting.set()
            await asyncio.Event().wait()
            return await go_on(admitted)

        plugins = [At("tool_execute", slow_down, Position.BOUND)]
        async with Agent([calls(call("act"))], tools=[act], plugins=plugins) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await waiting.wait()
            await agent.session.cancel()
            await turn
            assert agent.results() == ["act: ABORTED_BEFORE_DISPATCH"]
            assert ENTERED == []

    run(scenario)


def test_a_hook_that_calls_next_after_it_was_given_up_on_does_not_get_in():
    async def scenario():
        waiting, let_go = asyncio.Event(), asyncio.Event()
        late = []

        async def stubborn(admitted, go_on):
            waiting.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            try:
                late.append(await go_on(admitted))
            except FencepostError as error:
                late.append(error)
                raise

        plugins = [At("tool_execute", stubborn, Position.BOUND)]
        async with Agent([calls(call("act"))], tools=[act], plugins=plugins) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await waiting.wait()
            await agent.session.cancel()
            await turn
            assert agent.results() == ["act: ABORTED_BEFORE_DISPATCH"]
            let_go.set()
            await until(lambda: late)
            assert ENTERED == []
            assert agent.results() == ["act: ABORTED_BEFORE_DISPATCH"]

    run(scenario)


def test_a_retrying_hook_that_is_cancelled_between_two_attempts_keeps_the_first_answer():
    async def scenario():
        between = asyncio.Event()

        async def again(admitted, go_on):
            await go_on(admitted)
            between.set()
            await asyncio.Event().wait()

        plugins = [At("tool_execute", again, Position.RETRY)]
        async with Agent([calls(call("look"))], tools=[look], plugins=plugins) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await between.wait()
            await agent.session.cancel()
            await turn
            assert agent.results() == ["look: ok"]

    run(scenario)


def test_a_body_inside_of_hooks_still_gets_its_time_to_end_by_itself():
    async def scenario():
        entered = asyncio.Event()

        @tool
        async def tidy(context: CallContext) -> str:
            """Tidy."""
            entered.set()
            await context.cancel.wait()
            await asyncio.sleep(0)
            return "left everything tidy"

        async def watch(admitted, go_on):
            return await go_on(admitted)

        plugins = [At("tool_execute", watch, Position.OBSERVE)]
        rules = ToolRules(settle=5)
        async with Agent([calls(call("tidy"))], tools=[tidy], plugins=plugins, rules=rules) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            await agent.session.cancel()
            await turn
            assert agent.results() == ["tidy: ok"]

    run(scenario)


def test_the_answer_of_an_earlier_attempt_is_not_the_answer_of_a_later_one():
    """A read is entered twice, and everything is torn down in its second body."""
    kept = {}

    async def scenario():
        second, entered = asyncio.Event(), []

        @tool(effect="read")
        async def twice() -> str:
            """Twice."""
            entered.append(1)
            if len(entered) == 2:
                second.set()
                await asyncio.Event().wait()
            return "first answer"

        async def again(admitted, go_on):
            await go_on(admitted)
            return await go_on(admitted)

        agent = Agent([calls(call("twice"))], tools=[twice], plugins=[At("tool_execute", again, Position.RETRY)])
        await agent.__aenter__()
        kept["log"], kept["turn"] = agent.log, asyncio.create_task(agent.session.prompt("go"))
        await second.wait()

    run(scenario)
    (record,) = kept["log"].fold.calls.values()
    assert record.result.code == v.TOOL_OUTCOME_UNKNOWN


# --- nested calls -----------------------------------------------------------------------------------------------


@tool
async def both(context: CallContext, first: str, second: str) -> str:
    """Call twice."""
    one = await context.call("act", {"what": first})
    two = await context.call("act", {"what": second})
    return f"{one.text}, {two.text}"


def test_a_tool_calls_a_tool():
    async def scenario():
        agent, _ = await one_call(calls(call("both", {"first": "a", "second": "b"})), [act, both])
        assert agent.text("both") == "did a, did b"
        outer, *inner = agent.events(ev.ToolCall)
        assert [one.parent for one in inner] == [outer.call_id] * 2
        assert agent.results() == ["act: ok", "act: ok", "both: ok"]
        assert len({one.call_id for one in agent.events(ev.ToolCall)}) == 3

    run(scenario)


def test_a_nested_call_is_asked_for_too_and_its_refusal_is_a_reply():
    async def scenario():
        async def no_second(candidate, go_on):
            return Deny("enough") if candidate.arguments.get("what") == "b" else await go_on(candidate)

        agent, _ = await one_call(
            calls(call("both", {"first": "a", "second": "b"})), [act, both], At("tool_admit", no_second)
        )
        assert agent.text("both") == "did a, " + v.not_started_text("enough", NEXT_ACTS[v.DENIED])
        assert ENTERED == ["a"]
        assert len(agent.events(ev.ToolCall)) == 2

    run(scenario)


def test_a_nested_call_that_does_not_fit_is_a_reply_and_no_event():
    async def scenario():
        replies = []

        @tool
        async def clumsy(context: CallContext) -> str:
            """Clumsy."""
            replies.append(await context.call("act", {"what": 7}))
            replies.append(await context.call("no_such", {}))
            return "ok"

        agent, _ = await one_call(calls(call("clumsy")), [act, clumsy])
        assert [reply.code for reply in replies] == ["INVALID_ARGUMENTS", "UNKNOWN_TOOL"]
        assert len(agent.events(ev.ToolCall)) == 1

    run(scenario)


def test_cancel_inside_a_nested_call_answers_the_child_before_its_parent():
    async def scenario():
        entered = asyncio.Event()

        @tool
        async def forever() -> str:
            """Never ends."""
            entered.set()
            await asyncio.Event().wait()

        @tool
        async def outer(context: CallContext) -> str:
            """Calls."""
            return (await context.call("forever", {})).text

        async with Agent([calls(call("outer"))], tools=[outer, forever]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            await agent.session.cancel()
            await turn
            assert agent.results() == ["forever: TOOL_OUTCOME_UNKNOWN", "outer: TOOL_OUTCOME_UNKNOWN"]
            assert balanced(agent.log)

    run(scenario)


def test_a_parent_that_ends_first_takes_its_children_with_it():
    async def scenario():
        entered, let_go = asyncio.Event(), asyncio.Event()
        late = []

        @tool
        async def child() -> str:
            """Waits."""
            entered.set()
            await let_go.wait()
            return "at last"

        @tool
        async def parent(context: CallContext) -> str:
            """Does not wait."""
            task = asyncio.ensure_future(context.call("child", {}))
            task.add_done_callback(late.append)
            await entered.wait()
            return "I am off"

        async with Agent([calls(call("parent")), "ok"], tools=[parent, child]) as agent:
            await agent.session.prompt("go")
            assert agent.results() == ["child: TOOL_OUTCOME_UNKNOWN", "parent: ok"]
            let_go.set()
            await until(lambda: late)
            assert agent.results() == ["child: TOOL_OUTCOME_UNKNOWN", "parent: ok"]
            assert "at last" in agent.one(ev.ToolNote).text

    run(scenario)


def test_a_child_that_its_parent_left_behind_does_not_enter_its_body_later():
    async def scenario():
        waiting, let_go, late = asyncio.Event(), asyncio.Event(), []

        async def slow_down(admitted, go_on):
            if admitted.event.parent is not None:
                waiting.set()
                await let_go.wait()
            return await go_on(admitted)

        @tool
        async def parent(context: CallContext) -> str:
            """Does not wait."""
            asyncio.ensure_future(context.call("act", {})).add_done_callback(late.append)
            await waiting.wait()
            return "I am off"

        plugins = [At("tool_execute", slow_down, Position.BOUND)]
        async with Agent([calls(call("parent")), "ok"], tools=[parent, act], plugins=plugins) as agent:
            await agent.session.prompt("go")
            assert agent.results() == ["act: ABORTED_BEFORE_DISPATCH", "parent: ok"]
            let_go.set()
            await until(lambda: late)
            assert ENTERED == []
            assert agent.results() == ["act: ABORTED_BEFORE_DISPATCH", "parent: ok"]

    run(scenario)


def test_a_call_that_has_ended_calls_nothing_any_more():
    async def scenario():
        kept = []

        @tool
        async def keeps(context: CallContext) -> str:
            """Keeps its context."""
            kept.append(context)
            return "ok"

        async with Agent([calls(call("keeps")), "ok", "ok"], tools=[keeps, act]) as agent:
            await agent.session.prompt("go")
            with pytest.raises(FencepostError):
                await kept[0].call("act", {"what": "late"})
            assert ENTERED == []
            await agent.session.prompt("again")
            with pytest.raises(FencepostError):
                await kept[0].call("act", {"what": "later"})
            assert ENTERED == []
            assert balanced(agent.log)

    run(scenario)


# --- law 1, as a check ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("forged", ["none", "other event", "future"])
def test_a_gate_that_proves_nothing_lets_nothing_in(forged):
    """Where a tool gate is in force a body takes no other proof than a true one."""

    async def scenario():
        from fencepost.journal.session import Clearance

        async def careless(admitted, go_on):
            seq = admitted.event.seq
            if forged == "none":
                return await go_on(admitted)
            clearance = Clearance(0 if forged == "other event" else seq, seq)
            return await go_on(Cleared(admitted.candidate, admitted.event, clearance))

        gate = At("tool_execute", careless, Position.GATE, name="careless")
        agent, result = await one_call(calls(call("act")), [act], gate, gates=False)
        assert agent.one(ev.TurnStart).gates == ("tool", "closing")
        assert ENTERED == []
        assert agent.results() == ["act: ABORTED_BEFORE_DISPATCH"]
        assert "clearance" in result.message

    run(scenario)


def test_a_gate_of_a_third_party_works_like_ours():
    async def scenario():
        async def gate(admitted, go_on):
            return await go_on(admitted.cleared(await admitted.candidate.journal.clear(admitted.event)))

        store = TouchyStore()
        plugin = At("tool_execute", gate, Position.GATE, name="theirs")
        agent, _ = await one_call(calls(call("act")), [act], plugin, gates=False, store=store)
        assert (agent.one(ev.TurnStart).gates, agent.one(ev.TurnStart).policy) == (("tool", "closing"), "theirs")
        assert agent.results() == ["act: ok"]
        store = TouchyStore()
        store.fail(ev.ToolCall)
        agent, result = await one_call(calls(call("act")), [act], plugin, gates=False, store=store)
        assert agent.results() == ["act: NOT_SAVED"]
        assert ENTERED == ["it"]
        assert not result.saved

    run(scenario)
