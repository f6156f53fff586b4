"""Retrying inside the step: what is retried, how long it waits, and what is recorded."""

import asyncio

import pytest
from tests.runtime.rig import Agent, run, until

from fencepost.core import events as ev
from fencepost.errors import ConfigError, ModelError
from fencepost.plugins.retry import Retry, RetrySettings
from fencepost.testing import Cut


def busy(**more):
    return ModelError("busy", **{"code": "RATE_LIMITED", "status": 429, "retryable": True, "retry_after": 0, **more})


async def turn(given, *, chance=0.0, **settings):
    """One prompt whose only request goes through these attempts; the agent, closed, and the result."""
    configured = {"retry": settings} if settings else None
    async with Agent([given], plugins=[Retry(lambda: chance)], configured=configured) as agent:
        result = await agent.session.prompt("go")
        return agent, result


def test_each_retry_is_recorded_before_its_wait_with_what_went_wrong():
    async def scenario():
        connection = ModelError("no route to host", code="CONNECTION", retryable=True)
        agent, result = await turn([busy(), connection, "At last."], base=0.001)
        assert result.text == "At last."
        retries = agent.events(ev.RequestRetry)
        assert [(one.attempt, one.code, one.message) for one in retries] == [
            (1, "RATE_LIMITED", "busy"),
            (2, "CONNECTION", "no route to host"),
        ]
        assert len(agent.events(ev.StepStart)) == 1
        assert [request.messages for request in agent.model.requests] == [agent.model.requests[0].messages] * 3

    run(scenario)


@pytest.mark.parametrize(
    "error", [ModelError("bad request", status=400), ModelError("no key", code="AUTH", status=401)]
)
def test_what_is_not_retryable_fails_at_once(error):
    async def scenario():
        agent, result = await turn([error, "never"])
        assert (result.reason, result.code) == ("error", error.code)
        assert len(agent.model.requests) == 1

    run(scenario)


def test_the_attempts_are_counted_with_the_first():
    async def scenario():
        agent, result = await turn([busy()], attempts=3)
        assert (result.reason, result.code) == ("error", "RATE_LIMITED")
        assert len(agent.model.requests) == 3
        assert len(agent.events(ev.RequestRetry)) == 2
        agent, _ = await turn([busy()], attempts=1)
        assert len(agent.model.requests) == 1

    run(scenario)


def test_a_cut_stream_is_retried_like_a_lost_connection_and_given_up_on():
    async def scenario():
        agent, result = await turn([Cut("half an answer", after=2)], attempts=2, base=0)
        assert (result.reason, result.code) == ("error", "TRUNCATED")
        assert len(agent.model.requests) == 2
        assert agent.one(ev.AssistantMessage).interrupted

    run(scenario)


def delay(error, number=1, chance=0.0, **settings):
    return Retry(lambda: chance)._delay(RetrySettings(**settings), number, error)


def test_a_wait_doubles_up_to_its_limit_and_has_chance_in_it():
    lost = ModelError("lost", retryable=True)
    assert [delay(lost, number, chance=1.0) for number in range(1, 8)] == [0.5, 1, 2, 4, 8, 16, 20]
    assert [delay(lost, number) for number in (1, 2, 7)] == [0.25, 0.5, 10]


def test_a_providers_wish_is_honoured_up_to_our_patience():
    assert delay(busy(retry_after=7.5)) == 7.5
    assert delay(busy(retry_after=120)) == 120
    assert delay(busy(retry_after=121)) is None
    assert delay(busy(retry_after=30), patience=20) is None
    assert delay(busy(retry_after=-5)) == 0


def test_a_wish_beyond_our_patience_fails_the_request_with_its_own_error():
    async def scenario():
        agent, result = await turn([busy(retry_after=3600), "never"])
        assert (result.reason, result.code) == ("error", "RATE_LIMITED")
        assert agent.events(ev.RequestRetry) == []

    run(scenario)


def test_the_wait_is_recorded_in_milliseconds():
    async def scenario():
        agent, _ = await turn([busy(retry_after=0.012), "ok"])
        assert agent.one(ev.RequestRetry).delay_ms == 12

    run(scenario)


def test_settings_are_checked():
    async def scenario():
        with pytest.raises(ConfigError, match="atempts"):
            await turn(["x"], atempts=3)
        with pytest.raises(ConfigError, match="attempts"):
            await turn(["x"], attempts=0)
        with pytest.raises(ConfigError, match="base"):
            await turn(["x"], base=-1)

    run(scenario)


def test_a_cancel_ends_the_wait():
    async def scenario():
        async with Agent([[busy(retry_after=100), "never"]], plugins=[Retry()]) as agent:
            task = asyncio.create_task(agent.session.prompt("go"))
            await until(lambda: agent.events(ev.RequestRetry))
            await agent.session.cancel()
            assert (await task).reason == "aborted"
            assert len(agent.model.requests) == 1

    run(scenario)
