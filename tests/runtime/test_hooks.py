"""Where hooks stand, and what their points refuse."""

import asyncio

import pytest
from tests.runtime.rig import run, until

from fencepost.errors import Cancelled, CompositionError
from fencepost.runtime.cancel import CancelSignal, unless_cancelled
from fencepost.runtime.hooks import HookPoint, Hooks, Position, through


def naming(name, passed):
    def hook(subject, go_on):
        passed.append(name)
        return go_on(subject)

    return hook


def test_hooks_stand_by_position_not_by_who_came_first():
    point, passed = HookPoint("p", "tool"), []
    at = Position
    for position in (at.GATE, at.SHAPE, at.OBSERVE, at.ASK, at.BOUND, at.POLICY, at.RETRY):
        point.add("a", position, naming(position.name, passed))
    assert point.bind(lambda subject: subject)(7) == 7
    assert passed == ["OBSERVE", "POLICY", "ASK", "RETRY", "SHAPE", "BOUND", "GATE"]


def test_within_a_position_the_first_is_outside():
    point, passed = HookPoint("p"), []
    for name in ("one", "two", "three"):
        point.add(name, Position.POLICY, naming(name, passed))
    point.bind(lambda subject: subject)(0)
    assert passed == ["one", "two", "three"]
    assert repr(point) == "<HookPoint p: one@POLICY > two@POLICY > three@POLICY>"


def test_a_registration_ends_and_takes_no_other_with_it():
    point, passed = HookPoint("p"), []
    hook = naming("same", passed)
    first = point.add("a", Position.POLICY, hook)
    point.add("a", Position.POLICY, hook)
    first()
    first()
    point.bind(lambda subject: subject)(0)
    assert passed == ["same"]


def test_an_empty_point_is_its_innermost():
    assert HookPoint("p").bind(lambda subject: subject + 1)(1) == 2
    assert repr(HookPoint("p")) == "<HookPoint p: empty>"


def test_a_hook_may_change_refuse_and_repeat():
    point = HookPoint("p")
    point.add("twice", Position.RETRY, lambda subject, go_on: go_on(subject) + go_on(subject))
    point.add("plus", Position.SHAPE, lambda subject, go_on: go_on(subject + 1))
    assert point.bind(lambda subject: subject)(1) == 4
    point.add("no", Position.POLICY, lambda subject, go_on: None)
    assert point.bind(lambda subject: pytest.fail("passed"))(1) is None


def test_one_gate_and_only_where_there_is_an_effect():
    hooks = Hooks()
    hooks.tool_execute.add("ours", Position.GATE, naming("x", []))
    with pytest.raises(CompositionError, match="theirs wants the gate, and ours holds it"):
        hooks.tool_execute.add("theirs", Position.GATE, naming("x", []))
    for point in hooks.points():
        if point.gate is None:
            with pytest.raises(CompositionError, match="there is none"):
                point.add("theirs", Position.GATE, naming("x", []))


def test_the_gates_in_force_are_those_that_somebody_holds():
    hooks = Hooks()
    assert (hooks.gates(), hooks.policy()) == (("closing",), "none")
    end = hooks.tool_execute.add("b", Position.GATE, naming("x", []))
    hooks.before_step.add("a", Position.GATE, naming("x", []))
    hooks.model_stream.add("c", Position.POLICY, naming("x", []))
    assert (hooks.gates(), hooks.policy()) == (("step", "tool", "closing"), "a+b")
    end()
    assert (hooks.gates(), hooks.policy()) == (("step", "closing"), "a")


def test_the_points_in_turn_order():
    assert [point.name for point in Hooks().points()] == [
        "before_step",
        "model_request",
        "model_stream",
        "tool_admit",
        "tool_execute",
        "tool_done",
        "turn_stopping",
        "compact",
    ]


# --- coming back ------------------------------------------------------------------------------------------------


def test_through_comes_back_when_the_turn_is_cancelled():
    async def scenario():
        point, signal, entered, cleaned = HookPoint("p"), CancelSignal(), asyncio.Event(), []

        async def hang(subject, go_on):
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append(True)

        async def innermost(subject):
            return subject

        assert await through(point, 3, innermost, signal, 1) == 3
        point.add("hang", Position.POLICY, hang)
        task = asyncio.create_task(through(point, 3, innermost, signal, 1))
        await entered.wait()
        signal.set("user")
        with pytest.raises(Cancelled, match="user"):
            await task
        assert cleaned

    run(scenario)


def test_work_that_ends_by_itself_within_its_patience_is_heard():
    async def scenario():
        signal = CancelSignal()

        async def tidy():
            await signal.wait()
            return "tidied"

        task = asyncio.create_task(unless_cancelled(tidy(), signal, 1, lambda: 5))
        await asyncio.sleep(0)
        signal.set("user")
        assert await task == "tidied"

    run(scenario)


def test_a_result_that_is_there_already_wins_over_the_cancel():
    async def scenario():
        signal = CancelSignal()
        signal.set("user")
        done = asyncio.get_running_loop().create_future()
        done.set_result("there")
        assert await unless_cancelled(done, signal, 1) == "there"

    run(scenario)


def test_who_is_cancelled_from_outside_takes_the_work_along():
    async def scenario():
        started, ended = asyncio.Event(), []

        async def work():
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)

        task = asyncio.create_task(unless_cancelled(work(), CancelSignal(), 1))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended

    run(scenario)


def test_work_that_fails_after_it_was_given_up_on_is_nobodys_business():
    async def scenario():
        signal, let_go, reported = CancelSignal(), asyncio.Event(), []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
        started, gone = asyncio.Event(), []

        async def stubborn():
            started.set()
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            gone.append(True)
            raise ValueError("too late")

        task = asyncio.create_task(unless_cancelled(stubborn(), signal, 0.01))
        await started.wait()
        signal.set("user")
        with pytest.raises(Cancelled):
            await task
        let_go.set()
        await until(lambda: gone)
        await asyncio.sleep(0)
        assert reported == []

    run(scenario)


def test_the_first_cause_of_a_cancel_wins():
    async def scenario():
        signal = CancelSignal()
        signal.check()
        assert repr(signal) == "<CancelSignal not set>"
        signal.set("user")
        signal.set("closing")
        assert (signal.reason, signal.cancelled, repr(signal)) == ("user", True, "<CancelSignal user>")
        with pytest.raises(Cancelled):
            signal.check()

    run(scenario)
