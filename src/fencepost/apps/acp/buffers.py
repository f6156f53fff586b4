"""What the editor holds and the disk does not: unsaved changes, seen through `fs/read_text_file`.

    read_file                the model gets the editor's text where it differs, with a word on it
    write_file, edit_file    refused while the editor holds unsaved changes of that file: nobody's work is lost

Files are written to disk, by fencepost, and not through the client: only then is the change durable before the model
hears of it, and only then can a receipt say after a crash whether it happened. Editors see files change on disk. The
client's terminal is not used for the same reason: what runs there, nobody here can bring to an end or settle.

A client that does not answer in time, or says no, has nothing to say about that file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from fencepost.apps.acp.cards import SHOWN, Before
from fencepost.apps.acp.plan import update_plan
from fencepost.plugins.files_place import Refusal, resolve
from fencepost.plugins.files_read import LINES, READ_BYTES
from fencepost.runtime.hooks import Position
from fencepost.runtime.plugin import PluginContext
from fencepost.runtime.subjects import Admission, Candidate, Deny, Done
from fencepost.runtime.tools import ToolReply

SECONDS = 2.0
"""How long the client may take to show a file."""
LARGEST = 4 << 20
"""Bytes of a file above which the client is not asked."""
KEPT = 64
"""Files whose old content is kept at most, to be shown; the latest."""

Show: TypeAlias = Callable[[Path], Awaitable[str | None]]
"""Gives the client's text of a file; None where it has nothing to say."""


class Buffers:
    """The plugin: what an editor adds to the ready agent.

    Args:
        show: asks the client for a file; None for one that cannot be asked.

    Attributes:
        before: the old content of files that are written whole, by call.
    """

    name = "editor"
    requires: tuple[str, ...] = ()

    def __init__(self, show: Show | None) -> None:
        self._show = show
        self.before: dict[str, Before] = {}

    def apply(self, context: PluginContext) -> None:
        """Look before a file is written, and behind a file that was read; offer `update_plan`."""
        context.tool(update_plan)
        context.hook(lambda hooks: hooks.tool_admit, Position.POLICY, self._admit)
        context.hook(lambda hooks: hooks.tool_done, Position.SHAPE, self._done)

    async def _admit(self, call: Candidate, go_on: Callable[[Candidate], Awaitable[Admission]]) -> Admission:
        place = _place(call) if call.tool.name in {"write_file", "edit_file"} else None
        if place is None:
            return await go_on(call)
        disk = await asyncio.to_thread(_read, place)
        if await self._unsaved(place, disk) is not None:
            return Deny(
                f"the user has unsaved changes of {place} in the editor; ask them to save or discard those first"
            )
        if call.tool.name == "write_file" and (disk is not None or not place.exists()):
            self._keep(call.call_id, disk)
        return await go_on(call)

    def _keep(self, call_id: str, disk: str | None) -> None:
        if disk is None or len(disk) <= SHOWN:
            self.before[call_id] = Before(disk)
        while len(self.before) > KEPT:
            del self.before[next(iter(self.before))]

    async def _done(self, done: Done, go_on: Callable[[Done], Awaitable[ToolReply]]) -> ToolReply:
        call, reply = done.candidate, done.reply
        place = _place(call) if call.tool.name == "read_file" and done.admitted and not reply.is_error else None
        text = None if place is None else await self._unsaved(place, await asyncio.to_thread(_read, place))
        if text is None:
            return await go_on(done)
        shaped = msgspec.structs.replace(reply, text=_page(text, call.arguments))
        return await go_on(msgspec.structs.replace(done, reply=shaped))

    async def _unsaved(self, place: Path, disk: str | None) -> str | None:
        """The client's text, where it is another than the disk's."""
        if self._show is None or disk is None:
            return None
        try:
            async with asyncio.timeout(SECONDS):
                text = await self._show(place)
        except TimeoutError:
            return None
        return None if text is None or _same(text, disk) else text


def _place(call: Candidate) -> Path | None:
    try:
        return resolve(str(call.arguments.get("path", "")), call.cwd)
    except Refusal:
        return None  # the tool says so by itself


def _read(place: Path) -> str | None:
    """The disk's text; None for what is no text file, or too large to compare."""
    try:
        if not place.is_file() or place.stat().st_size > LARGEST:
            return None
        return place.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def _same(one: str, other: str) -> bool:
    """Whether two texts are the same but for line ends, which editors keep to themselves."""
    return _plain(one) == _plain(other)


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").removesuffix("\n")


def _page(text: str, arguments: dict[str, Any]) -> str:
    """The lines that were asked for, of the client's text."""
    first = int(arguments.get("offset", 1))
    lines = text.replace("\r\n", "\n").split("\n")[first - 1 : first - 1 + int(arguments.get("limit", LINES))]
    shown = "\n".join(lines).encode()[:READ_BYTES].decode(errors="ignore")
    return (
        f"{shown}\n[this is the text in the user's editor, which has unsaved changes; "
        "write_file and edit_file refuse this file until it is saved]\n"
    )
