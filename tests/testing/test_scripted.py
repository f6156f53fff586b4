"""The model in memory: it does what a test says, in order."""

import asyncio

import pytest
from tests.plugins.transcripts import request

from fencepost.errors import ModelError
from fencepost.plugins.script import NotAnAnswerError
from fencepost.runtime.models import CallDelta, Finished, Model, TextDelta
from fencepost.testing import Cut, Pause, ScriptedModel


def ask(model, answers=0):
    async def work():
        return [delta async for delta in model.stream(request(answers))]

    return asyncio.run(work())


def test_answers_are_text_or_messages():
    model = ScriptedModel(
        ["one two", {"content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]
    )
    assert isinstance(model, Model)
    assert ask(model, 0) == [TextDelta("one "), TextDelta("two"), Finished("stop")]
    assert ask(model, 1) == [
        CallDelta(0, "", "f"),
        CallDelta(0, arguments="{"),
        CallDelta(0, arguments="}"),
        Finished("tool_calls"),
    ]


def test_it_keeps_every_request_that_was_sent():
    model = ScriptedModel(["one", "two"])
    stream = model.stream(request(1))
    assert model.requests == []
    asyncio.run(stream.aclose())
    ask(model, 0)
    ask(model, 1)
    assert model.requests == [request(0), request(1)]
    assert repr(model) == "<ScriptedModel 2 answers, 2 requests>"


def test_attempts_at_one_answer_come_in_order_and_the_last_one_stays():
    model = ScriptedModel([[ModelError("busy", code="RATE_LIMITED", retryable=True), Cut("one two", 1), "whole"]])
    with pytest.raises(ModelError, match="busy"):
        ask(model)
    assert ask(model) == [TextDelta("one ")]
    assert ask(model) == [TextDelta("whole"), Finished("stop")]
    assert ask(model) == [TextDelta("whole"), Finished("stop")]


def test_a_pause_stands_until_it_is_released():
    async def work():
        pause = Pause("one two", after=1)
        seen = []

        async def pull():
            seen.extend([delta async for delta in ScriptedModel([pause]).stream(request())])

        pulling = asyncio.create_task(pull())
        await pause.reached.wait()
        before = pulling.done()
        pause.release.set()
        await pulling
        return before, seen

    assert asyncio.run(work()) == (False, [TextDelta("one "), TextDelta("two"), Finished("stop")])


def test_a_script_that_runs_out_says_so():
    with pytest.raises(ModelError, match="the script has 1 answer, request 2 has none") as caught:
        ask(ScriptedModel(["one"]), 1)
    assert (caught.value.code, caught.value.retryable) == ("SCRIPT_EXHAUSTED", False)


@pytest.mark.parametrize("item", [{}, 3, {"content": 3}, Cut({}), ["fine", {}]])
def test_what_is_no_answer_is_refused_when_the_model_is_made(item):
    with pytest.raises(NotAnAnswerError):
        ScriptedModel([item])
