"""Tools of MCP servers, as a plugin: `[plugin.mcp.servers.NAME]` in the configuration, or per session.

    fencepost.open(..., plugins=[Mcp({"git": {"command": "mcp-server-git"}})])
    runtime.create(sources=[mcp_source({"git": McpServer(command="mcp-server-git")})])

Servers belong to a session: they are started, or connected to, in front of its first turn and ended with it. Each of
their tools becomes one named `SERVER__TOOL`. The `call_id` travels in the request's `_meta` under `mcp_link.KEY`.

This module is light. What needs the SDK is imported when there is a server, off the loop, for it takes its time.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import Mapping, Sequence

import msgspec

from fencepost.core.events import Json
from fencepost.errors import ConfigError
from fencepost.plugins.mcp_config import McpServer as McpServer
from fencepost.plugins.mcp_config import servers_of
from fencepost.plugins.mcp_record import EVENTS
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.toolbox import SessionSite, ToolSource
from fencepost.runtime.tools import Tool


class McpSettings(msgspec.Struct, frozen=True):
    """`[plugin.mcp]`."""

    servers: dict[str, Json] = {}


class Mcp:
    """The plugin: declares what is recorded of servers, and offers the tools of those that are configured.

    Args:
        servers: beside those of the configuration; records, or tables as they stand there.

    Raises:
        ConfigError: a server is not described rightly.
    """

    name = "mcp"
    requires: tuple[str, ...] = ()

    def __init__(self, servers: Mapping[str, McpServer | Mapping[str, Json]] | None = None) -> None:
        self._servers = servers_of(dict(servers or {}), "mcp.servers")  # type: ignore[arg-type]  # a Mapping converts

    def apply(self, context: PluginContext) -> None:
        """Declare the events; starts and imports nothing."""
        for event in EVENTS:
            context.declare(event)
        configured = servers_of(context.configured(McpSettings).servers)
        twice = sorted(set(configured) & set(self._servers))
        if twice:
            raise ConfigError(
                f"[plugin.mcp.servers.{twice[0]}]: the program has a server of that name already",
                next_act="Give one of them another name",
            )
        if configured or self._servers:
            context.tools_from(mcp_source({**self._servers, **configured}))


def mcp_source(servers: Mapping[str, McpServer], environ: Mapping[str, str] = os.environ) -> ToolSource:
    """The tools of some servers, for `Runtime.create` and `Runtime.resume`. Needs `Mcp` among the plugins.

    Args:
        servers: by name.
        environ: what `${NAME}` in their descriptions stands for.

    Raises:
        ConfigError: a server is not described rightly.
    """
    checked = servers_of(dict(servers), "mcp.servers")

    async def fetch(site: SessionSite) -> Sequence[Tool]:
        if not checked:
            return ()
        try:
            linking = await asyncio.to_thread(importlib.import_module, "fencepost.plugins.mcp_servers")
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"MCP servers are configured, and {error.name} is not installed",
                next_act="Install it: pip install 'fencepost[mcp]'",
            ) from None
        found: Sequence[Tool] = await linking.fetch(checked, site, environ)
        return found

    return fetch
