"""The order of a turn, exactly: the events of a log for each way that a turn can go."""

import asyncio

import pytest
from tests.runtime.rig import Agent, At, TouchyStore, balanced, call, calls, ended, run, until

from fencepost.core import events as ev
from fencepost.core import projection
from fencepost.errors import ModelError
from fencepost.plugins.approval import Approval
from fencepost.plugins.retry import Retry
from fencepost.runtime.subjects import Blocked
from fencepost.runtime.toolmaker import tool
from fencepost.testing import Cut, Pause

BEGIN = ["session/owner", "input/queued", "turn/start"]
FIRST = ["step/start", "user/message", "request/header"]
CHUNKS = "assistant/chunk"
ANSWER = "assistant/message"
END = ["step/end", "turn/end"]


@tool(effect="read")
async def look() -> str:
    """Look."""
    return "a tree"


@tool
async def cut_down(what: str) -> str:
    """Cut."""
    return f"{what} is down"


# --- the plain ways ---------------------------------------------------------------------------------------------


def test_a_plain_answer():
    async def scenario():
        async with Agent(["Hello there."]) as agent:
            result = await agent.session.prompt("hi")
            assert agent.shape() == [*BEGIN, *FIRST, CHUNKS, ANSWER, *END]
            assert (result.turn, result.reason, result.text, result.saved) == (1, "completed", "Hello there.", True)
            start, end = agent.one(ev.TurnStart), agent.one(ev.TurnEnd)
            assert start.gates == ("step", "request", "tool", "closing")
            assert start.policy == "checkpoint"
            assert (end.reason, end.code) == ("completed", "")
            assert agent.one(ev.UserMessage).input_id == agent.one(ev.InputQueued).input_id
            assert "".join(chunk.delta for chunk in agent.events(ev.AssistantChunk)) == "Hello there."
            assert agent.session.journal.watermark == agent.log.fold.next_seq - 1

    run(scenario)


def test_answers_with_calls():
    async def scenario():
        answers = [calls(call("look"), content="I look."), calls(call("cut_down", {"what": "it"})), "Down."]
        async with Agent(answers, tools=[look, cut_down]) as agent:
            result = await agent.session.prompt("cut the tree")
            one_call = ["tool/call", "tool/result", "step/end"]
            assert agent.shape() == [
                *BEGIN,
                *(*FIRST, CHUNKS, ANSWER, *one_call),
                *("step/start", ANSWER, *one_call),
                *("step/start", CHUNKS, ANSWER, *END),
            ]
            assert result.text == "Down."
            assert [(one.turn, one.step) for one in agent.events(ev.StepStart)] == [(1, 1), (1, 2), (1, 3)]
            assert [one.arguments for one in agent.events(ev.ToolCall)] == [{}, {"what": "it"}]
            assert [one.effect for one in agent.events(ev.ToolCall)] == ["read", "write"]

    run(scenario)


def test_the_header_is_written_when_it_changes_and_for_each_new_writer_only():
    async def scenario():
        async with Agent(["one", "two"]) as agent:
            await agent.session.prompt("1")
            await agent.session.prompt("2")
            assert [one.reason for one in agent.events(ev.RequestHeader)] == ["initial"]
            store = agent.store
            await agent.session.close()
            async with Agent(["one", "two", "three", "four"], store=store, tools=[look]) as later:
                await later.session.prompt("3")
                await later.session.prompt("4")
                assert [one.reason for one in later.events(ev.RequestHeader)] == ["initial", "resume"]
                assert [spec.name for spec in later.events(ev.RequestHeader)[-1].tools] == ["look"]

    run(scenario)


def test_a_header_that_changes_in_a_living_session_is_written_again():
    async def scenario():
        async with Agent(["one", "two", "three"]) as agent:
            await agent.session.prompt("1")
            agent.runtime.tools["look"] = look
            await agent.session.prompt("2")
            await agent.session.prompt("3")
            assert [one.reason for one in agent.events(ev.RequestHeader)] == ["initial", "change"]

    run(scenario)


def test_settings_that_json_writes_differently_are_still_the_same_settings():
    async def scenario():
        from fencepost.testing import ScriptedModel

        model = ScriptedModel(["one", "two"], settings={"stop": ("END", "\ud800"), "top": float("inf")})
        async with Agent(model) as agent:
            await agent.session.prompt("1")
            await agent.session.prompt("2")
            assert len(agent.events(ev.RequestHeader)) == 1

    run(scenario)


# --- calls that do not run --------------------------------------------------------------------------------------


def test_denied_unknown_and_invalid_calls_have_a_result_and_no_tool_call():
    async def scenario():
        answers = [
            calls(
                call("cut_down", {"what": "it"}),
                call("no_such"),
                call("look", {"far": 1}),
                call("look", "{not json"),
            ),
            "I see.",
        ]
        async with Agent(answers, tools=[look, cut_down], plugins=[Approval("read")]) as agent:
            await agent.session.prompt("go")
            assert agent.shape() == [
                *(*BEGIN, *FIRST, ANSWER, "tool/result", "step/end"),
                *("step/start", CHUNKS, ANSWER, *END),
            ]
            assert agent.results() == [
                "cut_down: DENIED",
                "no_such: UNKNOWN_TOOL",
                "look: INVALID_ARGUMENTS",
                "look: INVALID_ARGUMENTS",
            ]
            assert all(one.is_error for one in agent.events(ev.ToolResult))
            assert "--approve all" in agent.text("cut_down")
            assert "cut_down, look" in agent.text("no_such")

    run(scenario)


# --- input while a turn runs ------------------------------------------------------------------------------------


def test_steering_goes_into_the_next_step_though_no_call_is_owed():
    async def scenario():
        pause = Pause("First answer.", after=1)
        async with Agent([pause, "Second answer."]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await pause.reached.wait()
            steer = await agent.session.steer("and be quick")
            pause.release.set()
            result = await turn
            assert result.text == "Second answer."
            assert agent.shape() == [
                *(*BEGIN, *FIRST, CHUNKS, "input/queued", CHUNKS, ANSWER, "step/end"),
                *("step/start", "user/message", CHUNKS, ANSWER, *END),
            ]
            assert [one.target for one in agent.events(ev.InputQueued)] == ["turn", "step"]
            assert agent.events(ev.UserMessage)[1].input_id == steer
            assert len(agent.events(ev.TurnStart)) == 1

    run(scenario)


def test_queued_prompts_run_in_order_each_in_its_own_turn():
    async def scenario():
        pause = Pause("one")
        async with Agent([pause, "two", "three"]) as agent:
            first = asyncio.create_task(agent.session.prompt("1"))
            await pause.reached.wait()
            second = asyncio.create_task(agent.session.prompt("2"))
            await until(lambda: len(agent.events(ev.InputQueued)) == 2)
            third = asyncio.create_task(agent.session.prompt("3"))
            await until(lambda: len(agent.events(ev.InputQueued)) == 3)
            pause.release.set()
            results = await asyncio.gather(first, second, third)
            assert [(one.turn, one.text) for one in results] == [(1, "one"), (2, "two"), (3, "three")]
            assert [ev.text_of(one.content) for one in agent.events(ev.UserMessage)] == ["1", "2", "3"]
            assert balanced(agent.log)

    run(scenario)


def test_a_dropped_prompt_does_not_run():
    async def scenario():
        from fencepost.errors import Cancelled, UsageError

        pause = Pause("one")
        async with Agent([pause, "three"]) as agent:
            first = asyncio.create_task(agent.session.prompt("1"))
            await pause.reached.wait()
            second = asyncio.create_task(agent.session.prompt("2"))
            await until(lambda: len(agent.events(ev.InputQueued)) == 2)
            await agent.session.queue("3")
            dropped = agent.events(ev.InputQueued)[1].input_id
            await agent.session.drop(dropped)
            with pytest.raises(Cancelled, match="taken back"):
                await second
            with pytest.raises(UsageError, match="not pending"):
                await agent.session.drop(dropped)
            pause.release.set()
            await first
            await until(lambda: len(agent.events(ev.TurnEnd)) == 2)
            assert [ev.text_of(one.content) for one in agent.events(ev.UserMessage)] == ["1", "3"]
            assert agent.one(ev.InputDropped).input_id == dropped

    run(scenario)


def test_a_prompt_that_is_dropped_while_its_step_gate_waits_makes_no_request():
    async def scenario():
        store = TouchyStore()
        async with Agent(["never"], store=store) as agent:
            gate = store.hold(ev.TurnStart)
            turn = asyncio.create_task(agent.session.prompt("1"))
            await gate.reached.wait()
            drop = asyncio.create_task(agent.session.drop(agent.one(ev.InputQueued).input_id))
            await until(lambda: agent.events(ev.InputDropped))
            gate.release.set()
            await drop
            await ended(turn)
            await until(lambda: agent.events(ev.TurnEnd))
            assert agent.shape() == [*BEGIN, "input/dropped", "turn/end"]
            assert agent.one(ev.TurnEnd).reason == "aborted"
            assert agent.model.requests == []

    run(scenario)


# --- policies of the turn ---------------------------------------------------------------------------------------


def test_a_turn_that_is_stopping_can_be_told_to_go_on():
    async def scenario():
        said = []

        async def once(turn, go_on):
            said.append(turn.text)
            return "Check it again." if len(said) == 1 else await go_on(turn)

        async with Agent(["Done.", "Checked."], plugins=[At("turn_stopping", once)]) as agent:
            result = await agent.session.prompt("go")
            assert said == ["Done.", "Checked."]
            assert result.text == "Checked."
            assert agent.shape() == [
                *(*BEGIN, *FIRST, CHUNKS, ANSWER, "step/end"),
                *("step/start", "user/message", CHUNKS, ANSWER, *END),
            ]
            message = agent.events(ev.UserMessage)[1]
            assert (message.source, message.input_id) == ("plugin", None)

    run(scenario)


def test_a_blocked_turn_makes_no_step_and_leaves_the_prompt_pending():
    async def scenario():
        async def block(plan, go_on):
            raise Blocked("the budget of this month is used up")

        async with Agent(["never"], plugins=[At("before_step", block)]) as agent:
            result = await agent.session.prompt("go")
            assert agent.shape() == [*BEGIN, "turn/end"]
            assert (result.reason, result.code) == ("blocked", "BLOCKED")
            assert "budget" in result.message
            assert list(agent.log.fold.pending) == [agent.one(ev.InputQueued).input_id]
            assert agent.model.requests == []

    run(scenario)


def test_a_policy_that_breaks_ends_the_turn_with_an_error():
    async def scenario():
        async def broken(plan, go_on):
            raise ZeroDivisionError("oh")

        async with Agent(["never"], plugins=[At("before_step", broken)]) as agent:
            result = await agent.session.prompt("go")
            assert (result.reason, result.code, result.message) == ("error", "INTERNAL", "ZeroDivisionError: oh")
            assert agent.shape() == [*BEGIN, "turn/end"]

    run(scenario)


# --- answers that are none --------------------------------------------------------------------------------------


def test_output_that_is_cut_at_the_limit_runs_no_tools():
    async def scenario():
        cut = {**calls(call("cut_down", {"what": "it"}), content="I cut"), "finish_reason": "length"}
        async with Agent([cut], tools=[cut_down]) as agent:
            result = await agent.session.prompt("go")
            assert agent.shape() == [*BEGIN, *FIRST, CHUNKS, ANSWER, *END]
            assert (result.reason, result.code, result.text) == ("max_tokens", "MAX_TOKENS", "I cut")
            assert ev.calls_of(agent.one(ev.AssistantMessage)) == ()

    run(scenario)


def test_a_filtered_answer_is_an_error():
    async def scenario():
        async with Agent([{"content": "I", "finish_reason": "content_filter"}]) as agent:
            result = await agent.session.prompt("go")
            assert agent.shape() == [*BEGIN, *FIRST, CHUNKS, ANSWER, *END]
            assert (result.reason, result.code) == ("error", "CONTENT_FILTER")

    run(scenario)


def test_a_cut_stream_is_kept_retried_inside_the_step_and_not_taken_for_an_answer():
    async def scenario():
        answers = [[Cut("half an answer", after=2), "A whole answer."]]
        async with Agent(answers, plugins=[Retry()], configured={"retry": {"base": 0}}) as agent:
            result = await agent.session.prompt("go")
            assert result.text == "A whole answer."
            assert agent.shape() == [*BEGIN, *FIRST, CHUNKS, "request/retry", CHUNKS, ANSWER, *END]
            retry = agent.one(ev.RequestRetry)
            assert (retry.turn, retry.step, retry.attempt, retry.code) == (1, 1, 1, "TRUNCATED")
            assert len(agent.events(ev.AssistantMessage)) == 1

    run(scenario)


def test_a_stream_that_stays_cut_is_given_up_and_what_was_seen_stays_as_interrupted():
    async def scenario():
        async with Agent([Cut(calls(call("cut_down", {"what": "it"}), content="I shall cut"), after=2)]) as agent:
            result = await agent.session.prompt("go")
            assert agent.shape() == [*BEGIN, *FIRST, CHUNKS, ANSWER, *END]
            assert (result.reason, result.code, result.text) == ("error", "TRUNCATED", "")
            message = agent.one(ev.AssistantMessage)
            assert (message.finish, message.interrupted) == ("truncated", True)
            assert ev.calls_of(message) == ()
            assert ev.text_of(message.content) == "I shall "
            assert projection.messages(agent.log) == (projection.UserTurn((ev.Text("go"),)),)

    run(scenario)


def test_a_model_that_claims_to_be_truncated_is_believed():
    async def scenario():
        from fencepost.runtime.models import Finished, TextDelta

        class Honest:
            provider, model, settings = "test", "honest", {}

            async def stream(self, request):
                yield TextDelta("so far")
                yield Finished("truncated")

            def body(self, request):
                return {}

            async def close(self):
                pass

        async with Agent(Honest()) as agent:
            result = await agent.session.prompt("go")
            assert (result.reason, result.code) == ("error", "TRUNCATED")
            assert agent.one(ev.AssistantMessage).interrupted

    run(scenario)


def test_an_error_of_the_model_ends_the_turn_and_a_new_prompt_works():
    async def scenario():
        refused = ModelError("no such model", code="NOT_FOUND", status=404)
        async with Agent([[refused, "Now it works."]]) as agent:
            result = await agent.session.prompt("go")
            assert agent.shape() == [*BEGIN, *FIRST, *END]
            assert (result.reason, result.code) == ("error", "NOT_FOUND")
            start = agent.log.fold.next_seq
            result = await agent.session.prompt("again")
            assert result.text == "Now it works."
            assert agent.shape(start) == [*BEGIN[1:], *FIRST[:2], CHUNKS, ANSWER, *END]

    run(scenario)


def test_a_model_that_raises_what_it_should_not_leaves_a_closed_transcript():
    async def scenario():
        class Broken:
            provider, model, settings = "test", "broken", {}

            def stream(self, request):
                raise KeyError("choices")

            def body(self, request):
                return {}

            async def close(self):
                pass

        async with Agent(Broken()) as agent:
            result = await agent.session.prompt("go")
            assert (result.reason, result.code) == ("error", "INTERNAL")
            assert agent.shape() == [*BEGIN, *FIRST, *END]

    run(scenario)


# --- cancel -----------------------------------------------------------------------------------------------------


def test_cancel_while_streaming_keeps_what_was_seen_as_interrupted():
    async def scenario():
        pause = Pause(calls(call("look"), content="I was about to"), after=3)
        async with Agent([pause, "Fresh."], tools=[look]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await pause.reached.wait()
            await agent.session.cancel()
            result = await turn
            assert agent.shape() == [*BEGIN, *FIRST, CHUNKS, ANSWER, *END]
            assert (result.reason, result.code, result.message) == ("aborted", "CANCELLED", "user")
            message = agent.one(ev.AssistantMessage)
            assert (message.finish, message.interrupted) == ("cancelled", True)
            assert ev.text_of(message.content) == "I was about "
            assert agent.one(ev.TurnEnd).reason == "aborted"
            assert result.saved

    run(scenario)


def test_cancel_before_anything_was_seen_leaves_no_answer():
    async def scenario():
        pause = Pause("never")
        async with Agent([pause], tools=[look]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await pause.reached.wait()
            await agent.session.cancel()
            await turn
            assert agent.shape() == [*BEGIN, *FIRST, *END]

    run(scenario)


def test_cancel_during_the_wait_for_a_retry_ends_the_turn_and_takes_back_the_failed_words():
    async def scenario():
        plugins, configured = [Retry()], {"retry": {"base": 100}}
        async with Agent([Cut("half of it", after=1)], plugins=plugins, configured=configured) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: agent.events(ev.RequestRetry))
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert agent.shape() == [*BEGIN, *FIRST, CHUNKS, "request/retry", *END]
            assert len(agent.model.requests) == 1

    run(scenario)


@pytest.mark.parametrize("point", ["before_step", "model_request", "turn_stopping"])
def test_cancel_gets_through_a_hook_that_hangs(point):
    async def scenario():
        entered = asyncio.Event()

        async def hang(subject, go_on):
            entered.set()
            await asyncio.Event().wait()

        async with Agent(["Done."], plugins=[At(point, hang)]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert balanced(agent.log)

    run(scenario)


@pytest.mark.parametrize("point", ["before_step", "model_request", "turn_stopping"])
def test_a_hook_that_swallows_the_cancellation_does_not_keep_the_turn(point):
    async def scenario():
        entered, let_go = asyncio.Event(), asyncio.Event()

        async def stubborn(subject, go_on):
            entered.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            return await go_on(subject)

        async with Agent(["Done.", "More."], plugins=[At(point, stubborn)]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            before = len(agent.model.requests)
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            end = agent.log.fold.next_seq
            let_go.set()
            await asyncio.sleep(0.01)
            assert len(agent.model.requests) == before, "no request leaves after the cancel"
            assert agent.log.fold.next_seq == end

    run(scenario)


def test_a_hook_that_is_cancelled_from_inside_is_a_fault_not_the_end_of_the_session():
    async def scenario():
        async def cancelled(plan, go_on):
            if plan.turn == 1:
                raise asyncio.CancelledError
            await go_on(plan)

        async with Agent(["Fine."], plugins=[At("before_step", cancelled)]) as agent:
            result = await agent.session.prompt("go")
            assert (result.reason, result.code) == ("error", "INTERNAL")
            assert (await agent.session.prompt("again")).text == "Fine."

    run(scenario)


def test_a_model_that_does_not_end_when_told_to_is_left_behind():
    async def scenario():
        from fencepost.runtime.models import Finished, TextDelta

        streaming, let_go = asyncio.Event(), asyncio.Event()

        class Stubborn:
            provider, model, settings = "test", "stubborn", {}

            async def stream(self, request):
                yield TextDelta("before ")
                streaming.set()
                while not let_go.is_set():
                    try:
                        await let_go.wait()
                    except asyncio.CancelledError:
                        continue
                yield TextDelta("after")
                yield Finished("stop")

            def body(self, request):
                return {}

            async def close(self):
                pass

        async with Agent(Stubborn()) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await streaming.wait()
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            let_go.set()
            await asyncio.sleep(0.01)
            assert [one.delta for one in agent.events(ev.AssistantChunk)] == ["before "]
            assert balanced(agent.log)

    run(scenario)


def test_an_error_that_a_cancel_overtakes_is_not_reported_as_forgotten():
    async def scenario():
        import gc

        reported = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context["message"]))

        async def both(attempt, go_on):
            agent.session.cancel_soon()
            raise ModelError("gone")
            yield

        async with Agent(["never"], plugins=[At("model_stream", both)]) as agent:
            assert (await agent.session.prompt("go")).reason == "aborted"
        gc.collect()
        assert reported == []

    run(scenario)


def test_the_cancel_wins_over_an_answer_that_just_came():
    async def scenario():
        async def late(attempt, go_on):
            answer = await go_on(attempt)
            agent.session.cancel_soon()
            return answer

        cut = {"content": "so far", "finish_reason": "length"}
        async with Agent([cut, "done"], plugins=[At("model_request", late)]) as agent:
            for _ in range(2):
                assert (await agent.session.prompt("go")).reason == "aborted"

    run(scenario)


# --- what the model sees ----------------------------------------------------------------------------------------


def test_results_go_back_in_the_models_order():
    async def scenario():
        second = asyncio.Event()

        @tool(effect="read")
        async def slow() -> str:
            """Slow."""
            await second.wait()
            return "slow"

        @tool(effect="read")
        async def fast() -> str:
            """Fast."""
            second.set()
            return "fast"

        async with Agent([calls(call("slow"), call("fast")), "ok"], tools=[slow, fast]) as agent:
            await agent.session.prompt("go")
            assert agent.results() == ["fast: ok", "slow: ok"]
            answers = [one for one in agent.model.requests[1].messages if isinstance(one, projection.ToolAnswer)]
            assert [ev.text_of(one.content) for one in answers] == ["slow", "fast"]

    run(scenario)
