"""Rules, budgets and the repeat guard as users meet them: in `fencepost.toml`."""

from __future__ import annotations

import pytest

from tests.apps.command import Command, call

ECHO, TOUCH = call("shell", command="echo one"), call("shell", command="cd . && touch made")


def results(cli: Command) -> list[str]:
    return [event.get("code", "") for event in cli.events("s1") if event["type"] == "tool/result"]


def configure(cli: Command, text: str) -> None:
    (cli.work / "fencepost.toml").write_text(text)


def test_rules_allow_without_asking_and_deny_in_every_mode(cli: Command) -> None:
    configure(
        cli,
        """
        [plugin.rules]
        allow = [{tool = "shell", command = "echo *"}]
        deny = [{tool = "shell", command = "touch"}]
        """,
    )
    cli.script(ECHO, TOUCH, {"content": "Done."})
    assert cli.run("run", "--session", "s1", "--approve", "read", "x").status == 0
    assert results(cli) == ["", "DENIED"]
    cli.script(ECHO, TOUCH, {"content": "Done."}, TOUCH, {"content": "Done."})
    assert cli.run("resume", "s1", "--approve", "all", "again").status == 0
    assert results(cli) == ["", "DENIED", "DENIED"]
    assert not (cli.work / "made").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[plugin.rules]\ndeny = [{tool = "shell", comand = "rm"}]', "comand"),
        ('[plugin.rules]\nallow = [{tool = "shell", command = "ls; rm"}]', "allow[0]"),
        ('plugins = ["checkpoint", "approval"]\n[plugin.rules]\ndeny = []', "not composed"),
        ("[plugin.budget]\ncalls = -1", "[plugin.budget]"),
    ],
)
def test_what_cannot_be_understood_stops_the_command(cli: Command, text: str, says: str) -> None:
    configure(cli, text)
    cli.script({"content": "never"})
    done = cli.run("run", "--session", "s1", "x")
    assert (done.status, done.out) == (2, "")
    assert says in done.err
    assert not cli.store.exists()


def test_a_budget_ends_the_turn_as_blocked(cli: Command) -> None:
    configure(cli, "[plugin.budget]\ncalls = 1")
    cli.script(*[ECHO] * 9)
    done = cli.run("run", "--session", "s1", "--approve", "all", "--json", "x")
    assert (done.status, done.records()[-1]["reason"]) == (1, "blocked")
    assert "1 of 1 calls" in done.records()[-1]["message"]
    assert results(cli) == ["", *["DENIED"] * 3]


def test_the_repeat_guard_is_there_by_default(cli: Command) -> None:
    cli.script(*[ECHO] * 6, {"content": "Done."})
    assert cli.run("run", "--session", "s1", "--approve", "all", "x").status == 0
    assert results(cli) == [*[""] * 5, "DENIED"]
    hooks = {hook["point"]: hook["owners"] for hook in cli.run("config", "--json").record()["hooks"]}
    assert hooks["tool_admit"] == ["repeats@POLICY", "approval@ASK"]
