"""The console script: quick answers, usage, and no traceback ever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fencepost import __version__
from fencepost.apps.cli import exits, listing, main
from fencepost.apps.cli.parser import abouts, build
from fencepost.errors import (
    CompositionError,
    ConfigError,
    DamagedError,
    FencepostError,
    HeldError,
    NoSpaceError,
    NotSavedError,
    SessionExistsError,
    SessionNotFoundError,
    UnsupportedError,
)
from tests.apps.command import Command, finish

HEAVY = ("asyncio", "rich", "openai", "msgspec", "jsonschema_rs", "fencepost.runtime")


def test_the_console_script_is_installed_and_says_its_version() -> None:
    script = Path(sys.executable).parent / "fencepost"
    done = subprocess.run([script, "--version"], capture_output=True, check=True, text=True)
    assert done.stdout == f"fencepost {__version__}\n"


@pytest.mark.parametrize("word", ["--version", "--help", "run --help"])
def test_nothing_heavy_is_imported_before_a_command_needs_it(word: str) -> None:
    code = (
        "import sys; from fencepost.apps.cli.main import main; status = main(sys.argv[1:]); "
        f"print([name for name in {HEAVY} if name in sys.modules], status, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *word.split()], capture_output=True, check=True, text=True)
    assert done.stderr == "[] 0\n"


def test_help_lists_every_command_on_one_line_of_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert [line for line in said.splitlines() if len(line) > 80] == []
    _, commands = build()
    for name, about in abouts(commands).items():
        assert said.count(f"  {name:<12}{about}\n") == 1


@pytest.mark.parametrize(
    "words", [[], ["dance"], ["run"], ["run", "--approve", "perhaps", "x"], ["export", "--format", "pdf"]]
)
def test_wrong_words_are_usage(cli: Command, words: list[str]) -> None:
    done = cli.run(*words)
    assert (done.status, done.out) == (2, "")
    assert "usage: fencepost" in done.err


def test_without_a_model_three_lines_say_how_to_set_one(cli: Command) -> None:
    done = cli.run("run", "do it")
    assert done.status == 2
    head, *ways = done.err.splitlines()
    assert "no model" in head
    assert len(ways) == 3
    assert all(word in line for word, line in zip(("anthropic:", "local:", "script:"), ways, strict=True))
    assert not cli.store.exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "--model", "abacus:9", "x"], "abacus:9"),
        (["run", "--model", "openai:gpt-5", "x"], "OPENAI_API_KEY"),
        (["run", "--model", "script:nowhere.jsonl", "x"], "nowhere.jsonl"),
        (["run", "--cwd", "nowhere", "x"], "nowhere"),
        (["run", " "], "empty"),
        (["sessions", "--store", "stone:tablet"], "stone:tablet"),
        (["resume", "nobody"], "nobody"),
        (["inspect"], "no session of the directory"),
    ],
)
def test_what_is_wrong_is_named_in_one_sentence(cli: Command, words: list[str], said: str) -> None:
    cli.script({"content": "hello"})
    done = cli.run(*words)
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("fencepost: error: ")
    assert said in done.err
    assert not cli.store.exists()


def test_a_wrong_configuration_names_file_and_key(cli: Command) -> None:
    (cli.work / "fencepost.toml").write_text("modell = 'openai:gpt-5'\n")
    done = cli.run("run", "x")
    assert done.status == 2
    assert "fencepost.toml" in done.err
    assert "modell" in done.err


def test_each_error_has_its_exit_status() -> None:
    expected = {
        ConfigError: 2,
        CompositionError: 2,
        SessionNotFoundError: 2,
        SessionExistsError: 2,
        NotSavedError: 3,
        NoSpaceError: 3,
        HeldError: 4,
        DamagedError: 5,
        UnsupportedError: 5,
        FencepostError: 1,
    }
    assert {kind: exits.status_of(kind("x")) for kind in expected} == expected


def test_of_several_failures_not_saved_decides() -> None:
    group = ExceptionGroup("x", [HeldError("a"), ExceptionGroup("y", [NotSavedError("b")])])
    statuses = [exits.status_of(leaf) for leaf in exits.leaves(group) if isinstance(leaf, FencepostError)]
    assert statuses == [4, 3]
    assert exits.worst(statuses) == exits.NOT_SAVED


def test_a_fault_of_ours_is_one_line_and_the_traceback_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(arguments: object) -> int:
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(listing, "main", broken)
    assert main.main(["sessions"]) == exits.INTERNAL
    said = capsys.readouterr().err
    assert said == (
        "fencepost: error: an internal fault, ZeroDivisionError: division by zero. "
        "Set FENCEPOST_DEBUG=1 for the traceback\n"
    )
    monkeypatch.setenv("FENCEPOST_DEBUG", "1")
    main.main(["sessions"])
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_leaves_early_ends_a_listing_quietly(cli: Command) -> None:
    cli.script({"content": "word " * 50_000})
    assert cli.run("run", "--session", "long", "talk").status == 0
    child = cli.start("export", "long")
    assert child.stdout is not None
    child.stdout.read(10)
    child.stdout.close()
    done = finish(child)
    assert (done.status, done.err) == (exits.NO_READER, "")
