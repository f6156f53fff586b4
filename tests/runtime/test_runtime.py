"""A runtime: opening sessions, and closing everything in order whatever fails on the way."""

import asyncio

import pytest
from tests.runtime.rig import QUICK, Agent, TouchyStore, balanced, call, calls, run, until

from fencepost.core import events as ev
from fencepost.errors import ClosedError, HeldError, NotSavedError, SessionExistsError, SessionNotFoundError, UsageError
from fencepost.runtime.runtime import Runtime, Settings, fresh_id, fresh_session_id, system_identity
from fencepost.runtime.toolmaker import tool
from fencepost.stores.memory import MemoryStore
from fencepost.testing import Pause, ScriptedModel


class Recorder:
    """A store, a model and a plugin that say when they are closed."""

    def __init__(self, inner=None):
        self.closed = []
        self.store = TouchyStore(inner)
        close = self.store.close

        async def close_store():
            self.closed.append("store")
            await close()

        self.store.close = close_store
        self.plugin = self

    name = "recorder"
    requires = ()

    def apply(self, context):
        context.on_close(lambda: self.closed.append("policy"))

    def model(self, answers, error=None):
        model = ScriptedModel(answers)

        async def close():
            self.closed.append("model")
            if error is not None:
                raise error

        model.close = close
        return model


# --- opening ----------------------------------------------------------------------------------------------------


def test_a_new_session_is_stored_with_its_first_prompt_and_not_before():
    async def scenario():
        async with Agent(["Hello."]) as agent:
            assert await agent.store.sessions() == []
            await agent.session.prompt("hi")
            assert await agent.store.sessions() == ["s1"]

    run(scenario)


def test_ids_that_are_taken_or_unknown():
    async def scenario():
        async with Agent(["Hello."]) as agent:
            await agent.session.prompt("hi")
            with pytest.raises(SessionExistsError):
                await agent.runtime.create("s1")
            with pytest.raises(HeldError):
                await agent.runtime.resume("s1")
            with pytest.raises(SessionNotFoundError):
                await agent.runtime.resume("s2")
            await agent.session.close()
            again = await agent.runtime.resume("s1")
            assert again.recovery.interrupted is None

    run(scenario)


def test_the_working_directory_is_a_directory(tmp_path):
    async def scenario():
        async with Agent([]) as agent:
            with pytest.raises(UsageError, match="is not a directory"):
                await agent.runtime.create(cwd=tmp_path / "nowhere")
            session = await agent.runtime.create(cwd=tmp_path)
            assert session.journal.log.header.cwd == str(tmp_path)

    run(scenario)


def test_ids_sort_by_time_and_do_not_repeat():
    identity = system_identity()
    assert fresh_session_id(identity)[:8].isdigit()
    assert len({fresh_id("c") for _ in range(1000)}) == 1000
    assert fresh_id("c").startswith("c_")


def test_several_sessions_live_side_by_side():
    async def scenario():
        async with Agent(["one"]) as agent:
            others = [await agent.runtime.create(f"other{number}") for number in range(3)]
            results = await asyncio.gather(*(session.prompt("hi") for session in (agent.session, *others)))
            assert [result.text for result in results] == ["one"] * 4
            assert repr(agent.runtime) == "<Runtime memory: | scripted:scripted | 4 live>"
            await others[0].close()
            assert "3 live" in repr(agent.runtime), "a closed session is not kept"

    run(scenario)


# --- closing ----------------------------------------------------------------------------------------------------


def test_closing_order():
    """Input, loop, the real closing records, closing flush; then policies, model, store."""

    async def scenario():
        record, pause = Recorder(), Pause("never")
        runtime = Runtime(record.store, record.model([pause]), [record], Settings(rules=QUICK))
        session = await runtime.create("s1")
        turn = asyncio.create_task(session.prompt("go"))
        await pause.reached.wait()
        landed = len(record.store.batches)
        closing = asyncio.create_task(runtime.close())
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await session.prompt("more")
        with pytest.raises(ClosedError):
            await runtime.create("s2")
        await closing
        assert (await turn).reason == "aborted"
        assert [event.type_name() for batch in record.store.batches[landed:] for event in batch][-2:] == [
            "step/end",
            "turn/end",
        ]
        assert record.store.released == ["s1"]
        assert record.closed == ["policy", "model", "store"]
        assert balanced(session.journal.log)
        await runtime.close()
        assert record.closed == ["policy", "model", "store"]

    run(scenario)


def test_what_fails_at_closing_does_not_stop_the_rest():
    async def scenario():
        record = Recorder()
        runtime = Runtime(record.store, record.model([], error=OSError("the socket")), [record])
        session = await runtime.create("s1")
        session.journal.append(ev.ToolNote, call_id="c", text="not saved")
        record.store.fail()
        with pytest.raises(ExceptionGroup) as caught:
            await runtime.close()
        assert [type(error) for error in caught.value.exceptions] == [NotSavedError, OSError]
        assert record.closed == ["policy", "model", "store"]
        assert record.store.released == ["s1"]

    run(scenario)


def test_one_failure_is_raised_as_itself():
    async def scenario():
        record = Recorder()
        runtime = Runtime(record.store, record.model([]), [record])
        session = await runtime.create("s1")
        session.journal.append(ev.ToolNote, call_id="c", text="not saved")
        record.store.fail()
        with pytest.raises(NotSavedError):
            await runtime.close()

    run(scenario)


def test_a_session_that_failed_to_close_before_is_not_reported_twice():
    async def scenario():
        record = Recorder()
        runtime = Runtime(record.store, record.model([]), [record])
        session = await runtime.create("s1")
        session.journal.append(ev.ToolNote, call_id="c", text="not saved")
        record.store.fail()
        with pytest.raises(NotSavedError):
            await session.close()
        await runtime.close()

    run(scenario)


def test_two_closings_at_once_are_one():
    async def scenario():
        record = Recorder()
        runtime = Runtime(record.store, record.model([]), [record])
        await runtime.create("s1")
        await asyncio.gather(runtime.close(), runtime.close())
        assert record.closed == ["policy", "model", "store"]

    run(scenario)


def test_a_runtime_that_is_closed_while_a_session_opens_keeps_no_lock():
    async def scenario():
        store = TouchyStore()
        async with Agent(["Hello."], store=store) as agent:
            await agent.session.prompt("hi")
            await agent.session.close()
            own, owning, go_on = store.own, asyncio.Event(), asyncio.Event()

            async def slowly(session):
                owning.set()
                await go_on.wait()
                return await own(session)

            async def still_open():
                pass

            store.own, store.inner.close = slowly, still_open
            opening = asyncio.create_task(agent.runtime.resume("s1"))
            await owning.wait()
            await agent.runtime.close()
            go_on.set()
            with pytest.raises(ClosedError):
                await opening
            assert (await store.read("s1")).owner is None

    run(scenario)


def test_closing_while_a_batch_of_tools_runs_leaves_every_call_answered():
    async def scenario():
        inside = []

        @tool(effect="read")
        async def hang() -> str:
            """Hang."""
            inside.append(1)
            await asyncio.Event().wait()

        async with Agent([calls(*[call("hang")] * 3)], tools=[hang]) as agent:
            turn = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: len(inside) == 3)
        assert (await turn).reason == "aborted"
        assert agent.results() == ["hang: TOOL_OUTCOME_UNKNOWN"] * 3
        assert agent.session.journal.watermark == agent.log.fold.next_seq - 1

    run(scenario)


# --- looking ----------------------------------------------------------------------------------------------------


def test_a_runtime_without_a_model_looks():
    async def scenario():
        store = MemoryStore()
        writer = Runtime(store, ScriptedModel(["Hello."]), [])
        session = await writer.create("s1")
        await session.prompt("hi there")
        await session.close()
        looker = Runtime(store, None, [])
        assert repr(looker) == "<Runtime memory: | no model | 0 live>"
        (row,) = await looker.sessions()
        assert (row.session, row.state, row.title, row.turns) == ("s1", "clean", "hi there", 1)
        seen = await looker.inspect("s1")
        assert (seen.state, seen.gates) == ("clean", ("closing",))
        await looker.close()

    run(scenario)


def test_guarantees_say_what_is_in_force():
    async def scenario():
        async with Agent([]) as agent:
            told = agent.session.guarantees
            assert (told.store, told.durable) == ("memory:", False)
            assert (told.gates, told.policy) == (("step", "request", "tool", "closing"), "checkpoint")
            assert "nothing is saved" in told.ownership

    run(scenario)
