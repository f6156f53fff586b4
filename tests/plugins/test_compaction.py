"""Compaction in a whole agent: what a model is sent before and after, what stands in the log, and what goes wrong."""

import asyncio

import msgspec
import pytest
from tests.crash.transcripts import transcript_problem
from tests.runtime.rig import QUICK, Agent, TouchyStore, balanced, call, calls, run, until

from fencepost.core import events as ev
from fencepost.core.codec import CORE
from fencepost.core.log import Log
from fencepost.core.projection import AssistantTurn, ToolAnswer, UserTurn, messages
from fencepost.errors import Cancelled, ConfigError, ModelError, NotSavedError, UsageError
from fencepost.plugins.anthropic import AnthropicModel
from fencepost.plugins.compaction import NO_SUMMARY, Compaction
from fencepost.plugins.compaction_text import ASK, HEAD, SYSTEM
from fencepost.plugins.openai import OpenAIModel
from fencepost.runtime.models import UsageDelta
from fencepost.runtime.toolmaker import tool
from fencepost.testing import Cut, ModelServer, Pause, ScriptedModel, pairing_problem
from fencepost.testing.pairing_anthropic import anthropic_problem

LIMIT = 2_000
BIG, SMALL = 640, 10
"""Words: 800 tokens, and next to nothing."""

LONG = "word " * BIG


@tool(effect="read")
async def read(n: int, size: int = BIG) -> str:
    """Read."""
    return f"{n}: {'word ' * size}"


def reads(n, size=BIG):
    return calls(call("read", {"n": n, "size": size}))


def agent(answers, *, limit=LIMIT, keep=1, tools=(read,), plugins=None, **more):
    settings = {"limit": limit, "keep": keep} if limit is not None else {"keep": keep}
    composed = [Compaction()] if plugins is None else plugins
    return Agent(answers, tools=tools, plugins=composed, configured={"compaction": settings}, **more)


SHORT = "The user wants it read; 0 and 1 were read."


def asked_for_summary(request):
    return request.system == SYSTEM


def texts(request):
    return [ev.text_of(message.content) for message in request.messages]


def noted(one):
    return [notice.text for notice in one.notices if notice.kind == "note"]


def story(*, summary=SHORT, summaries=1):
    """Two long reads meet the limit; the summary comes in front of the answer to them, which is a short one."""
    return [reads(0), reads(1), [summary] * summaries + [reads(2, SMALL)], "Done."]


# --- by itself --------------------------------------------------------------------------------------------------


def test_near_its_limit_a_summary_takes_the_place_of_closed_steps():
    async def scenario():
        async with agent(story()) as one:
            result = await one.session.prompt("Read all of it.")
            assert (result.reason, result.text) == ("completed", "Done.")
            (summary,) = one.events(ev.ContextSummary)
            assert summary.model == "scripted:scripted"
            ends = one.events(ev.StepEnd)
            assert summary.through == ends[0].seq, "the newest step is kept"
            first, second, asking, third, last = one.model.requests
            assert asked_for_summary(asking)
            assert not any(asked_for_summary(request) for request in (first, second, third, last))
            head, answer, answered = third.messages
            assert isinstance(head, UserTurn)
            assert ev.text_of(head.content).startswith(f"{HEAD}\n\n{SHORT}")
            assert isinstance(answer, AssistantTurn)
            assert isinstance(answered, ToolAnswer)
            assert [transcript_problem(request) for request in one.model.requests] == [None] * 5
            assert balanced(one.log)

    run(scenario)


def test_the_log_keeps_every_message():
    async def scenario():
        async with agent(story()) as one:
            await one.session.prompt("Read all of it.")
            assert [ev.text_of(e.content).split(":")[0] for e in one.events(ev.ToolResult)] == ["0", "1", "2"]
            assert len(one.events(ev.AssistantMessage)) == 4
            assert [event.seq for event in one.log.events()] == list(range(one.log.fold.next_seq))

    run(scenario)


def test_the_request_for_a_summary_shows_the_conversation_and_offers_no_tools():
    async def scenario():
        model = ScriptedModel(story(), settings={"temperature": 0, "tool_choice": "auto"})
        async with agent(model) as one:
            await one.session.prompt("Read all of it.")
            asking = model.requests[2]
            assert asking.tools == ()
            assert asking.settings == {"temperature": 0}
            (text,) = texts(asking)
            assert "## user\nRead all of it." in text
            assert '## agent calls read\n{"n": 0' in text
            assert "## result of read\n0: word" in text
            assert "1: word" not in text, "what is kept is not summed up"
            assert text.endswith(ASK)

    run(scenario)


def test_what_it_is_made_from_is_durable_when_it_leaves():
    """Law 3: at the moment when the request for a summary leaves, every event of the log is on disk."""

    async def scenario():
        store, seen = TouchyStore(), []

        class Watched(ScriptedModel):
            async def stream(self, request):
                if asked_for_summary(request):
                    stored = await store.read("s1")
                    seen.append(stored.entries[-1].seq)
                async for delta in super().stream(request):
                    yield delta

        async with agent(Watched(story()), store=store) as one:
            await one.session.prompt("Read all of it.")
            (summary,) = one.events(ev.ContextSummary)
            assert seen == [summary.seq - 1]

    run(scenario)


def test_the_summary_itself_is_durable_before_the_next_request():
    async def scenario():
        store = TouchyStore()
        async with agent(story(), store=store) as one:
            await one.session.prompt("Read all of it.")
            kinds = [kind for batch in store.kinds() for kind in batch]
            assert kinds.index("context/summary") < len(kinds) - 1
            assert kinds[kinds.index("context/summary") + 1] == "step/start"

    run(scenario)


def test_the_users_last_message_is_kept_to_the_letter():
    async def scenario():
        async with agent(story()) as one:
            await one.session.prompt("Read all of it, but touch nothing!")
            assert (
                "The user's last message, to the letter:\nRead all of it, but touch nothing!"
                in texts(one.model.requests[3])[0]
            )

    run(scenario)


def test_calls_whose_outcome_is_unknown_are_named_whatever_the_model_makes_of_them():
    async def scenario():
        @tool(timeout=0.01)
        async def send(to: str) -> str:
            """Send."""
            await asyncio.Event().wait()

        answers = [calls(call("send", {"to": "ada"}), call("read", {"n": 0})), *story()[1:]]
        async with agent(answers, tools=[read, send]) as one:
            await one.session.prompt("Go.")
            head = texts(one.model.requests[3])[0]
            assert "Calls whose outcome was unknown" in head
            assert '- send {"to"' in head
            assert "- read" not in head

    run(scenario)


def test_what_the_provider_counted_decides():
    """By their letters these are few tokens; the provider says that they are many."""

    async def scenario():
        counts = iter([100, 1_700, 0, 300, 300])

        class Counting(ScriptedModel):
            async def stream(self, request):
                yield UsageDelta(ev.Usage(input_tokens=next(counts), output_tokens=20))
                async for delta in super().stream(request):
                    yield delta

        answers = [reads(0, 300), reads(1, SMALL), [SHORT, reads(2, SMALL)], "Done."]
        async with agent(Counting(answers)) as one:
            await one.session.prompt("Look.")
            (summary,) = one.events(ev.ContextSummary)
            assert summary.usage == ev.Usage(input_tokens=0, output_tokens=20), "what it cost is recorded"
            assert summary.seq > one.events(ev.StepEnd)[1].seq

    run(scenario)


def test_below_the_limit_nothing_happens():
    async def scenario():
        async with agent([reads(0), reads(1), reads(2), "Done."], limit=100_000) as one:
            await one.session.prompt("Read.")
            assert one.events(ev.ContextSummary) == []
            assert len(one.model.requests) == 4

    run(scenario)


def test_without_a_limit_it_does_not_even_stand_before_the_step():
    async def scenario():
        async with agent(["Hello."], limit=None) as one:
            assert one.runtime.composition.registry.hooks.before_step.owners() == ["checkpoint@GATE"]
            await one.session.prompt("Hi.")

    run(scenario)


def test_a_second_summary_takes_the_place_of_the_first():
    async def scenario():
        answers = [reads(0), reads(1), [SHORT, reads(2)], ["Now 2 was read, too.", reads(3, SMALL)], "Done."]
        async with agent(answers) as one:
            assert (await one.session.prompt("Read all of it.")).text == "Done."
            first, second = one.events(ev.ContextSummary)
            assert second.through > first.through
            asking = [request for request in one.model.requests if asked_for_summary(request)]
            assert SHORT in texts(asking[1])[0], "the second is made from the first, and what came since"
            last = one.model.requests[-1]
            assert "Now 2 was read, too." in texts(last)[0]
            assert SHORT not in texts(last)[0]
            assert transcript_problem(last) is None
            assert messages(one.log)[0] == last.messages[0]

    run(scenario)


def test_when_the_newest_step_alone_is_too_much_it_is_summed_up_too():
    async def scenario():
        many = calls(*[call("read", {"n": n}) for n in range(4)])
        async with agent([many, ["All four say the same word.", "Done."]]) as one:
            assert (await one.session.prompt("Read all of it.")).text == "Done."
            last = one.model.requests[-1]
            assert len(last.messages) == 1
            assert "All four say the same word." in texts(last)[0]

    run(scenario)


def test_what_does_not_fit_is_shortened_in_the_copy_oldest_results_first():
    async def scenario():
        many = calls(*[call("read", {"n": n}) for n in range(4)])
        async with agent([many, ["All four say the same word.", "Done."]]) as one:
            await one.session.prompt("Read all of it.")
            (text,) = texts(one.model.requests[1])
            assert len(text) < LIMIT * 4
            assert "characters left out]" in text
            assert text.index("0: word") < text.index("characters left out]") < text.index("3: word")
            assert ev.text_of(one.events(ev.ToolResult)[0].content) == f"0: {LONG}"

    run(scenario)


# --- what is no good --------------------------------------------------------------------------------------------


NO_GOOD = {
    "it fails": (ModelError("no room", code="HTTP_500", retryable=True), "no room"),
    "its stream is cut": (Cut("The user wants it re", after=1), "ended without its end marker"),
    "it is cut at the limit": ({"content": "The user", "finish_reason": "length"}, "the summary was cut (max_tokens)"),
    "it is empty": ("  ", "the model gave no summary"),
    "it is longer than what it replaces": (LONG * 2, "longer than what it would replace"),
}


@pytest.mark.parametrize(("bad", "why"), NO_GOOD.values(), ids=NO_GOOD.keys())
def test_a_summary_that_is_no_good_leaves_the_history_as_it_is(bad, why):
    async def scenario():
        async with agent(story(summary=bad)) as one:
            result = await one.session.prompt("Read all of it.")
            assert (result.reason, result.text) == ("completed", "Done.")
            assert one.events(ev.ContextSummary) == []
            asking = [request for request in one.model.requests if asked_for_summary(request)]
            (note, *_) = noted(one)
            assert why in note
            assert "was not summed up" in note
            assert len(asking) <= 2
            assert texts(one.model.requests[-1])[0] == "Read all of it."
            assert balanced(one.log)

    run(scenario)


def test_after_a_failure_it_is_not_tried_before_every_step():
    async def scenario():
        @tool(effect="read")
        async def peek(n: int) -> str:
            """Peek."""
            return "no"

        broken = ModelError("no", code="HTTP_500")
        small = [calls(call("peek", {"n": n})) for n in range(4)]
        answers = [reads(0), reads(1), [broken, small[0]], *small[1:], "Done."]
        async with agent(answers, tools=[read, peek]) as one:
            assert (await one.session.prompt("Read.")).text == "Done."
            asking = [request for request in one.model.requests if asked_for_summary(request)]
            assert len(asking) == 1
            assert len(noted(one)) == 1

    run(scenario)


def test_a_gate_that_fails_lets_no_request_for_a_summary_out():
    """Law 4. The step's own gate then fails too, and the turn ends with an error."""

    async def scenario():
        store = TouchyStore()

        @tool(effect="read")
        async def fill() -> str:
            """Read much, while the disk fills up."""
            store.fail(ev.ToolResult)
            return LONG

        answers = [reads(0), calls(call("fill")), [SHORT, "never"]]
        async with agent(answers, tools=[read, fill], store=store) as one:
            result = await one.session.prompt("Read all of it.")
            assert (result.reason, result.code) == ("error", "NOT_SAVED")
            assert len(one.model.requests) == 2
            assert "it was not summed up" in noted(one)[0]
            assert one.events(ev.ContextSummary) == []

    run(scenario)


def test_a_cancel_while_it_is_summed_up():
    async def scenario():
        pause = Pause(SHORT, after=1)
        async with agent([reads(0), reads(1), [pause, "Fresh."]], rules=QUICK) as one:
            turn = asyncio.create_task(one.session.prompt("Read all of it."))
            await pause.reached.wait()
            await one.session.cancel()
            assert (await turn).reason == "aborted"
            assert one.events(ev.ContextSummary) == []
            assert balanced(one.log)
            assert len(one.model.requests) == 3

    run(scenario)


# --- when somebody asks -----------------------------------------------------------------------------------------


def test_a_session_can_be_summed_up_between_turns():
    async def scenario():
        store = TouchyStore()
        answers = [reads(0), reads(1), "Done.", [SHORT, "Second."]]
        async with agent(answers, limit=None, store=store) as one:
            await one.session.prompt("Read all of it.")
            done = await one.session.compact()
            assert (done.steps, done.through) == (2, one.events(ev.StepEnd)[1].seq)
            assert done.after < done.before
            kinds = [kind for batch in store.kinds() for kind in batch]
            assert kinds[-1] == "context/summary", "it is durable when it is said to be done"
            assert (await one.session.prompt("And now?")).text == "Second."
            last = one.model.requests[-1]
            assert [type(message) for message in last.messages] == [UserTurn, AssistantTurn, UserTurn]
            assert transcript_problem(last) is None

    run(scenario)


def test_there_has_to_be_something_to_sum_up():
    async def scenario():
        async with agent(["Hello."], limit=None) as one:
            with pytest.raises(UsageError, match="nothing to sum up"):
                await one.session.compact()
            await one.session.prompt("Hi.")
            with pytest.raises(UsageError, match="nothing to sum up"):
                await one.session.compact()
            assert len(one.model.requests) == 1

    run(scenario)


def test_who_asks_is_told_what_went_wrong():
    async def scenario():
        async with agent([reads(0), reads(1), "Done.", "  "], limit=None) as one:
            await one.session.prompt("Read.")
            with pytest.raises(ModelError) as caught:
                await one.session.compact()
            assert caught.value.code == NO_SUMMARY
            assert one.events(ev.ContextSummary) == []
            assert one.session.idle

    run(scenario)


def test_not_while_a_turn_runs():
    async def scenario():
        pause = Pause("Hello.")
        async with agent([pause], limit=None) as one:
            turn = asyncio.create_task(one.session.prompt("Hi."))
            await pause.reached.wait()
            with pytest.raises(UsageError, match="busy"):
                await one.session.compact()
            pause.release.set()
            await turn

    run(scenario)


def test_without_the_plugin_nobody_can():
    async def scenario():
        async with Agent(["Hello."]) as one:
            with pytest.raises(UsageError, match="can sum up") as caught:
                await one.session.compact()
            assert "compaction" in caught.value.next_act

    run(scenario)


@pytest.mark.parametrize("how", ["cancel", "close", "abandon"])
def test_it_can_be_called_off(how):
    async def scenario():
        pause = Pause(SHORT, after=1)
        async with agent([reads(0), reads(1), "Done.", pause], limit=None) as one:
            await one.session.prompt("Read.")
            asking = asyncio.create_task(one.session.compact())
            await pause.reached.wait()
            if how == "abandon":
                asking.cancel()
            else:
                await getattr(one.session, how)()
            with pytest.raises(asyncio.CancelledError if how == "abandon" else Cancelled):
                await asking
            assert one.events(ev.ContextSummary) == []
            assert one.session.journal.closed == (how == "close")

    run(scenario)


def test_a_prompt_that_comes_meanwhile_waits_and_sees_the_summary():
    async def scenario():
        pause = Pause(SHORT, after=1)
        async with agent([reads(0), reads(1), "Done.", [pause, "Second."]], limit=None) as one:
            await one.session.prompt("Read.")
            asking = asyncio.create_task(one.session.compact())
            await pause.reached.wait()
            turn = asyncio.create_task(one.session.prompt("And now?"))
            await until(lambda: one.log.fold.pending)
            assert len(one.model.requests) == 4
            pause.release.set()
            await asking
            assert (await turn).text == "Second."
            assert texts(one.model.requests[-1])[0].startswith(HEAD)

    run(scenario)


def test_a_summary_that_could_not_be_saved_is_not_called_done():
    async def scenario():
        store = TouchyStore()
        async with agent([reads(0), reads(1), "Done.", SHORT], limit=None, store=store) as one:
            await one.session.prompt("Read.")
            full = store.fail(ev.ContextSummary)
            with pytest.raises(NotSavedError):
                await one.session.compact()
            full.off()

    run(scenario)


def test_a_crash_before_it_is_durable_leaves_the_old_history_in_force():
    async def scenario():
        store = TouchyStore()
        async with agent([reads(0), reads(1), "Done.", SHORT], limit=None, store=store) as one:
            await one.session.prompt("Read.")
            old = messages(one.log)
            still = store.hold(ev.ContextSummary)
            asking = asyncio.create_task(one.session.compact())
            await still.reached.wait()
            stored = await store.read("s1")
            assert messages(Log(stored.header, lambda: 0, CORE, stored.entries)) == old
            still.off()
            await asking
            stored = await store.read("s1")
            assert messages(Log(stored.header, lambda: 0, CORE, stored.entries)) == messages(one.log) != old

    run(scenario)


@pytest.mark.parametrize("wrong", [{"limit": 999}, {"limit": "much"}, {"at": 0}, {"at": 2}, {"keep": 0}, {"size": 1}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError, match="compaction"):
        Agent(plugins=[Compaction()], configured={"compaction": wrong})


# --- over the wire ----------------------------------------------------------------------------------------------


def openai_at(server):
    return OpenAIModel("any", base_url=server.url, api_key="none")


def anthropic_at(server):
    return AnthropicModel("any", base_url=server.anthropic_url, api_key="none")


PROVIDERS = {"openai": (openai_at, pairing_problem), "anthropic": (anthropic_at, anthropic_problem)}


@pytest.mark.parametrize(("model_at", "problem"), PROVIDERS.values(), ids=PROVIDERS.keys())
def test_a_strict_provider_takes_every_request(model_at, problem):
    """The server refuses what a strict endpoint refuses, and finds its answers by what it is sent."""
    # A request for a summary has no answer in it, so what it gets is the second attempt at the first answer.
    script = [[reads(0), SHORT], [reads(1), reads(2)], ["Done.", "Second."]]

    async def scenario():
        async with agent(model_at(server), limit=None) as one:
            assert (await one.session.prompt("Read all of it.")).text == "Done."
            await one.session.compact()
            assert (await one.session.prompt("And the other?")).text == "Second."
            assert one.one(ev.ContextSummary).usage.output_tokens > 0

    with ModelServer(script) as server:
        run(scenario)
        sent = [msgspec.json.decode(body) for body in server.requests]
    asking, later, _ = sent[3:]
    assert "tools" not in asking
    assert [message["role"] for message in asking["messages"]][-1:] == ["user"]
    assert [message["role"] for message in later["messages"]][-3:] == ["user", "assistant", "user"]
    assert [problem(body["messages"]) for body in sent] == [None] * 6
