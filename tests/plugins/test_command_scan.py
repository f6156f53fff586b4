"""What a command line may run: nothing that a rule names passes by being put into something else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.plugins.command_line import CommandPattern
from fencepost.plugins.command_scan import commands_in, may_run


def found(pattern, line):
    return may_run(CommandPattern.parse(pattern), commands_in(line))


@pytest.mark.parametrize(
    "line",
    [
        "git push",
        "git push -f origin main",
        "git -C /x push",
        "/usr/bin/git push",
        "g\\it push",
        "gi't' \"pu\"sh",
        "gi\\\nt push",
        "cd x && git push",
        "cd x; git push",
        "cd x\ngit push",
        "true | git push",
        "false || git push &",
        "(git push)",
        "{ git push; }",
        "if true; then git push; fi",
        "for x in a; do git push; done",
        "while git push; do :; done",
        "case x in x) git push;; esac",
        "! git push",
        "time git push",
        "time -p git push",
        "bash <<< 'git push'",
        "f() { git push; }; f",
        "function f { git push; }; f",
        "echo $(git push)",
        "echo `git push`",
        'echo "it: $(git push)"',
        'echo "`git push`"',
        "X=$(git push)",
        "cat <(git push)",
        "echo ${x:-$(git push)}",
        "A=1 B=2 git push",
        "a=(x) git push",
        "git >/dev/null push",
        "git &>log push",
        "git 2>&1 push",
        "git <&- push",
        "2>log git push",
        ">log git push",
        "git $(true) push",
        "git `true` push",
        "sudo git push",
        "sudo -u me env A=1 git push",
        "timeout 5 git push",
        "echo x | xargs git push",
        "bash -c 'git push'",
        'bash -lc "cd x && git push"',
        "eval 'git push'",
        "ssh host 'git push'",
        "sudo bash -c \"bash -c 'git push'\"",
        "find . -exec git push {} +",
        "function f { bash -c 'git push'; }; f",
        "true # don't\ngit push # can't",
        "cat <<E\nit's\nE\ngit push # 's",
        "echo $'\\'' ; git push '",
        "echo 'never closed\ngit push",
        "echo `echo \\`git push\\``",
        "echo " + "$(" * 200 + "git push",
    ],
)
def test_it_is_found_wherever_it_stands(line):
    assert found("git push", line)
    assert found("git push *", line)
    assert found("git *", line)
    assert found("*", line)


@pytest.mark.parametrize(
    "line",
    [
        "git status",
        "git commit -m 'git push'",
        "echo git push",
        "git pull; echo push",
        "push git",
        "grep 'git push' README",
        "true # git push",
        "gitx push",
        "cat git; push",
        "",
    ],
)
def test_what_does_not_run_it(line):
    assert not found("git push", line)


def test_words_may_be_wild():
    assert found("rm -*r*", "cd x; rm -v -fr y")
    assert found("curl * --upload-file", "curl https://x --upload-file f")
    assert not found("rm -*r*", "rm x")


@given(st.text(st.sampled_from("git push'\"\\$`;&|<>(){}#\n! =-"), max_size=60))
def test_any_line_has_an_answer(line):
    for command in commands_in(line):
        assert command.words


@given(
    st.lists(st.sampled_from(["a", "$(b)", "'c d'", '"e"', "f\\ g", "x=1", ">h", "# i\n"]), max_size=4),
    st.sampled_from([";", "\n", "&&", "|", "&", "||"]),
)
def test_what_stands_before_does_not_hide_it(pieces, between):
    assert found("git push", f"{' '.join(pieces)} {between} git push")


@pytest.mark.parametrize("piece", ["(", "$(", "`", "'\"", "do ", "a=", "bash 'a b' ", "\\", "<", "$'", "git "])
def test_a_long_line_has_an_answer_too(piece):
    assert not found("git push", piece * 50_000)
