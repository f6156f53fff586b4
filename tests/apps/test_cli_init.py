"""`fencepost init`: a file that is complete and correct, written once, and what it leads to."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from fencepost.apps.cli.first_file import TEXT, first_file
from fencepost.apps.cli.ready import composition
from fencepost.plugins.budget import BudgetSettings
from fencepost.plugins.compaction import CompactionSettings
from fencepost.plugins.http_request import HttpRules
from fencepost.plugins.mcp_config import McpServer
from fencepost.plugins.repeats import RepeatsSettings
from fencepost.plugins.retry import RetrySettings
from fencepost.plugins.rules import RulesSettings
from fencepost.plugins.shipped import DEFAULT, ShellSettings
from fencepost.runtime.config import Config, Redact, parse
from tests.apps.command import Command

EVERYTHING = re.sub(r"^#(?! )|^#(?=    \")", "", TEXT, flags=re.MULTILINE)
"""The file with every line in force."""

TABLES: dict[str, type[msgspec.Struct]] = {
    "budget": BudgetSettings,
    "compaction": CompactionSettings,
    "http": HttpRules,
    "repeats": RepeatsSettings,
    "retry": RetrySettings,
    "rules": RulesSettings,
    "shell": ShellSettings,
}
KEY = "sk-ant-secret"


# --- the file ---------------------------------------------------------------------------------------------------


def test_every_key_that_there_is_stands_in_it() -> None:
    written = tomllib.loads(EVERYTHING)
    assert set(written) == set(Config.__struct_fields__)
    assert set(written["redact"]) == set(Redact.__struct_fields__)
    assert set(written["plugin"]) == {*TABLES, "mcp"}
    for name, shape in TABLES.items():
        assert set(written["plugin"][name]) == set(shape.__struct_encode_fields__), name
    servers = written["plugin"]["mcp"]["servers"].values()
    assert set().union(*servers) == set(McpServer.__struct_fields__)
    assert written["plugins"] == list(DEFAULT)


def test_all_of_it_together_is_taken_without_a_complaint() -> None:
    config = parse(EVERYTHING.encode(), Path("fencepost.toml"))
    parts = composition(msgspec.structs.replace(config, plugins=[*DEFAULT, "http"]))
    parts.undo()


def test_as_it_is_written_it_says_nothing() -> None:
    assert parse(first_file().encode(), Path("fencepost.toml")) == Config()


@pytest.mark.parametrize("value", ["openai:gpt-5", 'script:./a "quoted" \\ ünd\x7f\t.jsonl', "local:./\U0001f600.gguf"])
def test_a_value_that_was_chosen_is_in_force_to_the_letter(value: str) -> None:
    assert parse(first_file(model=value).encode(), Path("x")) == Config(model=value)


# --- the command ------------------------------------------------------------------------------------------------


def test_it_writes_the_file_and_checks_what_it_leads_to(cli: Command) -> None:
    model = cli.script({"content": "hello"})
    cli.environ.pop("FENCEPOST_MODEL")
    done = cli.run("init", "--model", model, "--json")
    report = done.record()
    assert done.status == 0
    assert report["file"] == str(cli.work / "fencepost.toml")
    assert (report["model"]["name"], report["model"]["ok"]) == (model, True)
    assert (report["store"]["ok"], report["store"]["detail"]) == (True, "0 sessions")
    assert report["medium"]["ok"]
    assert [kill["gate"] for kill in report["medium"]["kills"]] == ["request", "tool", "result"]
    assert cli.run("run", "say hello").out == "hello\n", "the file is in force"


def test_without_a_model_it_says_how_to_choose_one(cli: Command) -> None:
    done = cli.run("init")
    assert done.status == 0
    for word in (
        "wrote",
        "fencepost.toml",
        "none is chosen",
        "anthropic:NAME",
        "local:FILE",
        "script:FILE",
        "syncs work",
    ):
        assert word in done.out
    assert parse((cli.work / "fencepost.toml").read_bytes(), Path("x")) == Config()


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ("anthropic:claude-x", "Set ANTHROPIC_API_KEY"),
        ("local:./none.gguf", "there is no model file"),
        ("abacus:9", "known are anthropic:, deepseek:, local:, openai:, script:"),
    ],
)
def test_a_model_that_is_not_set_up_is_a_finding(cli: Command, model: str, says: str) -> None:
    done = cli.run("init", "--model", model, "--json")
    found = done.record()["model"]
    assert (done.status, found["ok"]) == (1, False)
    assert says in f"{found['detail']} {found['next_act']}"
    assert parse((cli.work / "fencepost.toml").read_bytes(), Path("x")) == Config(model=model)


def test_a_key_is_looked_for_and_never_written(cli: Command) -> None:
    cli.environ["ANTHROPIC_API_KEY"] = KEY
    done = cli.run("init", "--model", "anthropic:claude-x")
    assert done.status == 0
    assert "nothing was sent" in done.out
    assert KEY not in done.out + (cli.work / "fencepost.toml").read_text()


def test_a_file_that_is_there_is_left_alone_but_by_force(cli: Command) -> None:
    path = cli.work / "fencepost.toml"
    path.write_text("approve = 'all'\n")
    done = cli.run("init")
    assert (done.status, done.out, path.read_text()) == (2, "", "approve = 'all'\n")
    assert "--force" in done.err
    assert cli.run("init", "--force").status == 0
    assert path.read_text() == first_file()
    assert [item.name for item in cli.work.iterdir()] == ["fencepost.toml"]


def test_a_store_that_is_none_is_said_before_anything_is_written(cli: Command) -> None:
    done = cli.run("init", "--store", "stone:tablet")
    assert (done.status, done.out) == (2, "")
    assert "stone:tablet" in done.err
    assert list(cli.work.iterdir()) == []
