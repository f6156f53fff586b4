"""What is said of MCP servers: `[plugin.mcp.servers.NAME]`, or the same as a record.

    [plugin.mcp.servers.git]          # a program that talks over its stdin and stdout
    command = "mcp-server-git"
    args = ["--repository", "."]
    env = { GIT_TOKEN = "${GIT_TOKEN}" }   # beside HOME, PATH and the like; nothing else of ours reaches the server
    cwd = "."                         # from the session's working directory; that one, if left out

    [plugin.mcp.servers.wiki]         # a server elsewhere, over streamable HTTP
    url = "https://wiki.example/mcp"
    headers = { Authorization = "Bearer ${WIKI_TOKEN}" }
    tools = ["search", "read"]        # only these; all of them, if left out
    timeout = 60                      # seconds for one call
    start_timeout = 20                # seconds until it has told its tools
    effects = { search = "read" }     # in place of what the server's hints say

`${NAME}` stands for a variable of the environment, `${NAME:-text}` for it or a text. It is put in when a server is
started or connected to, and never written anywhere: the log has the line as it stands here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from fencepost.core.events import Effect, Json
from fencepost.errors import ConfigError, FencepostError

TIMEOUT = 300.0
START_TIMEOUT = 60.0
"""Seconds for one call, and for the beginning of a connection, if nobody says otherwise."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_SECRET = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)

Seconds = Annotated[float, Meta(gt=0)]


class McpError(FencepostError):
    """A server could not be started or reached, or does not answer as one."""

    code = "MCP"


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One server; see the module. It has either `command` or `url`."""

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: dict[str, str] = {}
    tools: tuple[str, ...] | None = None
    timeout: Seconds = TIMEOUT
    start_timeout: Seconds = START_TIMEOUT
    effects: dict[str, Effect] = {}


def servers_of(given: Mapping[str, McpServer | Json], table: str = "plugin.mcp.servers") -> dict[str, McpServer]:
    """The servers of a table of the configuration, or of a program, checked.

    Args:
        given: by name; records, or what becomes one.
        table: what errors call it.

    Raises:
        ConfigError: a server is not described rightly; names table and key.
    """
    return {name: _checked(server, f"[{table}.{name}]") for name, server in given.items() if _named(name, table)}


def _named(name: str, table: str) -> bool:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"[{table}]: {name!r} cannot name a server",
            next_act="Use up to 40 letters, digits, `_`, `-` and `.`, a letter or digit first",
        )
    return True


def _checked(given: McpServer | Json, where: str) -> McpServer:
    try:
        # Records are made without a check of their types, so they go through the same door.
        server = msgspec.convert(msgspec.to_builtins(given), McpServer)
    except msgspec.ValidationError as error:
        keys = ", ".join(McpServer.__struct_fields__)
        raise ConfigError(f"{where}: {error}", next_act=f"There are: {keys}") from None
    if bool(server.command) == bool(server.url):
        raise ConfigError(
            f"{where} has {'both' if server.url else 'neither'} of `command` and `url`",
            next_act="Give `command` for a program to start, or `url` for a server elsewhere",
        )
    there, needs = (("headers",), "url") if server.command else (("args", "env", "cwd"), "command")
    wrong = [key for key in there if getattr(server, key)]
    if wrong:
        raise ConfigError(f"{where}: `{wrong[0]}` goes with `{needs}`", next_act=f"Take it out, or give `{needs}`")
    if server.url and urlsplit(server.url).scheme not in {"http", "https"}:
        raise ConfigError(f"{where}: `url` begins neither with http:// nor with https://", next_act="Write it whole")
    return server


def expanded(text: str, environ: Mapping[str, str], where: str) -> str:
    """`text` with the variables of the environment put in.

    Args:
        text: of the configuration.
        environ: the environment.
        where: what an error calls the place of `text`.

    Raises:
        ConfigError: a variable is not set and has no text to stand in.
    """

    def value(match: re.Match[str]) -> str:
        found = environ.get(match[1], match[2])
        if found is None:
            raise ConfigError(
                f"{where}: the environment has no {match[1]}",
                next_act=f"Set {match[1]}, or write ${{{match[1]}:-}} to go without",
            )
        return found

    return _VARIABLE.sub(value, text)


def shown(server: McpServer) -> str:
    """The server for people and for the log: its command line or address as configured, without what looks secret."""
    if server.url:
        parts = urlsplit(server.url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="").geturl()
    words = [server.command]
    hide = False
    for word in server.args:
        option, equals, _ = word.partition("=")
        secret = bool(_SECRET.search(option)) and word.startswith("-")
        words.append("***" if hide else f"{option}=***" if secret and equals else word)
        hide = secret and not equals
    return " ".join(words)
