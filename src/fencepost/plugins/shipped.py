"""What ships, by name, and how a configuration's names become plugins.

Each module is imported only when its plugin is composed. Third parties add theirs through entry points in the group
`fencepost.plugins`: an object, or a callable without arguments that gives one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from fencepost.errors import CompositionError
from fencepost.plugins.approval import Approval, Ask, Mode
from fencepost.runtime.plugin import Plugin, PluginContext
from fencepost.runtime.tools import Tool

GROUP = "fencepost.plugins"

DEFAULT: tuple[str, ...] = (
    "models",
    "checkpoint",
    "retry",
    "rules",
    "budget",
    "repeats",
    "approval",
    "compaction",
    "files",
    "shell",
    "mcp",
)
"""What the ready agent is composed of if the configuration does not say."""


class ToolsPlugin:
    """Some tools, as a plugin.

    Args:
        name: of the plugin.
        tools: what it offers.
    """

    requires: tuple[str, ...] = ()

    def __init__(self, name: str, tools: Sequence[Tool]) -> None:
        self.name = name
        self._tools = tuple(tools)

    def apply(self, context: PluginContext) -> None:
        """Offer them."""
        for tool in self._tools:
            context.tool(tool)


class ShellSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[plugin.shell]`.

    Attributes:
        timeout: seconds that a command gets if the model does not say.
        limit: seconds that the model may ask for at most.
        on_crash: what becomes of a command when the agent is killed: it runs to its end, or is ended too.
    """

    timeout: float = 120.0
    limit: float = 3600.0
    on_crash: Literal["finish", "end"] = "finish"


class Shell:
    """The shell tool."""

    name = "shell"
    requires: tuple[str, ...] = ()

    def apply(self, context: PluginContext) -> None:
        """Offer it."""
        from fencepost.plugins.shell import ShellRules, shell_tool

        settings = context.configured(ShellSettings)
        rules = ShellRules(on_crash=settings.on_crash)
        context.tool(shell_tool(timeout_default=settings.timeout, timeout_limit=settings.limit, rules=rules))


class Http:
    """The tool `http_request`. Not in `DEFAULT`, for it needs an extra."""

    name = "http"
    requires: tuple[str, ...] = ()

    def apply(self, context: PluginContext) -> None:
        """Offer it."""
        from importlib.util import find_spec

        from fencepost.plugins.http_request import HttpRules, http_tool

        if find_spec("httpx2") is None:
            raise CompositionError(
                "the plugin http needs httpx2, which is not installed",
                next_act="Install it with: pip install 'fencepost[http]'",
            )
        context.tool(http_tool(context.configured(HttpRules)))


class Models:
    """The model schemes `openai:`, `deepseek:`, `anthropic:`, `local:` and `script:`."""

    name = "models"
    requires: tuple[str, ...] = ()

    def apply(self, context: PluginContext) -> None:
        """Register them; an SDK is imported when its model is first made."""
        from fencepost.plugins import anthropic, local, openai, script

        for scheme in ("openai", "deepseek"):
            context.model(scheme, openai.open_model)
        context.model("anthropic", anthropic.open_model)
        context.model("local", local.open_model)
        context.model("script", script.open_model)


def _checkpoint() -> Plugin:
    from fencepost.plugins.checkpoint import Checkpoint

    return Checkpoint()


def _compaction() -> Plugin:
    from fencepost.plugins.compaction import Compaction

    return Compaction()


def _retry() -> Plugin:
    from fencepost.plugins.retry import Retry

    return Retry()


def _rules() -> Plugin:
    from fencepost.plugins.rules import Rules

    return Rules()


def _budget() -> Plugin:
    from fencepost.plugins.budget import Budget

    return Budget()


def _repeats() -> Plugin:
    from fencepost.plugins.repeats import Repeats

    return Repeats()


def _files() -> Plugin:
    from fencepost.plugins.files import file_tools

    return ToolsPlugin("files", file_tools())


def _mcp() -> Plugin:
    from fencepost.plugins.mcp import Mcp

    return Mcp()


def compose(names: Sequence[str], mode: Mode, ask: Ask | None = None) -> list[Plugin]:
    """The plugins with these names.

    Args:
        names: shipped ones, or names of entry points.
        mode: of the approval plugin, if it is among them.
        ask: asks a person, for the mode `ask`.

    Raises:
        CompositionError: a name is not known, or an entry point does not give a plugin.
    """
    shipped: dict[str, Callable[[], Plugin]] = {
        "models": Models,
        "checkpoint": _checkpoint,
        "retry": _retry,
        "compaction": _compaction,
        "rules": _rules,
        "budget": _budget,
        "repeats": _repeats,
        "approval": lambda: Approval(mode, ask),
        "files": _files,
        "shell": Shell,
        "mcp": _mcp,
        "http": Http,
    }
    return [shipped[name]() if name in shipped else _third_party(name, tuple(shipped)) for name in names]


def _third_party(name: str, shipped: tuple[str, ...]) -> Plugin:
    from importlib.metadata import entry_points  # slow to import, and for third parties only

    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        known = ", ".join((*shipped, *sorted(found)))
        raise CompositionError(f"there is no plugin {name!r}", next_act=f"Known are: {known}")
    plugin = found[name].load()
    if isinstance(plugin, type) or (not isinstance(plugin, Plugin) and callable(plugin)):
        plugin = plugin()
    if not isinstance(plugin, Plugin):
        raise CompositionError(f"the entry point {GROUP}:{name} gives no plugin: it needs name, requires and apply")
    return plugin
