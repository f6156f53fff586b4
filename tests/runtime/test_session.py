"""A live session: the inbox, cancel, going on, closing, watching."""

import asyncio

import pytest
from tests.runtime.rig import Agent, At, TouchyStore, balanced, call, calls, ended, run, until

from fencepost.core import events as ev
from fencepost.errors import Cancelled, ClosedError, CompositionError, NotSavedError, UsageError
from fencepost.runtime.subjects import Blocked
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.toolrun import ToolRules
from fencepost.runtime.tools import CallContext
from fencepost.testing import Pause


def said(agent):
    """The texts of all messages that the model saw, from whomever."""
    return [ev.text_of(one.content) for one in agent.events(ev.UserMessage)]


async def queued(agent, number):
    """Return when so many prompts were acknowledged."""
    inbox = agent.session._inbox
    await until(lambda: len(inbox.claimed) + len(inbox._turns) == number)


# --- cancelling a waiter ----------------------------------------------------------------------------------------


def test_cancelling_a_prompt_cancels_its_turn_and_a_new_prompt_works_at_once():
    async def scenario():
        entered = asyncio.Event()

        @tool
        async def forever() -> str:
            """Never ends."""
            entered.set()
            await asyncio.Event().wait()

        async with Agent([calls(call("forever")), "Fresh."], tools=[forever]) as agent:
            waiting = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert balanced(agent.log), "the turn is settled when its prompt is"
            assert agent.results() == ["forever: TOOL_OUTCOME_UNKNOWN"]
            assert agent.one(ev.TurnEnd).reason == "aborted"
            assert (await agent.session.prompt("again")).text == "Fresh."

    run(scenario)


def test_a_prompt_under_wait_for_and_under_timeout():
    async def scenario():
        pauses = [Pause("never"), Pause("never")]
        async with Agent([pauses, "x"]) as agent:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(agent.session.prompt("go"), 0.02)
            assert balanced(agent.log)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await agent.session.prompt("go")
            assert balanced(agent.log)
            assert [one.reason for one in agent.events(ev.TurnEnd)] == ["aborted", "aborted"]

    run(scenario)


def test_cancelling_a_prompt_that_waits_its_turn_takes_it_back():
    async def scenario():
        pause = Pause("one")
        async with Agent([pause, "two"]) as agent:
            first = asyncio.create_task(agent.session.prompt("1"))
            await pause.reached.wait()
            second = asyncio.create_task(agent.session.prompt("2"))
            await queued(agent, 2)
            second.cancel()
            await ended(second)
            pause.release.set()
            assert (await first).text == "one"
            assert (await agent.session.prompt("3")).text == "two"
            assert said(agent) == ["1", "3"]
            assert agent.one(ev.InputDropped).input_id == agent.events(ev.InputQueued)[1].input_id

    run(scenario)


def test_cancelling_a_prompt_before_it_is_acknowledged_takes_it_back():
    async def scenario():
        store = TouchyStore()
        async with Agent(["Fresh."], store=store) as agent:
            still = store.hold(ev.InputQueued)
            waiting = asyncio.create_task(agent.session.prompt("go"))
            await still.reached.wait()
            waiting.cancel()
            still.off()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert agent.log.fold.pending == {}
            assert (await agent.session.prompt("again")).text == "Fresh."
            assert said(agent) == ["again"]

    run(scenario)


# --- cancelling the turn ----------------------------------------------------------------------------------------


def test_cancel_between_the_acknowledgement_and_the_start_of_the_turn():
    """A person who presses Ctrl-C in that moment means this prompt."""

    async def scenario():
        async with Agent(["never", "Fresh."]) as agent:
            input_id = await agent.session.queue("go")
            await agent.session.cancel()
            assert agent.one(ev.TurnEnd).reason == "aborted"
            assert agent.one(ev.InputDropped).input_id == input_id
            assert agent.model.requests == []
            assert (await agent.session.prompt("again")).text == "never"

    run(scenario)


def test_cancel_while_the_prompt_is_being_saved():
    async def scenario():
        store = TouchyStore()
        async with Agent(["Fresh."], store=store) as agent:
            still = store.hold(ev.InputQueued)
            waiting = asyncio.create_task(agent.session.prompt("go"))
            await still.reached.wait()
            agent.session.cancel_soon()
            still.off()
            assert (await waiting).reason == "aborted"
            assert agent.model.requests == []
            assert (await agent.session.prompt("again")).text == "Fresh."

    run(scenario)


def test_a_cancel_that_met_a_prompt_which_could_not_be_saved_does_not_hit_the_next_one():
    async def scenario():
        store = TouchyStore()
        async with Agent(["Fresh."], store=store) as agent:
            full, still = store.fail(ev.InputQueued), store.hold(ev.InputQueued)
            store.rules.reverse()
            waiting = asyncio.create_task(agent.session.prompt("go"))
            await still.reached.wait()
            agent.session.cancel_soon()
            still.off()
            with pytest.raises(NotSavedError):
                await waiting
            full.off()
            assert (await agent.session.prompt("again")).text == "Fresh."

    run(scenario)


def test_cancel_without_a_turn_does_nothing():
    async def scenario():
        async with Agent(["Hello."]) as agent:
            await agent.session.cancel()
            agent.session.cancel_soon()
            assert (await agent.session.prompt("hi")).text == "Hello."
            await agent.session.cancel()
            assert len(agent.events(ev.TurnStart)) == 1

    run(scenario)


def test_a_person_who_cancels_takes_back_what_the_model_has_not_seen():
    async def scenario():
        hanging = asyncio.Event()

        async def hang(plan, go_on):
            hanging.set()
            await asyncio.Event().wait()

        async with Agent(["never"], plugins=[At("before_step", hang)]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await hanging.wait()
            await agent.session.steer("and quick")
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert agent.log.fold.pending == {}
            assert len(agent.events(ev.InputDropped)) == 2
            assert len(agent.events(ev.TurnStart)) == 1, "what was to steer the turn does not start one of its own"

    run(scenario)


def test_cancel_leaves_queued_prompts_alone():
    async def scenario():
        pause = Pause("never")
        async with Agent([[pause, "two"]]) as agent:
            first = asyncio.create_task(agent.session.prompt("1"))
            await pause.reached.wait()
            second = asyncio.create_task(agent.session.prompt("2"))
            await queued(agent, 2)
            await agent.session.cancel()
            assert (await first).reason == "aborted"
            assert (await second).text == "two"

    run(scenario)


# --- steering ---------------------------------------------------------------------------------------------------


def test_steering_an_idle_session_is_a_turn_of_its_own():
    async def scenario():
        async with Agent(["Hello."]) as agent:
            await agent.session.steer("hi")
            await until(lambda: agent.events(ev.TurnEnd))
            assert said(agent) == ["hi"]

    run(scenario)


def test_steering_during_a_call_goes_in_with_its_result():
    async def scenario():
        entered, let_go = asyncio.Event(), asyncio.Event()

        @tool
        async def act() -> str:
            """Act."""
            entered.set()
            await let_go.wait()
            return "done"

        async with Agent([calls(call("act")), "ok"], tools=[act]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            await agent.session.steer("stop after this")
            let_go.set()
            await turn
            roles = [type(message).__name__ for message in agent.model.requests[1].messages]
            assert roles == ["UserTurn", "AssistantTurn", "ToolAnswer", "UserTurn"]

    run(scenario)


def test_an_empty_prompt_is_refused():
    async def scenario():
        async with Agent(["never"]) as agent:
            with pytest.raises(UsageError, match="empty"):
                await agent.session.prompt(" \n")
            assert agent.shape() == []

    run(scenario)


# --- going on ---------------------------------------------------------------------------------------------------


async def killed(store, *, upto, answers=(), tools=(), prompts=("go",), queue=()):
    """Leave a session as a crash leaves it: everything durable up to the first event of a kind, nothing behind."""
    agent = Agent(answers, store=store, tools=tools)
    await agent.__aenter__()
    still = store.hold(upto)
    turn = asyncio.create_task(agent.session.prompt(prompts[0]))
    await still.reached.wait()
    agent.session._pump.cancel()
    for handle in [agent.session.journal._handle]:
        await handle.inner.release()
    turn.cancel()
    store.rules.clear()


def test_nothing_runs_because_a_session_was_resumed():
    async def scenario():
        store = TouchyStore()
        await killed(store, upto=ev.StepStart)
        async with Agent(["At last."], store=store) as agent:
            for _ in range(50):
                await asyncio.sleep(0)
            assert agent.model.requests == []
            assert agent.session.recovery.interrupted == 1
            assert [ev.text_of(item.content) for item in agent.log.fold.pending.values()] == ["go"]
            assert agent.session.idle

    run(scenario)


def test_going_on_gives_the_interrupted_turn_the_prompt_that_it_never_saw():
    async def scenario():
        store = TouchyStore()
        await killed(store, upto=ev.StepStart)
        async with Agent(["At last."], store=store) as agent:
            result = await agent.session.go_on()
            assert (result.turn, result.text) == (2, "At last.")
            assert [one.continues for one in agent.events(ev.TurnStart)] == [None, 1]
            assert said(agent) == ["go"]
            assert await agent.session.go_on() is None
            assert len(agent.events(ev.TurnStart)) == 2

    run(scenario)


@tool
async def act() -> str:
    """Act."""
    return "did it"


def test_going_on_answers_the_results_that_the_model_has_not_seen():
    async def scenario():
        store = TouchyStore()
        await killed(store, upto=ev.ToolResult, answers=[calls(call("act"))], tools=[act])
        async with Agent([calls(call("act")), "I see."], store=store, tools=[act]) as agent:
            assert agent.results() == ["act: TOOL_OUTCOME_UNKNOWN"]
            result = await agent.session.go_on()
            assert result.text == "I see."
            assert said(agent) == ["go"]
            assert len(agent.model.requests) == 1

    run(scenario)


def test_going_on_with_a_turn_that_had_its_answer_sends_nothing():
    async def scenario():
        store = TouchyStore()
        answers = ["All done."]
        agent = Agent(answers, store=store)
        await agent.__aenter__()
        await agent.session.prompt("go")
        end = agent.one(ev.TurnEnd).seq
        events = list(agent.log.events())[:end]
        await agent.runtime.close()
        store = TouchyStore()
        handle = await store.create(agent.log.header)
        await handle.append(events, 0)
        await handle.release()
        async with Agent(answers, store=store) as agent:
            assert agent.session.recovery.interrupted == 1
            result = await agent.session.go_on()
            assert (result.reason, result.text) == ("completed", "All done.")
            assert agent.model.requests == []
            assert balanced(agent.log)

    run(scenario)


def test_prompts_that_were_queued_behind_the_interrupted_turn_keep_their_own_turns():
    async def scenario():
        store, pause = TouchyStore(), Pause("never")
        agent = Agent([pause], store=store)
        await agent.__aenter__()
        turn = asyncio.create_task(agent.session.prompt("1"))
        await pause.reached.wait()
        await agent.session.queue("2")
        await agent.session.steer("quick")
        agent.session._pump.cancel()
        await agent.session.journal._handle.inner.release()
        await ended(turn)
        async with Agent(["one", "two"], store=store) as agent:
            assert [item.target for item in agent.log.fold.pending.values()] == ["turn", "step"]
            result = await agent.session.go_on()
            assert (result.turn, result.text) == (3, "two")
            assert said(agent) == ["1", "quick", "2"]
            assert [one.continues for one in agent.events(ev.TurnStart)] == [None, 1, None]

    run(scenario)


def test_a_turn_that_was_gone_on_with_and_interrupted_again_takes_no_other_prompt_either():
    async def scenario():
        store = TouchyStore()
        await killed(store, upto=ev.ToolResult, answers=[calls(call("act"))], tools=[act])
        pause = Pause("never")
        agent = Agent(["x", pause], store=store, tools=[act])
        await agent.__aenter__()
        going = asyncio.create_task(agent.session.go_on())
        await pause.reached.wait()
        await agent.session.queue("2")
        agent.session._pump.cancel()
        await agent.session.journal._handle.inner.release()
        await ended(going)
        async with Agent(["x", "one", "two"], store=store, tools=[act]) as agent:
            result = await agent.session.go_on()
            assert (result.turn, result.text) == (4, "two")
            assert [one.continues for one in agent.events(ev.TurnStart)] == [None, 1, 2, None]
            assert said(agent) == ["go", "2"]

    run(scenario)


def test_going_on_twice_at_once_is_refused():
    async def scenario():
        store = TouchyStore()
        await killed(store, upto=ev.StepStart)
        async with Agent(["At last."], store=store) as agent:
            first = asyncio.create_task(agent.session.go_on())
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="busy"):
                await agent.session.go_on()
            assert (await first).text == "At last."

    run(scenario)


def test_cancelling_going_on_ends_the_turn_and_leaves_the_rest_pending():
    async def scenario():
        store, pause = TouchyStore(), Pause("never")
        await killed(store, upto=ev.StepStart)
        async with Agent([[pause, "At last."]], store=store) as agent:
            agent.session.journal.append(ev.InputQueued, input_id="left", target="turn", content=(ev.Text("later"),))
            going = asyncio.create_task(agent.session.go_on())
            await pause.reached.wait()
            going.cancel()
            await ended(going)
            assert balanced(agent.log)
            assert list(agent.log.fold.pending) == ["left"]
            for _ in range(20):
                await asyncio.sleep(0)
            assert len(agent.events(ev.TurnStart)) == 2
            assert (await agent.session.go_on()).text == "At last."

    run(scenario)


def test_a_blocked_prompt_can_be_taken_up_again():
    async def scenario():
        blocked = True

        async def guard(plan, go_on):
            if blocked:
                raise Blocked("not now")
            await go_on(plan)

        async with Agent(["Now."], plugins=[At("before_step", guard)]) as agent:
            assert (await agent.session.prompt("go")).reason == "blocked"
            blocked = False
            assert (await agent.session.go_on()).text == "Now."
            assert said(agent) == ["go"]

    run(scenario)


# --- closing ----------------------------------------------------------------------------------------------------


def test_closing_cancels_the_turn_and_keeps_what_the_model_has_not_seen():
    async def scenario():
        store, pause = TouchyStore(), Pause("never")
        async with Agent([pause], store=store) as agent:
            first = asyncio.create_task(agent.session.prompt("1"))
            await pause.reached.wait()
            second = asyncio.create_task(agent.session.prompt("2"))
            await queued(agent, 2)
            await agent.session.close()
            assert (await first).reason == "aborted"
            assert agent.one(ev.TurnEnd).message == "closing"
            with pytest.raises(ClosedError):
                await second
            assert [ev.text_of(item.content) for item in agent.log.fold.pending.values()] == ["2"]
            assert agent.session.journal.watermark == agent.log.fold.next_seq - 1
            with pytest.raises(ClosedError):
                await agent.session.prompt("3")
            with pytest.raises(ClosedError):
                await agent.session.go_on()
            assert store.released == ["s1"]

    run(scenario)


def test_closing_while_a_prompt_is_being_saved_does_not_leave_it_waiting_for_ever():
    async def scenario():
        store = TouchyStore()
        async with Agent(["never"], store=store) as agent:
            still = store.hold(ev.InputQueued)
            waiting = asyncio.create_task(agent.session.prompt("go"))
            await still.reached.wait()
            closing = asyncio.create_task(agent.session.close())
            await until(agent.session._pump.done)
            await asyncio.sleep(0)
            still.off()
            await closing
            with pytest.raises(ClosedError, match="kept"):
                await waiting
            assert [ev.text_of(item.content) for item in agent.log.fold.pending.values()] == ["go"]

    run(scenario)


def test_closing_while_a_tool_hangs_comes_back_within_the_bound():
    async def scenario():
        entered = asyncio.Event()

        @tool
        async def stubborn() -> str:
            """Stubborn."""
            entered.set()
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    if done:
                        raise

        done = []
        rules = ToolRules(settle=0.01, drain=0.01)
        async with Agent([calls(call("stubborn"))], tools=[stubborn], rules=rules) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            await agent.session.close()
            assert (await turn).reason == "aborted"
            assert agent.shape()[-3:] == ["tool/result", "step/end", "turn/end"]
            assert agent.results() == ["stubborn: TOOL_OUTCOME_UNKNOWN"]
            done.append(True)

    run(scenario)


def test_closing_twice_is_closing_once():
    async def scenario():
        store = TouchyStore()
        async with Agent(["Hello."], store=store) as agent:
            await agent.session.prompt("hi")
            await asyncio.gather(agent.session.close(), agent.session.close())
            await agent.session.close()
            assert store.released == ["s1"]

    run(scenario)


def test_closing_with_a_store_that_fails_says_so_and_gives_the_session_up():
    async def scenario():
        store = TouchyStore()
        async with Agent(["Hello.", "one"], store=store) as agent:
            await agent.session.prompt("hi")
            full = store.fail()
            agent.session.journal.append(ev.ToolNote, call_id="c", text="not saved")
            with pytest.raises(NotSavedError):
                await agent.session.close()
            with pytest.raises(NotSavedError):
                await agent.session.close()
            full.off()
            assert store.released == ["s1"]
            stored = await store.read("s1")
            assert stored.owner is None
            assert isinstance(stored.entries[-1], ev.TurnEnd)

    run(scenario)


def test_leaving_without_closing_is_told_to_those_who_wait():
    """The pump dies with its event loop: nobody may wait for a turn that will not come."""

    async def scenario():
        pause = Pause("never")
        async with Agent([pause]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await pause.reached.wait()
            agent.session._pump.cancel()
            with pytest.raises(ClosedError, match="event loop"):
                await turn
            assert balanced(agent.log)

    run(scenario)


def test_a_runtime_without_a_model_takes_no_prompt_and_looks_all_the_same():
    async def scenario():
        store = TouchyStore()
        await killed(store, upto=ev.StepStart)
        agent = Agent(["x"], store=store)
        agent.runtime.model = None
        async with agent:
            assert agent.session.recovery.interrupted == 1
            for act_on in (agent.session.prompt("go"), agent.session.queue("go"), agent.session.go_on()):
                with pytest.raises(CompositionError, match="no model"):
                    await act_on
            assert balanced(agent.log)

    run(scenario)


def test_a_prompt_that_nobody_waits_for_is_not_reported_as_forgotten():
    async def scenario():
        import gc

        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))
        pause = Pause("never")
        async with Agent([pause]) as agent:
            await agent.session.queue("1")
            await pause.reached.wait()
            await agent.session.queue("2")
        gc.collect()
        assert reported == []

    run(scenario)


# --- watching ---------------------------------------------------------------------------------------------------


def test_watching_gives_every_event_once_and_ends_with_the_session():
    async def scenario():
        async with Agent(["Hello there, you.", "two"]) as agent:
            live = asyncio.create_task(collect(agent.session.events()))
            kept = asyncio.create_task(collect(agent.session.events(durable=True)))
            await agent.session.prompt("1")
            late = asyncio.create_task(collect(agent.session.events(3)))
            await agent.session.prompt("2")
            await agent.session.close()
            everything = list(agent.log.events())
            assert await live == everything
            assert await kept == everything
            assert await late == everything[3:]
            assert await collect(agent.session.events()) == everything, "a closed session still tells its events"

    run(scenario)


async def collect(events):
    return [event async for event in events]


def test_watching_what_is_durable_never_shows_what_is_not():
    async def scenario():
        store = TouchyStore()
        async with Agent(["Hello."], store=store) as agent:
            shown = []

            async def watch():
                async for event in agent.session.events(durable=True):
                    shown.append(event.seq)
                    assert event.seq <= agent.session.journal.watermark

            watcher = asyncio.create_task(watch())
            still = store.hold(ev.StepStart)
            turn = asyncio.create_task(agent.session.prompt("go"))
            await still.reached.wait()
            await until(lambda: shown == [0, 1, 2])
            assert agent.log.fold.next_seq > 3
            still.off()
            await turn
            await agent.session.close()
            await watcher
            assert shown == list(range(agent.log.fold.next_seq))

    run(scenario)


def test_a_watcher_that_leaves_early_is_forgotten():
    async def scenario():
        async with Agent(["Hello."]) as agent:
            await agent.session.prompt("go")
            events = agent.session.events()
            async for _event in events:
                break
            await events.aclose()
            assert not agent.session._watchers
            assert len(agent.log._subscribers) == 1, "only the writer listens"

    run(scenario)


def test_a_listener_that_breaks_does_not_break_what_it_listens_to():
    async def scenario():
        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))

        @tool
        async def speaks(context: CallContext) -> str:
            """Speaks."""
            context.progress("hm")
            return "ok"

        async with Agent([calls(call("speaks")), "ok"], tools=[speaks]) as agent:
            agent.session.on_notice(lambda notice: 1 / 0)
            await agent.session.prompt("go")
            assert agent.results() == ["speaks: ok"]
            assert reported == ["a listener of session s1 failed"]

    run(scenario)


def test_taking_a_prompt_back_tells_who_waits():
    async def scenario():
        pause = Pause("one")
        async with Agent([pause]) as agent:
            first = asyncio.create_task(agent.session.prompt("1"))
            await pause.reached.wait()
            second = asyncio.create_task(agent.session.prompt("2"))
            await queued(agent, 2)
            await agent.session.drop(agent.events(ev.InputQueued)[1].input_id)
            with pytest.raises(Cancelled):
                await second
            pause.release.set()
            await first

    run(scenario)
