"""What ships, by name; and what third parties ship through entry points."""

import subprocess
import sys
import textwrap

import pytest

from fencepost.errors import CompositionError, ConfigError
from fencepost.plugins.shipped import DEFAULT, compose
from fencepost.runtime.plugin import Composition


def test_the_ready_agent():
    composition = Composition(compose(DEFAULT, "read"), {})
    assert [plugin.name for plugin in composition.plugins] == list(DEFAULT)
    assert set(composition.registry.tools) == {
        "shell",
        "read_file",
        "list_files",
        "search_files",
        "write_file",
        "edit_file",
    }
    assert set(composition.registry.models) == {"openai", "deepseek", "anthropic", "local", "script"}
    hooks = composition.registry.hooks
    assert (hooks.gates(), hooks.policy()) == (("step", "request", "tool", "closing"), "checkpoint")
    effects = {name: tool.effect for name, tool in composition.registry.tools.items()}
    assert effects == {
        "shell": "write",
        "read_file": "read",
        "list_files": "read",
        "search_files": "read",
        "write_file": "idempotent",
        "edit_file": "write",
    }


def test_without_the_checkpoint_no_gate_is_in_force():
    names = [name for name in DEFAULT if name != "checkpoint"]
    hooks = Composition(compose(names, "read"), {}).registry.hooks
    assert (hooks.gates(), hooks.policy()) == (("closing",), "none")


def test_the_shell_is_configured():
    composition = Composition(compose(["shell"], "read"), {"shell": {"timeout": 5, "limit": 60}})
    described = str(composition.registry.tools["shell"].spec)
    assert "5 if not given" in described
    with pytest.raises(ConfigError, match=r"\[plugin.shell\]"):
        Composition(compose(["shell"], "read"), {"shell": {"timeout": "long"}})


def test_http_is_shipped_and_not_among_the_default():
    assert "http" not in DEFAULT
    composition = Composition(compose([*DEFAULT, "http"], "read"), {"http": {"private": ["*.corp.example"]}})
    tool = composition.registry.tools["http_request"]
    assert tool.guard({"url": "https://git.corp.example/"}, None) is not None
    with pytest.raises(ConfigError, match=r"\[plugin.http\]"):
        Composition(compose(["http"], "read"), {"http": {"hosts": []}})


def test_a_name_that_nobody_ships():
    with pytest.raises(CompositionError, match="there is no plugin 'chekpoint'") as caught:
        compose(["chekpoint"], "read")
    assert "checkpoint" in caught.value.next_act


THEIRS = """
class Weather:
    name = "weather"
    requires = ("checkpoint",)
    def apply(self, context):
        pass

ready = Weather()
number = 7
"""


@pytest.fixture
def third_party(tmp_path, monkeypatch):
    """A distribution that was installed: a module, and its entry points."""
    (tmp_path / "weather_plugin.py").write_text(THEIRS)
    info = tmp_path / "weather_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: weather-plugin\nVersion: 1.0\n")
    points = ["weather = weather_plugin:Weather", "ready = weather_plugin:ready", "number = weather_plugin:number"]
    (info / "entry_points.txt").write_text("\n".join(["[fencepost.plugins]", *points]))
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("weather_plugin", None)


def test_third_parties_ship_plugins_through_entry_points(third_party):
    for name in ("weather", "ready"):
        composition = Composition(compose([name, "checkpoint"], "read"), {})
        assert [plugin.name for plugin in composition.plugins] == ["checkpoint", "weather"]
    with pytest.raises(CompositionError, match="gives no plugin"):
        compose(["number"], "read")
    with pytest.raises(CompositionError, match="there is no plugin") as caught:
        compose(["rain"], "read")
    assert "weather" in caught.value.next_act


def test_composing_imports_no_sdk():
    """The SDKs cost most of a second: none of them may be loaded by a command that asks no model."""
    program = """
        import sys
        from fencepost.plugins.shipped import DEFAULT, compose
        from fencepost.runtime.plugin import Composition
        Composition(compose(DEFAULT, "read"), {})
        print(sorted({"openai", "httpx", "pydantic", "rich"} & set(sys.modules)))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
