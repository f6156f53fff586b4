"""Allow and deny rules: what they let through, what they stop, and what they say when they are wrong."""

import pytest
from tests.plugins.people import Person, shell
from tests.runtime.rig import Agent, call, calls, run

from fencepost.core import events as ev
from fencepost.errors import ConfigError
from fencepost.plugins.approval import Approval, Verdict
from fencepost.plugins.files import file_tools
from fencepost.plugins.rules import Rule, Rules
from fencepost.runtime.config import parse
from fencepost.runtime.plugin import Composition
from fencepost.runtime.toolmaker import tool

NO = Verdict(allowed=False)


@tool(name="mcp__mail__send")
async def mail() -> str:
    """Send."""
    return "sent"


def bash(command):
    return call("shell", {"command": command})


def write(path):
    return call("write_file", {"path": str(path), "content": "x"})


def codes(text, requests, cwd, mode="ask"):
    """The code of each call under the rules of a configuration file; `ASKED` where a person said no."""

    async def scenario():
        config = parse(text.encode(), "fencepost.toml")
        person = Person(*[NO] * len(requests))
        script = [*(calls(request) for request in requests), "ok"]
        plugins = [Approval(mode, person.ask), Rules()]
        tools = [*file_tools(), shell, mail]
        async with Agent(script, tools=tools, plugins=plugins, configured=config.plugin, cwd=cwd) as agent:
            await agent.session.prompt("go")
        asked = {question.call_id for question in person.questions}
        results = agent.events(ev.ToolResult)
        return ["ASKED" if one.call_id in asked else one.code or "ok" for one in results], [
            ev.text_of(one.content) for one in results
        ]

    return run(scenario)


RULES = """
[plugin.rules]
deny = [
    {tool = "shell", command = "touch made"},
    {tool = "*_file", path = "secret/**"},
    {tool = "mcp__*"},
]
allow = [
    {tool = "shell", command = "echo *"},
    {tool = "shell", command = "touch *"},
    {tool = "write_file", path = "docs/**"},
    {tool = "write_file", path = "secret/**"},
    {tool = "edit_file"},
]
"""


def test_deny_wins_over_allow_and_allow_over_asking(tmp_path):
    requests = [bash("echo 1"), bash("touch made"), bash("touch other"), bash("ls"), call("mcp__mail__send")]
    found, texts = codes(RULES, requests, tmp_path)
    assert found == ["ok", "DENIED", "ok", "ASKED", "DENIED"]
    assert 'the user\'s rule deny[0] {tool = "shell", command = "touch made"}' in texts[1]
    assert "deny[2]" in texts[4]
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize(
    "command",
    [
        "echo 1; touch x",
        "echo $(touch x)",
        "echo `touch x`",
        "echo 1\ntouch x",
        "echo > x",
        "A=1 echo",
        "echo <(touch x)",
    ],
)
def test_no_trick_makes_a_command_allowed(tmp_path, command):
    assert codes(RULES, [bash(command)], tmp_path)[0] == ["ASKED"]


@pytest.mark.parametrize(
    "command",
    ["cd . && touch made", "echo $(touch made)", "bash -c 'touch made'", "/usr/bin/touch -c made", "env touch made"],
)
def test_no_simple_trick_gets_round_a_denial(tmp_path, command):
    assert codes(RULES, [bash(command)], tmp_path, "all")[0] == ["DENIED"]
    assert list(tmp_path.iterdir()) == []


def test_paths_are_compared_where_they_lead(tmp_path):
    cwd = tmp_path / "cwd"
    for name in ("docs", "secret"):
        (cwd / name).mkdir(parents=True)
    (cwd / "docs" / "out").symlink_to(tmp_path)
    (cwd / "way").symlink_to("secret")
    requests = [write("docs/new/a"), write("docs/../b"), write("docs/out/c"), write("secret/d"), write("way/e")]
    assert codes(RULES, requests, cwd)[0] == ["ok", "ASKED", "ASKED", "DENIED", "DENIED"]


def test_a_path_that_is_left_out_is_what_the_tool_takes_then(tmp_path):
    text = '[plugin.rules]\ndeny = [{tool = "list_files", path = "**"}]'
    assert codes(text, [call("list_files"), call("list_files", {"path": "/usr"})], tmp_path)[0] == ["DENIED", "ASKED"]


def test_only_a_rule_that_names_the_place_covers_what_leaves_the_directory(tmp_path):
    text = f"""[plugin.rules]
    allow = [{{tool = "write_file"}}, {{tool = "read_file", path = "{tmp_path}/**"}}]"""
    (tmp_path / "cwd").mkdir()
    (tmp_path / "a").write_text("x")
    requests = [write("a"), write(tmp_path / "b"), call("read_file", {"path": str(tmp_path / "a")})]
    assert codes(text, requests, tmp_path / "cwd")[0] == ["ok", "ASKED", "ok"]


@pytest.mark.parametrize(("mode", "found"), [("read", "ok"), ("all", "ok"), ("none", "DENIED")])
def test_allow_in_every_mode(tmp_path, mode, found):
    assert codes(RULES, [bash("echo 1")], tmp_path, mode)[0] == [found]


def test_rules_from_a_program():
    async def scenario():
        person = Person(NO)
        rules = Rules(deny=[Rule(tool="shell", command="rm")], allow=[Rule(tool="shell", command="echo *")])
        settings = {"rules": {"deny": [{"tool": "shell", "command": "echo 2"}]}}
        script = [calls(bash("echo 1"), bash("rm -rf x"), bash("echo 2")), "ok"]
        plugins = [rules, Approval("ask", person.ask)]
        async with Agent(script, tools=[shell], plugins=plugins, configured=settings) as agent:
            await agent.session.prompt("go")
        assert agent.results() == ["shell: ok", "shell: DENIED", "shell: DENIED"]
        assert person.questions == []

    run(scenario)


def test_without_rules_nobody_stands_there():
    assert Composition([Rules()], {}).registry.hooks.tool_admit.owners() == []
    assert Composition([Rules()], {"rules": {"deny": [{"tool": "*"}]}}).registry.hooks.tool_admit.owners() == [
        "rules@POLICY"
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("denied = []", "unknown key 'denied'|unknown field `denied`"),
        ('deny = [{tool = "shell", comand = "x"}]', "unknown field `comand`.*deny"),
        ('deny = [{command = "x"}]', "missing required field `tool`.*deny"),
        ('deny = "shell"', "deny"),
        ('deny = [{tool = ""}]', r"deny\[0\].*`tool` is empty"),
        ('allow = [{tool = "shell"}, {tool = "shell", command = "a; b"}]', r"allow\[1\].*`command` is no pattern.*';'"),
        ('allow = [{tool = "shell", command = ""}]', r"allow\[0\].*empty"),
        ('deny = [{tool = "shell", command = "a \'b"}]', r"deny\[0\].*no pattern"),
        ('deny = [{tool = "*", path = "../x"}]', r"deny\[0\].*`path` is no pattern"),
        ('deny = [{tool = "*", path = "a**"}]', r"deny\[0\].*`path` is no pattern"),
        ('deny = [{tool = "*", path = "x", command = "y"}]', r"deny\[0\].*both"),
    ],
)
def test_a_rule_that_cannot_be_understood_is_an_error(text, says):
    config = parse(f"[plugin.rules]\n{text}".encode(), "fencepost.toml")
    with pytest.raises(ConfigError, match=says) as caught:
        Composition([Rules()], config.plugin)
    assert "[plugin.rules]" in str(caught.value)
    assert caught.value.next_act
