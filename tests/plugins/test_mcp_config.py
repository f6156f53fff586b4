"""What is said of MCP servers, how errors name it, and how their tools are called."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from mcp.types import ToolAnnotations

from fencepost.errors import ConfigError
from fencepost.plugins.mcp import Mcp, McpServer, mcp_source
from fencepost.plugins.mcp_config import expanded, servers_of, shown
from fencepost.plugins.mcp_servers import NAME_LIMIT, effect_of, name_for
from fencepost.plugins.mcp_trail import Trail
from fencepost.runtime.plugin import Composition


@pytest.mark.parametrize(
    ("table", "said", "act"),
    [
        ({}, "neither of `command` and `url`", "Give `command`"),
        ({"command": "x", "url": "http://x"}, "both of `command` and `url`", "Give `command`"),
        ({"command": "x", "headers": {"A": "b"}}, "`headers` goes with `url`", "Take it out"),
        ({"url": "http://x", "args": ["b"]}, "`args` goes with `command`", "Take it out"),
        ({"url": "x.example/mcp"}, "begins neither with http:// nor", "Write it whole"),
        ({"command": "x", "argz": []}, "unknown field `argz`", "There are: command, args"),
        ({"command": "x", "timeout": 0}, r"Expected `float` > 0.0 - at `$.timeout`", "There are: command, args"),
        ({"command": "x", "effects": {"a": "none"}}, "Invalid enum value 'none'", "There are: command, args"),
        ("x", "Expected `object`, got `str`", "There are: command, args"),
    ],
)
def test_an_error_names_table_and_key_and_what_to_do(table, said, act):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        Composition([Mcp()], {"mcp": {"servers": {"wiki": table}}})
    assert str(caught.value).startswith("[plugin.mcp.servers.wiki]")
    assert caught.value.next_act.startswith(act)


def test_other_keys_and_names_are_errors_too():
    with pytest.raises(ConfigError, match=r"\[plugin.mcp\]: unknown key 'server'"):
        Composition([Mcp()], {"mcp": {"server": {}}})
    with pytest.raises(ConfigError, match="'my wiki' cannot name a server"):
        Composition([Mcp()], {"mcp": {"servers": {"my wiki": {"command": "x"}}}})
    with pytest.raises(ConfigError, match="the program has a server of that name already"):
        Composition([Mcp({"a": {"command": "x"}})], {"mcp": {"servers": {"a": {"command": "y"}}}})
    with pytest.raises(ConfigError, match=r"\[mcp.servers.a\]"):
        mcp_source({"a": McpServer()})


def test_a_record_made_in_a_program_is_checked_like_a_table():
    with pytest.raises(ConfigError, match="Expected `array`"):
        servers_of({"a": McpServer(command="x", args="--all")})
    assert servers_of({"a": McpServer(command="x", args=["-v"])}) == {"a": McpServer(command="x", args=("-v",))}


@pytest.mark.parametrize(
    ("text", "value"),
    [("plain $A {A}", "plain $A {A}"), ("${A}/${B:-b c}${EMPTY:-x}", "1/b c"), ("${B:-}", "")],
)
def test_variables(text, value):
    assert expanded(text, {"A": "1", "EMPTY": ""}, "here") == value


def test_a_variable_that_is_missing():
    with pytest.raises(ConfigError, match="here: the environment has no B") as caught:
        expanded("${A}${B}", {"A": "1"}, "here")
    assert caught.value.next_act == "Set B, or write ${B:-} to go without"


@pytest.mark.parametrize(
    ("server", "text"),
    [
        (McpServer(command="x", args=("--api-key=abc", "-v", "file")), "x --api-key=*** -v file"),
        (McpServer(command="x", args=("--token", "abc", "--to", "b")), "x --token *** --to b"),
        (McpServer(command="x", args=("monkey=1", "${KEY}")), "x monkey=1 ${KEY}"),
        (McpServer(url="https://me:pw@wiki.example:8/mcp?key=abc#f"), "https://wiki.example:8/mcp"),
    ],
)
def test_what_is_shown_of_a_server_holds_nothing_that_looks_secret(server, text):
    assert shown(server) == text


@pytest.mark.parametrize(
    ("hints", "effect"),
    [
        (None, "write"),
        (ToolAnnotations(), "write"),
        (ToolAnnotations(read_only_hint=True), "read"),
        (ToolAnnotations(read_only_hint=True, idempotent_hint=False, destructive_hint=False), "read"),
        (ToolAnnotations(read_only_hint=True, destructive_hint=True), "write"),
        (ToolAnnotations(idempotent_hint=True, destructive_hint=True), "idempotent"),
        (ToolAnnotations(destructive_hint=False), "write"),
        (ToolAnnotations(read_only_hint=False), "write"),
    ],
)
def test_effects(hints, effect):
    assert effect_of(hints) == effect


def test_names_fit_providers_and_never_meet():
    assert name_for("git", "git_status", {}) == "git__git_status"
    assert name_for("my.wiki", "pages/list all", {}) == "my_wiki__pages_list_all"
    taken = {"w__a_b": None}
    other = name_for("w", "a.b", taken)
    assert other.startswith("w__a_b_")
    assert other != name_for("w", "a b", taken)
    long = [name_for("w", "x" * 100 + end, {}) for end in "ab"]
    assert len(set(long)) == 2
    assert {len(name) for name in long} == {NAME_LIMIT}
    assert name_for("w", "\u00e4", {}) == "w___"


def test_the_trail_takes_nothing_back_that_left_before():
    trail = Trail()
    trail.follow("c_1")
    trail.follow("c_12")
    assert trail.named(b'{"k":"c_12"}') == {"c_12"}
    trail.leave(frozenset({"c_12"}))
    assert trail.named(b'{"k":"c_12"}') == frozenset(), "a second request for it changes nothing about the first"
    assert (trail.has_left("c_1"), trail.has_left("c_12")) == (False, True)
    trail.forget("c_12")
    assert (trail.has_left("c_12"), trail.idle) == (False, False)


def test_importing_the_plugin_imports_no_sdk():
    code = (
        "import sys, fencepost.plugins.mcp; sys.exit(any(name in sys.modules for name in ('mcp', 'anyio', 'httpx2')))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
