"""`fencepost config`: what would be composed here."""

from __future__ import annotations

from tests.apps.command import Command

TICKER = """
import fencepost as fp

class Plugin:
    name = "ticker"
    requires = ("checkpoint",)

    def apply(self, context):
        context.hook(lambda hooks: hooks.tool_admit, fp.Position.OBSERVE, lambda call, go_on: go_on(call))

plugin = Plugin
"""


def test_the_default_composition_has_all_gates(cli: Command) -> None:
    view = cli.run("config", "--json").record()
    assert (view["file"], view["model"], view["store"]) == (None, None, f"jsonl:{cli.store}")
    assert view["approve"] == "read"
    assert view["gates"] == ["step", "request", "tool", "closing"]
    assert view["policy"] == "checkpoint"
    hooks = {hook["point"]: hook for hook in view["hooks"]}
    assert hooks["tool_execute"]["owners"][-1] == "checkpoint@GATE"
    assert {hook["point"]: hook["gate"] for hook in view["hooks"] if hook["gate"]} == {
        "before_step": "step",
        "model_stream": "request",
        "tool_execute": "tool",
    }
    effects = {tool["name"]: tool["effect"] for tool in view["tools"]}
    assert effects == {
        "read_file": "read",
        "list_files": "read",
        "search_files": "read",
        "write_file": "idempotent",
        "edit_file": "write",
        "shell": "write",
    }


def test_a_composition_without_gates_is_visible(cli: Command) -> None:
    (cli.work / "fencepost.toml").write_text("plugins = ['models', 'approval', 'shell']\nmodel = 'script:./s.jsonl'\n")
    view = cli.run("config", "--json").record()
    assert (view["gates"], view["policy"]) == (["closing"], "none")
    assert view["model"] == f"script:{cli.work}/s.jsonl"
    (cli.work / "s.jsonl").write_text('{"content": "Yes."}\n')
    done = cli.run("run", "x")
    assert (done.status, done.out) == (0, "Yes.\n")
    assert "unknown" in done.err


def test_a_third_partys_plugin_is_composed_by_name(cli: Command) -> None:
    cli.plugin("ticker", TICKER)
    view = cli.run("config", "--json").record()
    assert view["plugins"][-1] == "ticker"
    (admit,) = [hook["owners"] for hook in view["hooks"] if hook["point"] == "tool_admit"]
    assert admit == ["ticker@OBSERVE", "approval@ASK"]


def test_a_plugin_that_is_not_there_is_usage_for_running_and_a_note_for_reading(cli: Command) -> None:
    (cli.work / "fencepost.toml").write_text("plugins = ['models', 'gone']\n")
    assert cli.run("config").status == 2
    done = cli.run("sessions")
    assert done.status == 0
    assert "gone" in done.err


def test_people_get_it_in_eighty_columns(cli: Command) -> None:
    out = cli.run("config").out
    assert "checkpoint@GATE" in out
    assert "NOT SAVED" not in out
    assert "NOT SAVED" in cli.run("config", "--store", "memory:").out
    assert all(len(line) <= 80 or "/" in line for line in out.splitlines())
