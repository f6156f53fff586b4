"""The MCP servers that a client passes, as a source of tools for one session.

What the client says is meant to the letter: its values take the place of variables which only this source knows, so
that nothing in them is expanded, and none of them, secrets least of all, is written into the log.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from acp import schema

from fencepost.errors import UsageError
from fencepost.plugins.mcp import McpServer, mcp_source
from fencepost.runtime.toolbox import ToolSource

_ODD = re.compile(r"[^A-Za-z0-9_.-]+")


def sources(servers: Sequence[Any] | None) -> tuple[ToolSource, ...]:
    """The source, where there are servers at all.

    Args:
        servers: as the SDK reads them.

    Raises:
        UsageError: a server is described in a way that is not offered here.
    """
    if not servers:
        return ()
    known: dict[str, McpServer] = {}
    literal: dict[str, str] = {}
    for server in servers:
        known[_name(server.name, known)] = _server(server, literal)
    return (mcp_source(known, literal),)


def _name(wanted: str, taken: dict[str, McpServer]) -> str:
    base = _ODD.sub("-", wanted).strip("-_.")[:36] or "server"
    name, number = base, 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    return name


def _server(server: object, literal: dict[str, str]) -> McpServer:
    def put(text: str) -> str:
        name = f"CLIENT_{len(literal)}"
        literal[name] = text
        return f"${{{name}}}"

    def plain(text: str) -> str:
        return put(text) if "${" in text else text

    if isinstance(server, schema.HttpMcpServer):
        return McpServer(url=plain(server.url), headers={item.name: put(item.value) for item in server.headers})
    if isinstance(server, schema.McpServerStdio):
        return McpServer(
            command=plain(server.command),
            args=tuple(plain(argument) for argument in server.args),
            env={item.name: put(item.value) for item in server.env},
        )
    kind = getattr(server, "type", type(server).__name__)
    raise UsageError(f"MCP servers over {kind} are not offered here", next_act="Use stdio or http")
