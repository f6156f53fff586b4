"""Approval: the table of modes, asking, remembering, and what a crash makes of a question."""

import asyncio
from pathlib import Path

import pytest
from tests.runtime.rig import Agent, TouchyStore, balanced, call, calls, run

from fencepost.core import events as ev
from fencepost.core import verdict as v
from fencepost.plugins.approval import Approval, Verdict
from fencepost.runtime.toolmaker import tool

YES, NO, ALWAYS = Verdict(allowed=True), Verdict(allowed=False), Verdict(allowed=True, remember=True)


def leaving(arguments, cwd):
    """Why a person should be asked: the path is not below the working directory."""
    path = Path(arguments.get("path", "."))
    return None if not path.is_absolute() else f"{path} is outside of the working directory"


@tool(effect="read", guard=leaving)
async def look(path: str = ".") -> str:
    """Look."""
    return "a tree"


@tool(guard=leaving)
async def act(path: str = ".") -> str:
    """Act."""
    return "done"


@tool(effect="idempotent")
async def put() -> str:
    """Put."""
    return "done"


class Person:
    """Answers in order; keeps the questions."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.questions = []

    async def ask(self, question):
        self.questions.append(question)
        return self.answers.pop(0)


async def asked(answer, *plugins, more=(), **options):
    async with Agent([answer, *more, "ok"], tools=[look, act, put], plugins=plugins, **options) as agent:
        await agent.session.prompt("go")
        assert balanced(agent.log)
        return agent


OK, DENIED = "ok", "DENIED"
TABLE = {
    "ask": [OK, OK, OK, OK, OK],
    "read": [OK, DENIED, DENIED, DENIED, DENIED],
    "all": [OK, OK, OK, OK, OK],
    "none": [DENIED, DENIED, DENIED, DENIED, DENIED],
}
OUTSIDE = {"path": "/etc"}
REQUESTS = [("look", {}), ("act", {}), ("put", {}), ("look", OUTSIDE), ("act", OUTSIDE)]
QUESTIONS = {"ask": ["act", "put", "look", "act"]}


@pytest.mark.parametrize("mode", TABLE)
def test_the_table(mode):
    async def scenario():
        person = Person(YES, YES, YES, YES)
        agent = await asked(calls(*(call(name, given) for name, given in REQUESTS)), Approval(mode, person.ask))
        codes = [agent.log.fold.calls[key].result.code or OK for key in agent.log.fold.calls]
        assert codes == TABLE[mode]
        assert [question.tool for question in person.questions] == QUESTIONS.get(mode, [])

    run(scenario)


def test_a_denial_names_the_flag_that_would_allow_it():
    async def scenario():
        agent = await asked(calls(call("act"), call("look", OUTSIDE)), Approval("read"))
        assert "it is declared write" in agent.text("act")
        assert "--approve all" in agent.text("act")
        assert "/etc is outside of the working directory" in agent.text("look")
        agent = await asked(calls(call("look")), Approval("none"))
        assert "--approve none" in agent.text("look")

    run(scenario)


def test_question_and_answer_are_recorded():
    async def scenario():
        person = Person(YES, Verdict(allowed=False, by="ada", reason="not on a Sunday"))
        agent = await asked(calls(call("act"), call("put")), Approval("ask", person.ask))
        asked_for, decided = agent.events(ev.ApprovalAsked), agent.events(ev.ApprovalDecided)
        assert [one.call_id for one in asked_for] == list(agent.log.fold.calls)
        assert [(one.allowed, one.by, one.remember) for one in decided] == [
            (True, "user", False),
            (False, "ada", False),
        ]
        assert agent.results() == ["act: ok", "put: DENIED"]
        assert "ada said no to put: not on a Sunday" in agent.text("put")
        question = person.questions[0]
        assert (question.session, question.tool, question.effect) == ("s1", "act", "write")
        assert len(agent.events(ev.ToolCall)) == 1, "a denied call has no tool/call"

    run(scenario)


def test_the_question_is_durable_before_a_person_sees_it():
    async def scenario():
        store, seen = TouchyStore(), []

        async def ask(question):
            seen.append([event.type_name() for batch in store.batches for event in batch][-1])
            return YES

        await asked(calls(call("act")), Approval("ask", ask), store=store)
        assert seen == ["approval/asked"]

    run(scenario)


def test_a_question_that_cannot_be_saved_is_not_asked():
    async def scenario():
        store, person = TouchyStore(), Person(YES)
        async with Agent(
            [calls(call("act"))], tools=[act], plugins=[Approval("ask", person.ask)], store=store
        ) as agent:
            store.fail(ev.ApprovalAsked)
            await agent.session.prompt("go")
            assert person.questions == []
            assert agent.results() == ["act: NOT_SAVED"]

    run(scenario)


def test_always_counts_for_one_tool_and_is_read_back_from_the_log():
    async def scenario():
        store = TouchyStore()
        person = Person(ALWAYS, YES, YES)
        answers = [calls(call("act")), calls(call("act"), call("put")), calls(call("act", OUTSIDE))]
        agent = await asked(answers[0], Approval("ask", person.ask), more=answers[1:], store=store)
        assert [question.tool for question in person.questions] == ["act", "put", "act"], "not for leaving"
        assert [one.remember for one in agent.events(ev.ApprovalDecided)] == [True, False, False]

    run(scenario)


def test_always_survives_the_process(tmp_path):
    async def scenario():
        from fencepost.stores.jsonl import JsonlStore

        person = Person(ALWAYS)
        script = [calls(call("act")), "ok", calls(call("act")), "ok"]
        for _ in range(2):
            plugins = [Approval("ask", person.ask)]
            async with Agent(script, tools=[act], plugins=plugins, store=JsonlStore(tmp_path)) as agent:
                await agent.session.prompt("go")
        assert len(person.questions) == 1
        assert agent.results() == ["act: ok", "act: ok"]

    run(scenario)


def test_a_no_is_never_remembered():
    async def scenario():
        person = Person(Verdict(allowed=False, remember=True), YES)
        agent = await asked(calls(call("act"), call("act")), Approval("ask", person.ask))
        assert agent.results() == ["act: DENIED", "act: ok"]
        assert len(person.questions) == 2

    run(scenario)


def test_one_person_is_asked_one_thing_at_a_time():
    async def scenario():
        open_questions, most = [], []

        async def ask(question):
            open_questions.append(question)
            most.append(len(open_questions))
            await asyncio.sleep(0)
            open_questions.pop()
            return YES

        requests = calls(call("look", OUTSIDE), call("look", OUTSIDE), call("act"), call("put"))
        await asked(requests, Approval("ask", ask))
        assert most == [1, 1, 1, 1]

    run(scenario)


def test_a_person_who_cannot_be_asked_has_not_said_yes():
    async def scenario():
        async def gone(question):
            raise EOFError("the terminal is gone")

        async with Agent([calls(call("act"))], tools=[act], plugins=[Approval("ask", gone)]) as agent:
            result = await agent.session.prompt("go")
            assert agent.results() == ["act: DENIED"]
            assert result.reason == "error"
        agent = await asked(calls(call("act")), Approval("ask"))
        assert agent.results() == ["act: DENIED"]

    run(scenario)


def test_cancel_while_a_person_thinks():
    async def scenario():
        thinking = asyncio.Event()

        async def ask(question):
            thinking.set()
            await asyncio.Event().wait()

        async with Agent([calls(call("act"))], tools=[act], plugins=[Approval("ask", ask)]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await thinking.wait()
            await agent.session.cancel()
            assert (await turn).reason == "aborted"
            assert agent.results() == [f"act: {v.ABORTED_BEFORE_DISPATCH}"]
            assert agent.events(ev.ApprovalDecided) == []

    run(scenario)


def test_a_question_that_was_open_at_the_crash_is_void():
    """`not_started`; the reopened session asks nothing, and the old question cannot be answered any more."""

    async def scenario():
        from fencepost.errors import IllegalEventError

        store, thinking = TouchyStore(), asyncio.Event()

        async def ask(question):
            thinking.set()
            await asyncio.Event().wait()

        agent = Agent([calls(call("act"))], tools=[act], plugins=[Approval("ask", ask)], store=store)
        await agent.__aenter__()
        turn = asyncio.create_task(agent.session.prompt("go"))
        await thinking.wait()
        await agent.session.journal._handle.inner.release()  # the process is gone, its lock with it
        async with Agent(["x"], tools=[act], plugins=[Approval("ask", ask)], store=store) as later:
            (record,) = later.log.fold.calls.values()
            assert record.result.code == v.TOOL_NOT_STARTED
            assert [item.verdict for item in later.session.recovery.calls] == ["not_started"]
            with pytest.raises(IllegalEventError, match="may not follow in state idle"):
                later.session.journal.append(ev.ApprovalDecided, call_id=record.call_id, allowed=True, by="user")
        turn.cancel()

    run(scenario)


def test_the_next_question_has_an_id_of_its_own_and_the_old_one_cannot_be_answered():
    async def scenario():
        from fencepost.errors import IllegalEventError

        store, thinking, asked_for = TouchyStore(), asyncio.Event(), []

        async def never(question):
            asked_for.append(question.call_id)
            thinking.set()
            await asyncio.Event().wait()

        async def ask(question):
            asked_for.append(question.call_id)
            with pytest.raises(IllegalEventError, match="has its result already"):
                later.session.journal.append(ev.ApprovalDecided, call_id=asked_for[0], allowed=True, by="user")
            return YES

        script = [calls(call("act")), calls(call("act")), "ok"]
        agent = Agent(script, tools=[act], plugins=[Approval("ask", never)], store=store)
        await agent.__aenter__()
        turn = asyncio.create_task(agent.session.prompt("go"))
        await thinking.wait()
        await agent.session.journal._handle.inner.release()  # the process is gone, its lock with it
        async with Agent(script, tools=[act], plugins=[Approval("ask", ask)], store=store) as later:
            assert (await later.session.go_on()).reason == "completed"
            assert later.results() == [f"act: {v.TOOL_NOT_STARTED}", "act: ok"]
        assert len(set(asked_for)) == 2
        turn.cancel()

    run(scenario)
