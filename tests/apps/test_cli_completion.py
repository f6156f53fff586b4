"""`fencepost completion`: the scripts, in the shells that they are for."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from fencepost.apps.cli import completing
from fencepost.apps.cli.parser import build
from tests.apps.command import Command

ROWS = [
    ("run --appr", {"--approve"}),
    ("run --approve ", {"ask", "read", "all", "none"}),
    ("run --model l", {"local:"}),
    ("completion ", {"bash", "zsh", "fish"}),
    ("export --format ", {"jsonl", "markdown", "openai", "anthropic"}),
    ("comp", {"compress", "completion"}),
]
"""What is typed, and what it may become."""

BASH = """
source "$1"
COMP_WORDS=($2) COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
if [[ $2 == *" " ]]; then COMP_WORDS+=(""); COMP_CWORD=$(( COMP_CWORD + 1 )); fi
_fencepost
printf '%s\\n' "${COMPREPLY[@]}"
"""

FISH = """
source $argv[1]
complete -C $argv[2]
"""

ZSH = """
compdef() { : }
_describe() { print -rl -- ${commands%%:*} }
_arguments() { print -rl -- "$@" }
source $1
words=(${(z)2}) CURRENT=$#words
_fencepost
"""
"""zsh completes on a terminal only; here its own functions say what they were told."""


@pytest.fixture
def script(cli: Command, tmp_path: Path):
    def printed(shell: str) -> tuple[str, Path]:
        found = shutil.which(shell)
        if found is None:
            if os.environ.get("CI"):
                pytest.fail(f"{shell} is not installed")
            pytest.skip(f"{shell} is not installed")
        path = tmp_path / f"completion.{shell}"
        path.write_text(cli.run("completion", shell).out)
        return found, path

    return printed


def say(*words: object) -> list[str]:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.mark.parametrize(("typed", "expected"), ROWS)
def test_bash(script, typed: str, expected: set[str]) -> None:
    bash, path = script("bash")
    assert set(say(bash, "--norc", "-c", BASH, "bash", path, f"fencepost {typed}")) >= expected


def test_bash_completes_paths_where_a_path_is_wanted(script, tmp_path: Path) -> None:
    bash, path = script("bash")
    (tmp_path / "project").mkdir()
    assert say(bash, "--norc", "-c", BASH, "bash", path, f"fencepost run --cwd {tmp_path}/pro") == [
        f"{tmp_path}/project"
    ]


@pytest.mark.parametrize(("typed", "expected"), ROWS)
def test_fish(script, typed: str, expected: set[str]) -> None:
    fish, path = script("fish")
    lines = say(fish, "--no-config", "-c", FISH, path, f"fencepost {typed}")
    assert {line.partition("\t")[0] for line in lines} >= expected


def test_zsh(script) -> None:
    zsh, path = script("zsh")
    assert set(say(zsh, "-f", "-c", ZSH, "zsh", path, "fencepost r")) >= {"run", "resume", "export"}
    told = say(zsh, "-f", "-c", ZSH, "zsh", path, "fencepost run -")
    assert "--json[print events as JSON Lines, then the outcome]" in told
    assert any(line.startswith("--approve[") and line.endswith(":value:(ask read all none)") for line in told)


@pytest.mark.parametrize("write", [completing.bash, completing.zsh, completing.fish])
def test_every_command_and_long_option_is_in_every_script(write) -> None:
    text = "\n".join(write(completing.words()))
    _, commands = build()
    for name, parser in commands.choices.items():
        assert name in text
        for option in parser._option_string_actions:
            assert option.lstrip("-") in text


def test_a_shell_that_is_not_known_is_usage(cli: Command) -> None:
    done = cli.run("completion", "tcsh")
    assert done.status == 2
    assert "usage: fencepost completion" in done.err
