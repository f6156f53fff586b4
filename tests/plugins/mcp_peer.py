"""A small MCP server on the SDK's own server side, for what public servers do not do: die, hold, and tell what it got.

Run as a program it talks over stdin and stdout, with `--http PORT` over streamable HTTP. Each tool leaves in a file
what it did to the world, so that a test can compare that with what the agent says.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

peer = MCPServer("peer", log_level="CRITICAL")


def _note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text + "\n")


@peer.tool(annotations=ToolAnnotations(read_only_hint=True))
def look(ctx: Context) -> CallToolResult:
    """What the server sees: the request's metadata, and its own process."""
    seen = {
        "meta": dict(ctx.request_context.meta or {}),
        "pid": os.getpid(),
        "environment": dict(os.environ),
        "headers": dict(ctx.headers or {}),
    }
    return CallToolResult(content=[], structured_content=seen)


@peer.tool()
def act(path: str, die: str = "") -> str:
    """Writes a line into a file; kills its own process `before` or `after` that if asked to."""
    if die == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    _note(path, "acted")
    if die == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return "acted"


@peer.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def hold(path: str, ctx: Context) -> str:
    """Reports progress, then waits until it is cancelled."""
    await ctx.report_progress(1, 3, "holding")
    _note(path, "holding")
    try:
        await asyncio.Event().wait()
    finally:
        _note(path, "cancelled")
    return "never"


@peer.tool(annotations=ToolAnnotations(destructive_hint=True, read_only_hint=False))
def fail(how: str) -> Any:
    """Fails in one of the ways of the protocol."""
    if how == "error":
        raise MCPError(-32000, "Connection closed")
    return CallToolResult(content=[TextContent(text="it went wrong")], is_error=True)


@peer.tool()
def show(long: int = 0) -> CallToolResult:
    """Every kind of content, or a long text."""
    if long:
        return CallToolResult(content=[TextContent(text="a" + "x" * long + "z")])
    return CallToolResult(
        content=[
            TextContent(text="caf\u00e9 \u2028 line"),
            ImageContent(data="iVBORw0K", mime_type="image/png"),
            AudioContent(data="not base64!", mime_type="audio/wav"),
            ResourceLink(uri="file:///a", name="a", description="the first"),
            EmbeddedResource(resource=TextResourceContents(uri="file:///b", text="inside b")),
            EmbeddedResource(resource=BlobResourceContents(uri="file:///c", blob="AAEC")),
        ],
        structured_content={"n": 1},
    )


@peer.tool()
def spawn() -> int:
    """Starts a process that leaves the server's own session and outlives it, if nobody ends it."""
    return subprocess.Popen(["sleep", "1000"], start_new_session=True).pid


def main() -> None:
    if sys.argv[1:2] == ["--http"]:
        peer.run("streamable-http", port=int(sys.argv[2]))
    else:
        peer.run()


if __name__ == "__main__":
    main()
