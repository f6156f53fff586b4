"""When a command line is one simple command, and what a pattern names."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.plugins.command_line import CommandPattern, has_prefix, prefix_to_offer, simple_command


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("git status", ("git", "status")),
        ("  git \t status  ", ("git", "status")),
        ("git commit -m 'it\\is: 50% done!'", ("git", "commit", "-m", "it\\is: 50% done!")),
        ('git commit -m "fix it"', ("git", "commit", "-m", "fix it")),
        ("gi't' st\"atus\"", ("git", "status")),
        ("git show HEAD~1 a#b HEAD^ a@b ''", ("git", "show", "HEAD~1", "a#b", "HEAD^", "a@b", "")),
        ("make CC=gcc", ("make", "CC=gcc")),
        ("cat größe", ("cat", "größe")),
    ],
)
def test_simple_commands_and_their_words(line, words):
    assert simple_command(line) == words


@pytest.mark.parametrize(
    "line",
    [
        "git status; rm -rf /",
        "git status && rm x",
        "git status || rm x",
        "git status & rm x",
        "git status | sh",
        "git status\nrm x",
        "git status\rrm x",
        "git status $(rm x)",
        "git status `rm x`",
        'git status "$(rm x)"',
        "git status '$(rm x)'",
        "test -v 'a[`rm x`]'",
        "git status > /etc/passwd",
        "git status < x",
        "git status <(rm x)",
        "(git status)",
        "{ git status; }",
        "git status {a,b}",
        "git status *",
        "git status ?",
        "git status [a]",
        "git status $HOME",
        "git status \\; rm",
        "git status ~/x",
        "git status # x",
        "PAGER=sh git status",
        "'PAGER=sh' git status",
        "! git status",
        "time git status",
        "if git status",
        "git\u00a0status",
        "git status\u2028rm x",
        "git status\x00rm",
        "git status 'a\nb'",
        "git status 'a",
        'git status "a',
        "'' x",
        "",
        "  ",
    ],
)
def test_what_is_not_one_simple_command(line):
    assert simple_command(line) is None
    assert not has_prefix(line, "git status")
    assert not CommandPattern.parse("*").is_exactly(line)


SIGNS = [*"ab -=/é", " ", " ", "'", '"', *"~#\\$`;&|<>()*?[]{}!.\n\u00a0", "'a b'", '"c d"']


@given(st.lists(st.sampled_from(SIGNS), max_size=10).map("".join))
def test_the_shell_sees_the_same_words(line):
    """Whatever is called simple is one command with these words for a real shell, and nothing else happens."""
    words = simple_command("printf %s\\\\0 ".replace("\\\\", "/") + line)
    if words is None:
        return
    program = 'f() { for word in "$@"; do printf \'%s\\0\' "$word"; done; }; f '
    done = subprocess.run(["bash", "-c", program + line], capture_output=True, check=True, cwd="/", timeout=30)
    assert done.stderr == b""
    assert tuple(done.stdout.decode().split("\0")[:-1]) == words[2:]


@pytest.mark.parametrize(
    ("line", "prefix"),
    [
        ("git status --short", "git status"),
        ("git -C /x status", None),
        ("git", None),
        ("git remote add x y", "git remote add"),
        ("ls -l src", "ls"),
        ("./run.sh fast", "./run.sh"),
        ("python -m pytest -q", "python -m pytest"),
        ("python x.py", None),
        ("npm run build", "npm run build"),
        ("sudo ls", None),
        ("/bin/sh -c x", None),
        ("ls; rm x", None),
    ],
)
def test_the_prefix_that_is_offered(line, prefix):
    offered = prefix_to_offer(line)
    assert (None if offered is None else shlex.join(offered)) == prefix


def test_a_prefix_is_compared_word_by_word():
    assert has_prefix("git status", "git status")
    assert has_prefix("git status -s", "git status")
    assert has_prefix("'./a b' c", "'./a b'")
    assert not has_prefix("git statusx", "git status")
    assert not has_prefix("'git status' -s", "git status")
    assert not has_prefix("git", "git status")
    assert not has_prefix("git status", "")
    assert not has_prefix("git status", "git 'status")


@pytest.mark.parametrize(
    ("pattern", "line", "matches"),
    [
        ("git push", "git push", True),
        ("git push", "git push -f", False),
        ("git push *", "git push", True),
        ("git push *", "git push -f x", True),
        ("git push *", "git push -f; rm x", False),
        ("git pu*", "git pull", True),
        ("git pu*", "git pull x", False),
        ("git * x", "git add x", True),
        ("git * x", "git add y x", False),
        ("*", "anything at all", True),
        ("* --version", "git --version", True),
    ],
)
def test_patterns(pattern, line, matches):
    assert CommandPattern.parse(pattern).is_exactly(line) is matches


@pytest.mark.parametrize("text", ["", "  ", "a; b", "a | b", "$(a)", "a[bc]", "a?", "a 'b", "a\nb", "a \\* b"])
def test_what_is_no_pattern(text):
    with pytest.raises(ValueError, match=r"\w"):
        CommandPattern.parse(text)
