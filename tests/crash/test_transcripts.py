"""The strict reading of the Anthropic form refuses what that API refuses."""

import pytest

from tests.crash.transcripts import anthropic_problem


def user(*blocks: dict | str) -> dict:
    return {"role": "user", "content": [_text(block) for block in blocks]}


def assistant(*blocks: dict | str) -> dict:
    return {"role": "assistant", "content": [_text(block) for block in blocks]}


def _text(block: dict | str) -> dict:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def use(identity: str, **arguments: object) -> dict:
    return {"type": "tool_use", "id": identity, "name": "look", "input": arguments}


def result(identity: str) -> dict:
    return {"type": "tool_result", "tool_use_id": identity, "content": "", "is_error": False}


def test_a_whole_transcript_passes():
    messages = [
        user("Go."),
        assistant("I look.", use("a"), use("b")),
        user(result("b"), result("a"), "And?"),
        assistant("No."),
    ]
    assert anthropic_problem(messages) is None


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([assistant("Hello.")], "where user is due"),
        ([user("Go."), user("Go on.")], "where assistant is due"),
        ([user("Go."), assistant(use("a"))], "without tool_result"),
        ([user("Go."), assistant(use("a")), user("And?")], "are owed"),
        ([user("Go."), assistant(use("a")), user(result("a"), result("a"))], "are owed"),
        ([user("Go."), assistant("Hm."), user(result("a"))], "are owed"),
        ([user("Go."), assistant(use("a")), user("And?", result("a"))], "behind text"),
        ([user("Go."), assistant(use("a"), use("a"))], "used twice"),
        ([user("Go."), assistant(use("a.b"))], "not usable"),
        ([user("Go."), assistant(use("")), user(result(""))], "not usable"),
        ([user("Go."), assistant("  ")], "an empty text block"),
        ([user("")], "an empty text block"),
    ],
)
def test_what_is_refused(messages, problem):
    assert problem in (anthropic_problem(messages) or "nothing")
