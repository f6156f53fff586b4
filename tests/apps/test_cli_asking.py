"""What a person is shown about a call, and what their line says."""

import pytest

from fencepost.apps.cli.asking import answer, wording
from fencepost.plugins.approval import Choice, Question, Verdict

OFFERED = (
    Choice("call", "", "exactly this call"),
    Choice("prefix", "git status", "git status"),
    Choice("directory", "/x\x1b[2K", "in /x\x1b[2K"),
)
QUESTION = Question("s1", "c1", "shell", {"command": "git status"}, "write", "it is declared write", OFFERED)


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("y", Verdict(allowed=True)),
        (" YES ", Verdict(allowed=True)),
        ("n", Verdict(allowed=False)),
        ("No", Verdict(allowed=False)),
        ("no, not today", Verdict(allowed=False, reason="not today")),
        ("n: use rg", Verdict(allowed=False, reason="use rg")),
        ("c", OFFERED[0].yes()),
        ("P", Verdict(allowed=True, remember=True, scope="prefix", pattern="git status")),
        ("d", OFFERED[2].yes()),
        ("a", None),
        ("always", None),
        ("now", None),
        ("nope", None),
        ("yes no", None),
        ("y please", None),
        ("", None),
    ],
)
def test_a_line_answers_or_does_not(line, verdict):
    assert answer(line, QUESTION) == verdict


def test_only_what_is_offered_is_shown_and_shown_plainly():
    text = wording(QUESTION)
    assert "y, c, p, d or n" in text
    assert "\x1b" not in text
    assert "always in /x\\x1b[2K" in text
    assert "y or n" in wording(Question("s1", "c1", "shell", {}, "write", "it is declared write"))
