"""From the servers of a session to its tools.

Rules:
    1. Servers are started together. One that fails is told in one notice, and the others' tools are there.
    2. What an agent that is gone left running of this session's servers is ended before, and told.
    3. Names are `SERVER__TOOL`, of letters that every provider takes, and do not depend on who answers first.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from mcp import types

from fencepost.core import events as ev
from fencepost.errors import FencepostError
from fencepost.plugins.mcp_child import Child
from fencepost.plugins.mcp_config import McpError, McpServer, expanded, shown
from fencepost.plugins.mcp_connection import Wire
from fencepost.plugins.mcp_http import HttpWire
from fencepost.plugins.mcp_link import Link
from fencepost.plugins.mcp_record import TOKEN, Record, end_survivors
from fencepost.plugins.mcp_stdio import StdioWire
from fencepost.runtime.replies import sentence
from fencepost.runtime.subjects import Notice
from fencepost.runtime.toolbox import SessionSite
from fencepost.runtime.tools import CallContext, Guard, Tool, ToolReply

NAME_LIMIT = 64
"""Characters of a tool's name that every provider takes."""

INHERITED = ("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER")
"""Variables of our environment that a server gets. Keys of models are not its business."""

# The SDK logs what it also raises. Whoever configures logging hears it; without that it would go to the terminal.
logging.getLogger("mcp").addHandler(logging.NullHandler())


async def fetch(servers: Mapping[str, McpServer], site: SessionSite, environ: Mapping[str, str]) -> list[Tool]:
    """Start or connect to the servers, and give their tools. They are ended with the session.

    Args:
        servers: by name, checked.
        site: of the session.
        environ: what `${NAME}` stands for.
    """
    record = Record(site.journal)
    await _end_survivors(record, site)
    links = {name: _link(name, server, site, record, environ) for name, server in servers.items()}

    async def close() -> None:
        await asyncio.gather(*(link.close() for link in links.values()))

    site.closing.push_async_callback(close)
    opened = await asyncio.gather(*(link.open() for link in links.values()), return_exceptions=True)
    tools: dict[str, Tool] = {}
    for (name, link), found in zip(links.items(), opened, strict=True):
        if isinstance(found, BaseException):
            site.notify(Notice("note", _failed(name, servers[name], found)))
        else:
            _add(tools, link, servers[name], found, site)
    return list(tools.values())


async def _end_survivors(record: Record, site: SessionSite) -> None:
    tokens = record.tokens()
    ended = await asyncio.to_thread(end_survivors, tokens) if tokens else []
    if ended:
        pids = ", ".join(map(str, ended))
        text = f"processes of this session's MCP servers had outlived their agent and were ended: {pids}"
        site.notify(Notice("note", text))


def _failed(name: str, server: McpServer, error: BaseException) -> str:
    why = error.explain() if isinstance(error, FencepostError) else sentence(error)
    return f"the MCP server {name!r} ({shown(server)}) is missing, and the session goes on without its tools: {why}"


# --- connecting -------------------------------------------------------------------------------------------------


def _link(name: str, server: McpServer, site: SessionSite, record: Record, environ: Mapping[str, str]) -> Link:
    def connect() -> Wire:
        where = f"mcp.servers.{name}"
        if server.url:
            headers = {key: expanded(text, environ, f"{where}.headers.{key}") for key, text in server.headers.items()}
            return HttpWire(expanded(server.url, environ, f"{where}.url"), headers)
        return StdioWire(_start(name, server, site, record, environ))

    return Link(name, connect, server.timeout, server.start_timeout, site.notify)


def _start(
    name: str, server: McpServer, site: SessionSite, record: Record, environ: Mapping[str, str]
) -> Callable[[], Awaitable[Child]]:
    """Expand now, so that what is missing is said before anything is recorded; start when the wire is entered."""
    where = f"mcp.servers.{name}"
    argv = [expanded(text, environ, f"{where}.args") for text in (server.command, *server.args)]
    own = {key: expanded(text, environ, f"{where}.env.{key}") for key, text in server.env.items()}
    inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
    cwd = site.cwd / Path(expanded(server.cwd, environ, f"{where}.cwd")).expanduser()

    async def start() -> Child:
        token = await record.starting(name, shown(server))
        try:
            child = await Child.start(argv, cwd, {**inherited, **own, TOKEN: token})
        except (OSError, ValueError) as error:
            what = argv[0] if cwd.is_dir() else f"there is no directory {cwd}, and {argv[0]}"
            why = error.strerror if isinstance(error, OSError) and error.strerror else error
            raise McpError(f"{what} could not be started ({why})") from None
        record.started(token, child.pid)
        return child

    return start


# --- tools ------------------------------------------------------------------------------------------------------


def _add(tools: dict[str, Tool], link: Link, server: McpServer, found: list[types.Tool], site: SessionSite) -> None:
    offered = {one.name for one in found}
    missing = sorted(set(server.tools or ()) - offered)
    if missing:
        text = f"the MCP server {link.name!r} has no tool {missing[0]!r}; it has: {', '.join(sorted(offered))}"
        site.notify(Notice("note", text))
    for one in found:
        if server.tools is None or one.name in server.tools:
            made = _tool(link, one, name_for(link.name, one.name, tools), server.effects.get(one.name))
            tools[made.name] = made


def name_for(server: str, tool: str, taken: Mapping[str, object]) -> str:
    """The name of a server's tool: sanitised, and marked where that makes it too long or like another."""
    whole = f"{server}__{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", whole)
    if len(name) > NAME_LIMIT or name in taken:
        mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
        name = f"{name[: NAME_LIMIT - 9]}_{mark}"
    return name


def _tool(link: Link, found: types.Tool, name: str, effect: ev.Effect | None) -> Tool:
    async def body(context: CallContext, arguments: dict[str, Any]) -> ToolReply:
        return await link.call(found.name, arguments, context)

    about = found.description or found.title or f"The tool {found.name} of the MCP server {link.name}."
    return Tool(
        spec=ev.ToolSpec(name, about, found.input_schema, effect or effect_of(found.annotations)),
        body=body,
        effect=effect or effect_of(found.annotations),
        guard=_guard(link.name, found.annotations),
    )


def effect_of(hints: types.ToolAnnotations | None) -> ev.Effect:
    """The effect that a server's hints stand for; a `write` where there are none, or where they contradict."""
    if hints is None:
        return "write"
    if hints.read_only_hint:
        return "write" if hints.destructive_hint else "read"
    return "idempotent" if hints.idempotent_hint else "write"


def _guard(server: str, hints: types.ToolAnnotations | None) -> Guard | None:
    """A server that calls its own tool destructive has a person asked, whatever its effect."""
    if hints is None or not hints.destructive_hint:
        return None
    why = f"the MCP server {server!r} says that this tool may destroy something"
    return partial(_always, why)


def _always(why: str, arguments: dict[str, Any], cwd: Path) -> str:  # noqa: ARG001 - the shape of a guard
    return why


__all__ = ["effect_of", "fetch", "name_for"]
