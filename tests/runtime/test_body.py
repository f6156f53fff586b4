"""How a body ends: by itself, by its time limit, by a cancel, or not at all; on the loop and in a thread."""

import asyncio
import contextvars
import sys
import threading

import pytest
from tests.runtime.rig import Agent, balanced, call, calls, run, until

from fencepost.core import events as ev
from fencepost.core import repair
from fencepost.core import verdict as v
from fencepost.core.events import ToolSpec
from fencepost.runtime.body import run_body
from fencepost.runtime.cancel import CancelSignal
from fencepost.runtime.replies import as_text, sentence, sound, text_of
from fencepost.runtime.toolmaker import tool
from fencepost.runtime.tools import CallContext, Tool, ToolReply


def given(body=None, *, thread=None, timeout=None):
    """A tool without a schema."""
    return Tool(spec=ToolSpec("given", "Given.", {"type": "object"}), body=body, thread=thread, timeout=timeout)


async def ending(tool, tmp_path, *, settle=0.01, drain=0.05, cancel=None, late=None):
    context = CallContext("c1", "s1", tmp_path, cancel or CancelSignal(), lambda text: None, tmp_path)
    return await run_body(tool, context, {}, settle, drain, late or (lambda text: pytest.fail(text)))


# --- by itself --------------------------------------------------------------------------------------------------


async def _nothing():
    return 1


class Unshowable:
    def __repr__(self):
        raise ZeroDivisionError("no")


def _circle():
    circle = []
    circle.append(circle)
    return circle


ODD = [
    ("text", "text"),
    ("", ""),
    (None, "done"),
    (7, "7"),
    (True, "true"),
    ({"a": [1, None]}, '{"a":[1,null]}'),
    (b"caf\xc3\xa9 \xff", "caf\u00e9 \ufffd"),
    ({1, 2}, "[1,2]"),
    (object, "<class 'object'>"),
    (Unshowable(), "a Unshowable that cannot be shown (ZeroDivisionError)"),
    (float("nan"), "null"),
    ("\ud800", "\ud800"),
]


@pytest.mark.parametrize(("value", "text"), ODD, ids=[f"{text:.12}" for _, text in ODD])
@pytest.mark.parametrize("where", ["loop", "thread"])
def test_odd_values_become_text(value, text, where, tmp_path):
    async def body(context, arguments):
        return value

    async def scenario():
        way = given(body) if where == "loop" else given(thread=lambda context, arguments: value)
        reply = await ending(way, tmp_path)
        assert (reply.text, reply.is_error, reply.unknown) == (text, False, False)

    run(scenario)


def test_a_value_that_contains_itself_is_shown_as_far_as_that_goes(tmp_path):
    assert as_text(_circle()) == "[[...]]"


def test_every_odd_value_comes_back_from_the_log():
    """Through the whole loop: what a stranger's tool gives never makes a log that cannot be read."""

    async def scenario():
        from fencepost.core.codec import CORE, encode

        replies = [
            ToolReply(7, is_error="yes", code=None, detail=b"x"),
            ToolReply("\ud800", code="\ud800"),
            ToolReply(None, unknown=1),
        ]

        @tool
        async def odd(number: int) -> ToolReply:
            """Odd."""
            return replies[number]

        requests = calls(*(call("odd", {"number": number}) for number in range(len(replies))))
        async with Agent([requests, "ok"], tools=[odd]) as agent:
            result = await agent.session.prompt("go")
            assert result.text == "ok"
            results = agent.events(ev.ToolResult)
            assert [CORE.decode(encode(one)) for one in results] == results
            assert [(ev.text_of(one.content)[:8], one.code, one.is_error) for one in results] == [
                ("7", "", True),
                ("\ufffd", "\ufffd", False),
                ("Outcome ", v.TOOL_OUTCOME_UNKNOWN, True),
            ]

    run(scenario)


@pytest.mark.parametrize("where", ["loop", "thread"])
@pytest.mark.parametrize("error", [ValueError("no such place"), KeyError(), StopIteration("x"), SystemExit(3)])
def test_what_a_body_raises_is_an_error_result(where, error, tmp_path):
    """Whatever its kind: StopIteration cannot live in a future, SystemExit would end the agent."""

    def fail(context, arguments):
        raise error

    async def body(context, arguments):
        fail(context, arguments)

    async def scenario():
        reply = await ending(given(body) if where == "loop" else given(thread=fail), tmp_path)
        assert (reply.is_error, reply.code, reply.unknown) == (True, "TOOL_ERROR", False)
        assert type(error).__name__ in reply.text

    run(scenario)


def test_a_coroutine_that_nobody_awaits_is_an_error(tmp_path):
    async def scenario():
        reply = await ending(given(thread=lambda context, arguments: _nothing()), tmp_path)
        assert reply.is_error
        assert "coroutine" in reply.text

    run(scenario)


def test_an_exception_that_cannot_say_what_it_is():
    class MuteError(Exception):
        def __str__(self):
            raise ZeroDivisionError

    assert sentence(MuteError()) == "MuteError: no message"
    assert sentence(ValueError("  ")) == "ValueError: no message"


def test_only_a_reply_is_a_reply():
    with pytest.raises(TypeError, match="dict"):
        sound({"text": "x"})


def test_a_thread_sees_the_context_variables_of_its_call(tmp_path):
    variable = contextvars.ContextVar("variable", default="unset")

    async def scenario():
        variable.set("set")
        reply = await ending(given(thread=lambda context, arguments: variable.get()), tmp_path)
        assert reply.text == "set"

    run(scenario)


# --- in time ----------------------------------------------------------------------------------------------------


def test_a_time_limit_ends_as_unknown_in_the_words_of_repair():
    async def scenario():
        @tool(timeout=0.01)
        async def slow() -> str:
            """Slow."""
            await asyncio.Event().wait()

        async with Agent([calls(call("slow")), "ok"], tools=[slow]) as agent:
            result = await agent.session.prompt("go")
            assert result.reason == "completed"
            (answer,) = agent.events(ev.ToolResult)
            assert (answer.code, answer.is_error) == (v.TOOL_OUTCOME_UNKNOWN, True)
            said, repaired = agent.text("slow"), v.unknown_text(repair.STARTED)
            assert "time limit of 0.01 s" in said
            assert said.partition(". The call may have run")[2] == repaired.partition(". The call may have run")[2]

    run(scenario)


@pytest.mark.parametrize("way", ["timeout", "cancel"])
def test_a_thread_that_was_given_up_on_answers_later_as_a_note(way):
    async def scenario():
        entered, let_go = threading.Event(), threading.Event()

        @tool(timeout=0.01 if way == "timeout" else None)
        def stuck() -> str:
            """Stuck."""
            entered.set()
            let_go.wait(10)
            return "at last"

        async with Agent([calls(call("stuck")), "ok", "fresh"], tools=[stuck]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(entered.is_set)
            if way == "cancel":
                await agent.session.cancel()
            await turn
            assert agent.results() == ["stuck: TOOL_OUTCOME_UNKNOWN"]
            await agent.session.prompt("again")
            let_go.set()
            await until(lambda: agent.events(ev.ToolNote))
            note = agent.one(ev.ToolNote)
            assert note.call_id == agent.one(ev.ToolResult).call_id
            assert note.text == "the body answered after it had been given up on: at last"
            assert len(agent.results()) == 1
            assert [one.kind for one in agent.notices] == ["note"]
            assert balanced(agent.log)

    run(scenario)


def test_a_late_answer_never_comes_after_the_session_was_closed():
    async def scenario():
        entered, let_go, gone = threading.Event(), threading.Event(), threading.Event()

        @tool
        def stuck() -> str:
            """Stuck."""
            entered.set()
            let_go.wait(10)
            gone.set()
            return "too late"

        async with Agent([calls(call("stuck"))], tools=[stuck]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(entered.is_set)
            await agent.session.close()
            assert (await turn).reason == "aborted"
            end = agent.log.fold.next_seq
            stored = await agent.store.read("s1")
            let_go.set()
            await until(gone.is_set)
            await asyncio.sleep(0.01)
            assert agent.log.fold.next_seq == end
            assert (await agent.store.read("s1")).entries == stored.entries
            assert agent.notices == []

    run(scenario)


def test_a_late_answer_is_kept_up_to_a_length(tmp_path):
    async def scenario():
        let_go, notes = threading.Event(), []

        def stuck(context, arguments):
            let_go.wait(10)
            return "x" * 5000

        reply = await ending(given(thread=stuck, timeout=0.01), tmp_path, late=notes.append)
        assert reply.unknown
        let_go.set()
        await until(lambda: notes)
        assert notes[0].count("x") == 2000

    run(scenario)


def test_a_thread_does_not_keep_the_process(tmp_path):
    """A real process whose tool never returns: closing comes back within the bound, and so does the exit."""
    import subprocess

    program = (
        "import asyncio, threading, fencepost as fp\n"
        "from fencepost.testing import ScriptedModel\n"
        "entered = threading.Event()\n"
        "@fp.tool\n"
        "def stuck() -> str:\n"
        "    'Stuck.'\n"
        "    entered.set()\n"
        "    threading.Event().wait()\n"
        "async def main():\n"
        "    model = ScriptedModel([{'tool_calls': [{'function': {'name': 'stuck', 'arguments': {}}}]}])\n"
        "    async with fp.open('memory:', model=model, tools=[stuck]) as runtime:\n"
        "        session = await runtime.create()\n"
        "        turn = asyncio.create_task(session.prompt('go'))\n"
        "        await asyncio.to_thread(entered.wait)\n"
        "    print((await turn).reason)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("aborted\n", "", 0)


# --- told to stop -----------------------------------------------------------------------------------------------


def test_the_cancel_wins_over_a_body_that_swallows_it():
    """`except CancelledError: return "x"`: unknown, no further request; what it said is only shown."""

    async def scenario():
        entered = asyncio.Event()

        @tool
        async def swallow() -> str:
            """Swallows."""
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "all is well"

        async with Agent([calls(call("swallow")), "never"], tools=[swallow]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert agent.results() == ["swallow: TOOL_OUTCOME_UNKNOWN"]
            assert agent.text("swallow").startswith(
                "Outcome unknown: the turn was cancelled (user) while the call ran."
            )
            assert agent.text("swallow").endswith("\n\nTold to stop, it said: all is well")
            assert len(agent.model.requests) == 1

    run(scenario)


def test_a_body_that_fails_at_stopping_says_so(tmp_path):
    async def scenario():
        cancel, entered = CancelSignal(), asyncio.Event()

        async def body(context, arguments):
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                raise OSError("the pipe is broken")

        task = asyncio.create_task(ending(given(body), tmp_path, cancel=cancel))
        await entered.wait()
        cancel.set("user")
        reply = await task
        assert reply.unknown
        assert reply.detail == "Told to stop, it failed: OSError: the pipe is broken"

    run(scenario)


def test_what_an_unknown_reply_can_show_stands_below_the_sentence():
    reply = ToolReply("the command was ended after 3 s", unknown=True, detail="It had printed:\n1")
    assert text_of(reply) == v.unknown_text("the command was ended after 3 s") + "\n\nIt had printed:\n1"


def test_a_body_that_never_stops_is_given_up_on_and_heard_when_it_does():
    async def scenario():
        entered, let_go = asyncio.Event(), asyncio.Event()

        @tool
        async def stubborn() -> str:
            """Stubborn."""
            entered.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            return "finally"

        async with Agent([calls(call("stubborn")), "fresh"], tools=[stubborn]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await entered.wait()
            await agent.session.cancel()
            await turn
            assert agent.results() == ["stubborn: TOOL_OUTCOME_UNKNOWN"]
            assert (await agent.session.prompt("again")).text == "fresh"
            let_go.set()
            await until(lambda: agent.events(ev.ToolNote))
            assert agent.one(ev.ToolNote).text.endswith("finally")
            assert len(agent.results()) == 1

    run(scenario)


def test_a_body_that_cancels_itself_is_unknown(tmp_path):
    async def body(context, arguments):
        raise asyncio.CancelledError

    async def scenario():
        reply = await ending(given(body), tmp_path)
        assert reply.unknown
        assert "cancelled from inside" in reply.text

    run(scenario)


def test_progress_from_a_thread_reaches_listeners_on_the_loop():
    async def scenario():
        threads = []

        @tool
        def speaks(context: CallContext) -> str:
            """Speaks."""
            context.progress("half way")
            return "ok"

        async with Agent([calls(call("speaks")), "ok"], tools=[speaks]) as agent:
            agent.session.on_notice(lambda notice: threads.append(threading.current_thread()))
            await agent.session.prompt("go")
            assert [(one.kind, one.text) for one in agent.notices] == [("progress", "half way")]
            assert threads == [threading.current_thread()]

    run(scenario)
